#!/usr/bin/env python3
"""The constants by which matmul_lowbit chooses among its variants, fitted to what bench/variants measured; and how good
that choice is: the time of the variant that it takes over the time of the best one, as a geometric mean.

    bench/fit.py --fit FILE... [--unseen FILE...] [--write programs/matmul_lowbit_costs.vasminc] [--name h200]
    bench/fit.py --unseen FILE... [--choices]      by the constants that programs/matmul_lowbit_costs.vasminc has

The files are bench/variants' output, whose first line names the device; `--unseen` are points that take no part in the
fit. `--choices` prints what is chosen for each of their points, which is what the entry chooses. The formulas are those
of programs/matmul_lowbit.vasminc, in the same whole numbers of picoseconds: for sizes alone they need nothing but
Python, a fit needs numpy and scipy."""

import argparse
import math
import re
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace

#: Clusters of so many blocks that an H200, of 132 multiprocessors, runs at a time (cuOccupancyMaxActiveClusters).
AT_ONCE = {1: 132, 2: 66, 3: 39, 4: 30, 6: 17, 8: 15}
#: Of each constant: where the search for it begins, in picoseconds, and what it is.
CONSTANTS = {
    "TENSOR": (400e3, "products of a step, 128 rows of W, with a tile of 128 x 128"),
    "CONVERT_WHOLE": (200e3, "conversion of 128 columns of a step: up to 4 bits in whole words"),
    "CONVERT_SPLIT": (200e3, "other integers"),
    "CONVERT_8": (240e3, "8 bits"),
    "CONVERT_FLOAT": (250e3, "floats"),
    "CONVERT_LATE": (50e3, "for each 4 bits, where they are read in parts"),
    "LATENCY": (1.2e6, "from the request of a stage to its arrival"),
    "BRING_ROW": (110e3, "128 rows of A of a step"),
    "BRING_BIT": (42e3, "a bit of 128 columns of a step"),
    "BRING_MISSING": (4.5e3, "a row that the tile has, but A has not"),
    "SHARED": (250, "16 KB by way of the L2 cache, which all multiprocessors share"),
    "WAVE": (1.5e6, "the beginning and end of a tile, but of blocks that stay of the first one alone"),
    "WAVE_TILE": (2e6, "more, for each 128 x 128 of a tile"),
    "STAY_TILE": (500e3, "the end of each tile but the last of blocks that stay, for each 128 x 128"),
    "EXCHANGE": (1.3e6, "adding up in a cluster, for each tile"),
    "STREAM_TENSOR": (240e3, "as TENSOR, of streams"),
    "STREAM_CONVERT": (1.5e3, "conversion in a stream, in thousandths of that in a cluster"),
    "STREAM_STEP": (150e3, "a stage of a stream"),
    "STREAM_CUT": (5.5e6, "adding up 128 x 128 of tiles that are cut"),
    "MMA_LAUNCH": (900e3, "by mma.sync: a launch"),
    "MMA_STEP": (200e3, "a step"),
    "MMA_BIT": (19e3, "a bit of 64 columns of 128 rows of W"),
    "MMA_ROW": (10e3, "1024 activations"),
    "MMA_PRODUCT": (2.3e3, "a row of A with 64 columns of 128 rows of W"),
    "MMA_CUT": (660e3, "each part of a tile that is cut"),
    "MMA_CUT_TILE": (2.1e6, "4096 sums of such a tile"),
}  # fmt: skip
#: What multiplies tiles: by the target, as bench/variants writes it; on other targets mma.sync alone does.
UNITS = {90: "wgmma", 100: "tcgen05", 103: "tcgen05", 110: "tcgen05"}
PROGRAMS = Path(__file__).resolve().parent.parent / "programs"


def physical(clock, products, memory):
    """Constants of a device that was not measured, by its clock (GHz), products of f16 a clock and multiprocessor, and
    the share of the memory's bandwidth (GB/s) that a multiprocessor has. What they stand for: 2048 and 128 lanes' work
    of instructions a clock; a way to memory of 0.7 us, to the L2 cache of 0.3 us; 64 bytes a clock from that cache."""
    clocks, line = 1e3 / clock, 1e3 / (64 * clock)  # of picoseconds; of a byte from the L2 cache
    tensor = 128**3 / products * clocks
    lane = 128 * 128 / 128 * clocks  # an instruction for each weight of 128 x 128
    return {
        "TENSOR": 0.7 * tensor, "CONVERT_WHOLE": 1.5 * lane, "CONVERT_SPLIT": 2 * lane, "CONVERT_8": 1.5 * lane,
        "CONVERT_FLOAT": 2 * lane, "CONVERT_LATE": 0.5 * lane, "LATENCY": 700e3, "BRING_ROW": 128 * 256 * line / 4,
        "BRING_BIT": 128 * 16 * line, "BRING_MISSING": 256 * line, "SHARED": 0, "WAVE": 1.4e6,
        "WAVE_TILE": 128 * 128 * 2 * line, "STAY_TILE": 128 * 128 * 2 * line, "EXCHANGE": 1.2e6,
        "STREAM_TENSOR": 0.7 * tensor,
        "STREAM_CONVERT": 500, "STREAM_STEP": 100e3, "STREAM_CUT": 128 * 128 * 8 * line + 1.4e6,
        "MMA_LAUNCH": 1e6, "MMA_STEP": 200e3, "MMA_BIT": 64 * 128 / 8 * 1e3 / memory,
        "MMA_ROW": 2048 * line, "MMA_PRODUCT": 64 * 128 / products * clocks * 2, "MMA_CUT": 700e3,
        "MMA_CUT_TILE": 4096 * 8 * line * 4,
    }  # fmt: skip


#: Shares of what figures say that code for sm_80 takes: on an H200 by a fit of these formulas from 24 rows on (NOTES,
#: "Choosing a variant"), and on an H100 as found before, for mma.sync beside tcgen05, which leaves it few rows.
MANY_ROWS = {"BIT": 0.93, "ROW": 0.83, "PRODUCT": 1.06, "CUT": 1.56e6, "CUT_TILE": 4.8}
FEW_ROWS = {"BIT": 0.57, "ROW": 0.85, "PRODUCT": 0.95, "CUT": 440e3, "CUT_TILE": 6}


def by_mma(clock, products, memory, shares):
    """Of a device without wgmma, by the same figures, what its variants take; an H200's mma.sync has 1270 products."""
    clocks, line = 1e3 / clock, 1e3 / (64 * clock)
    return {
        "MMA_LAUNCH": 2.9e6, "MMA_STEP": 20 * clocks, "MMA_BIT": shares["BIT"] * 64 * 128 / 8 * 1e3 / memory,
        "MMA_ROW": shares["ROW"] * 2048 * line, "MMA_PRODUCT": shares["PRODUCT"] * 64 * 128 / products * clocks,
        "MMA_CUT": shares["CUT"], "MMA_CUT_TILE": shares["CUT_TILE"] * 4096 * 8 * line,
    }  # fmt: skip


def by_tcgen05(clock, products, memory):
    """Of a device with tcgen05, by the same figures: the tensor core has no pause, as it has no registers to wait for;
    conversions run beside it, and a stage is begun and ended by other warps. Of 128 bytes a clock of shared memory rows
    of A take three times theirs, to be written, and read by the products of both matrices of sums, and weights twice.
    Of its mma.sync nothing is published: an A100's products a clock."""
    clocks = 1e3 / clock
    tensor = {"STREAM_TENSOR": 128**3 / products * clocks, "STREAM_CONVERT": 1000, "STREAM_STEP": 0,
              "BRING_ROW": 3 * 128 * 256 / 128 * clocks, "BRING_BIT": 2 * 128 * 16 / 128 * clocks}  # fmt: skip
    return physical(clock, products, memory) | by_mma(clock, A100[1], memory, FEW_ROWS) | tensor


#: Of devices that were not measured: those with wgmma, of which an H100 has these figures, those with tcgen05, a B200's
#: (bench/NOTES, "Tensor memory: a model of time"), and the others, an A100's.
A100 = (1.41, 1024, 2039 / 108)
UNMEASURED = {"hopper": ("wgmma", physical(1.755, 2048, 3350 / 132)),
              "blackwell": ("tcgen05", by_tcgen05(1.85, 4096, 7700 / 148)),
              "others": ("mma", physical(*A100) | by_mma(*A100, MANY_ROWS))}  # fmt: skip
#: What programs ask to know that a device has it.
CONDITIONS = {"wgmma": "has(wgmma)", "tcgen05": "has(tcgen05)", "mma": "!has(wgmma) && !has(tcgen05)"}


def cdiv(a, b):
    return -(-a // b)


# ---- variants and points ----


def read_tables(programs):
    """The rows of the program's tables of variants, by the names of bench/variants."""
    text = (programs / "matmul_lowbit.vasminc").read_text()
    variants = {}
    for table in ("MMA_VARIANTS", "TILES"):
        columns, body = re.search(rf"\.table {table}\((.*?)\)\n(.*?)\.endtable", text, re.DOTALL).groups()
        names = [name.strip() for name in columns.split(",")]
        for name, fields, condition in re.findall(r"^ *_(\w+): *(.*?)(?: +if (.*))?$", body, re.MULTILINE):
            variants[name] = dict(zip(names, (field.strip() for field in fields.split(",")))) | {"if": condition}
    return variants


def row_of(variants, name, bits):
    """A variant's row in numbers, for weights of so many bits in groups of 128 and otherwise default options."""
    fields, pairs = variants[name], bits in (4, 8)
    known = {"ONCE": "once", "STAY": "stay", "CUT": "cut", "MAY_STAY": "stay" if pairs else "once",
             "STREAM_BK": 128 if bits <= 5 else 64, "OWN": 128 if bits == 2 else 64,
             "WM128": 2 if bits in (2, 4, 8) else 4}  # fmt: skip
    row = {key: known[field] if field in known else int(field) for key, field in fields.items()
           if field in known or field.isdigit()}  # fmt: skip
    return SimpleNamespace(engine={"cut": "STREAM", None: "MMA"}.get(row.get("WALK"), "CLUSTER"), **row)


def read_points(files):
    """(type, m, n, k, what the entry took, {variant: microseconds}) of each line; the device, of the first line."""
    points, device = [], None
    for file in files:
        for line in Path(file).read_text().splitlines():
            if line.startswith("#"):
                found = re.match(r"# device: (.*), target (\d+), (\d+) multiprocessors", line)
                device = (found[1], UNITS.get(int(found[2]), "mma"), int(found[3])) if found else device
                continue
            type_name, m, n, k, *rest = line.split()
            words = [word.replace("matmul_lowbit_", "").split(":") for word in rest]
            times = {name.rstrip("~"): float(value) for name, value in words if name != "entry"}
            points.append((type_name, int(m), int(n), int(k), dict(words).get("entry"), times))
    return points, device


# ---- the formulas: f has the sizes, c the constants; div is // or /, top the maximum, pick a choice, of numbers ----


def convert(f, c, pick):
    kinds = [c["CONVERT_WHOLE"], c["CONVERT_SPLIT"], c["CONVERT_8"], c["CONVERT_FLOAT"]]
    time = kinds[3]
    for kind in range(3):
        time = pick(f.kind == kind, kinds[kind], time)
    return time


def cluster_time(f, c, div, top, pick):
    late = pick(f.bm < 256, 0, div(c["CONVERT_LATE"] * f.bits, 4))
    products = div(div(f.area * c["TENSOR"], 128) + f.bn * (convert(f, c, pick) + late), 128)
    bring = div(f.bm * c["BRING_ROW"] + f.bn * f.bits * c["BRING_BIT"], 128) + f.missing * c["BRING_MISSING"]
    step = top(top(products, div(c["LATENCY"], f.stages - 1)), bring)
    begin = c["WAVE"] + div(f.area * c["WAVE_TILE"], 16384) + pick(f.blocks == 1, 0, c["EXCHANGE"])
    tiles = pick(f.stays, begin + (f.waves - 1) * div(f.area * c["STAY_TILE"], 16384), f.waves * begin)
    return f.waves * f.part * step + tiles + f.all * div(f.bytes * c["SHARED"], 16384)


def stream_time(f, c, div, top, pick):
    converted = div(f.bn * convert(f, c, pick) * c["STREAM_CONVERT"], 1000)
    products = div(div(f.area * c["STREAM_TENSOR"], 128) + converted, 128)
    step = top(products + f.stages_of_step * c["STREAM_STEP"], div(f.stages_of_step * c["LATENCY"], f.stages - 1))
    bring = div(f.bm * c["BRING_ROW"] + f.bn * f.bits * c["BRING_BIT"], 128) + f.missing * c["BRING_MISSING"]
    step = top(step, bring)
    wave = c["WAVE"] + div(f.area * c["WAVE_TILE"], 16384)
    whole = f.waves * (wave + f.steps * step)  # tiles, or tiles that are cut into equal parts
    cut = div(f.all * step, f.places) + div(f.area * f.blocks * c["STREAM_CUT"], 16384) + wave
    return f.all * f.blocks * div(f.bytes * f.stages_of_step * c["SHARED"], 16384) + pick(whole < cut, whole, cut)


def mma_time(f, c, div, top, pick):
    bring = div(f.units * (1 + f.copies) * f.bits * c["MMA_BIT"], 2) + div(f.bm * f.bk * c["MMA_ROW"], 1024)
    bring += f.units * f.bm * c["MMA_PRODUCT"]
    step = c["MMA_STEP"] + f.resident * bring
    cut = pick(f.parts == 0, 0, f.parts * c["MMA_CUT"] + div(f.area * c["MMA_CUT_TILE"], 4096))
    return c["MMA_LAUNCH"] + f.row_tiles * f.turns * step + cut


TIMES = {"CLUSTER": cluster_time, "STREAM": stream_time, "MMA": mma_time}


def cluster_sizes(v, bits, m, n, k, unit, places):
    f = SimpleNamespace(bm=v.BM, bn=v.BN, area=v.BM * v.BN, blocks=v.BLOCKS, bits=bits)
    f.bytes, steps, f.stays = 256 * v.BM + 16 * bits * v.BN, cdiv(k, 128), v.WALK == "stay"
    f.stages = min(6, (226 * 1024 - (0 if v.TN == 64 else v.BM * (v.BN + 4) * 4)) // f.bytes)
    row_tiles, f.part = cdiv(m, v.BM), cdiv(k, 128 * v.BLOCKS)
    tiles, f.missing = row_tiles * cdiv(n, v.BN), row_tiles * v.BM - m
    f.waves = cdiv(tiles, cdiv(places * (132 // v.BLOCKS if f.stays else AT_ONCE[v.BLOCKS]), 132))
    f.all = tiles * steps
    return f


def stream_sizes(v, bits, m, n, k, unit, places):
    f = SimpleNamespace(bm=v.BM, bn=v.BN, area=v.BM * v.BN, blocks=v.BLOCKS, bits=bits)
    f.bytes, f.steps, f.stages_of_step = 2 * v.BK * v.BM + bits * v.BK // 8 * f.bn, cdiv(k, 128), 128 // v.BK
    f.stages = min(6, (226 * 1024 - (min(v.BM, 128) * f.bn * 2 if v.TN == 64 else 0)) // f.bytes)
    row_tiles, f.places = cdiv(m, v.BM), max(places // v.BLOCKS, 1)
    tiles, f.missing = row_tiles * cdiv(n, f.bn * v.BLOCKS), row_tiles * v.BM - m
    f.waves, f.all = cdiv(tiles, f.places), tiles * f.steps
    return f


def mma_sizes(v, bits, m, n, k, unit, places):
    """With wgmma rows of tiles come one after the other; without it each has its share of the multiprocessors, or a
    block has one tile."""
    f = SimpleNamespace(bm=v.BM, bn=64 * v.NG * v.WN, bk=v.WK * 128, resident=v.RESIDENT, copies=v.WM,
                        bits=bits)  # fmt: skip
    f.area, f.units = f.bm * f.bn, f.bn * f.bk // 8192
    tiles, steps, all_blocks, row_tiles = cdiv(n, f.bn), cdiv(k, f.bk), places * v.RESIDENT, cdiv(m, v.BM)
    heights, f.row_tiles = (1, row_tiles) if unit == "wgmma" else (row_tiles, 1)
    blocks, waves = max(all_blocks // heights, 1), cdiv(heights, all_blocks)
    rounds, share = cdiv(tiles, blocks), cdiv(tiles * steps, blocks)
    singles = cdiv(tiles * heights, all_blocks) * steps
    part, is_whole = waves * share, share == steps or rounds * blocks * 16 <= tiles * 17
    is_single = heights > 1 and singles * 17 <= part * 16
    f.turns = singles if is_single else waves * rounds * steps if is_whole else part
    f.parts = 0 if is_single or is_whole else blocks // tiles + 1
    return f


SIZES = {"CLUSTER": cluster_sizes, "STREAM": stream_sizes, "MMA": mma_sizes}


def kind_of(type_name, bits):
    return 3 if type_name[0] == "f" else 2 if bits == 8 else 1 if bits == 3 or bits > 4 else 0


def is_served(v, unit, m, k):
    if v.engine != "MMA":
        return unit == "wgmma" and m > 16 and (v.engine != "STREAM" or k % 64 == 0)
    if unit == "wgmma":  # those for other targets serve few rows alone
        return (m <= 16 if v.BM <= 16 else 16 < m <= 64) and (v.KB == 228 or v.KB == 100 and v.BM <= 16)
    return v.KB < 228 and (v.BM <= 16 or m > 16)


def candidates(variants, point, unit, places, more=False, newer=False):
    """(name, engine, sizes) of the variants that the entry has cases for at these sizes; more: of tiles half of whose
    rows would be none of A, too, which are measured, but not asked for their time; newer: of those, too, that came
    after the point was measured, which have the condition of one that was."""
    type_name, m, n, k, _, times = point
    bits = int(re.search(r"\d+", type_name)[0])
    conditions = {variants[name]["if"] for name in times if name in variants}
    for name in variants:
        if name not in times and not (newer and variants[name]["if"] in conditions):
            continue
        v = row_of(variants, name, bits)
        if not is_served(v, unit, m, k):
            continue
        if v.engine != "MMA" and v.BM >= 128 and m <= 64 and not more:
            continue
        f = SIZES[v.engine](v, bits, m, n, k, unit, places)
        f.kind = kind_of(type_name, bits)
        yield name, v.engine, f


def choose(variants, point, constants, unit, places, newer=False):
    """The variant that the entry takes: of equals the first of the tables. newer: as of candidates."""
    order = {"CLUSTER": 0, "STREAM": 1, "MMA": 2}
    place = {name: index for index, name in enumerate(variants)}
    whole = (lambda a, b: a // b, max, lambda condition, a, b: a if condition else b)
    costs = [(TIMES[engine](f, constants, *whole), order[engine], place[name], name)
             for name, engine, f in candidates(variants, point, unit, places, newer=newer)]  # fmt: skip
    return min(costs)[3]


# ---- fitting ----


class Measured:
    """The points as arrays: for each engine the sizes of all variants of all points, of those that are not far off."""

    def __init__(self, points, variants, unit, places, farthest):
        import numpy as np

        self.np, self.engines, self.count = np, {}, len(points)
        rows = []
        for index, point in enumerate(points):
            best = min(point[5].values())
            for name, engine, f in candidates(variants, point, unit, places, more=True):
                over = point[5][name] / best
                if over <= farthest:
                    rows.append((engine, index, point[5][name], over, f))
        rows.sort(key=lambda row: row[0])
        self.point = np.array([row[1] for row in rows])
        self.time, self.over = np.array([row[2] * 1e6 for row in rows]), np.array([row[3] for row in rows])
        for engine in TIMES:
            of = [row[4] for row in rows if row[0] == engine]
            if not of:
                continue
            columns = {key: np.array([getattr(f, key) for f in of]) for key in vars(of[0])}
            self.engines[engine] = SimpleNamespace(**columns)
        self.weight = np.exp(-2.5 * np.minimum(self.over - 1, 2))  # a variant that is far from the best matters less
        types = [point[0] for point in points]
        self.share = np.array([0.5 / len(points) + 0.5 / len(set(types)) / types.count(name) for name in types])
        self.order = np.argsort(self.point, kind="stable")
        self.starts = np.searchsorted(self.point[self.order], np.arange(self.count))

    def times(self, constants):
        np = self.np
        parts = [TIMES[engine](self.engines[engine], constants, np.true_divide, np.maximum, np.where)
                 for engine in sorted(self.engines)]  # fmt: skip
        return np.concatenate(parts)

    def errors(self, constants):
        return (self.np.log(self.times(constants)) - self.np.log(self.time)) * self.weight

    def regret(self, constants, softness):
        """The mean logarithm of the chosen variant's time over the best one's; soft, so that it has a gradient."""
        np, cost = self.np, self.np.log(self.times(constants))[self.order]
        over, starts = np.log(np.minimum(self.over, 3))[self.order], self.starts
        least = np.repeat(np.minimum.reduceat(cost, starts), np.diff([*starts, len(cost)]))
        chosen = np.exp(-(cost - least) / softness)
        return self.share @ (np.add.reduceat(chosen * over, starts) / np.add.reduceat(chosen, starts))


def fit(measured, attempts, found_before):
    """Least squares first, and from there the sum of the choice's loss and of the errors; from several beginnings, of
    which the one with the best choice at the fitted points is taken; what was found before stays if none is better."""
    import numpy as np
    from scipy.optimize import least_squares, minimize

    def constants(x):
        return dict(zip(CONSTANTS, np.exp(x)))

    def loss(x):
        return measured.regret(constants(x), 0.02) + np.mean(measured.errors(constants(x)) ** 2)

    start, found = np.log([value for value, _ in CONSTANTS.values()]), []
    bounds = [(math.log(10), math.log(3e7))] * len(start)
    spread = np.random.default_rng(1)
    if found_before:
        found.append((measured.regret(found_before, 0.001), -1, np.log([found_before[name] for name in CONSTANTS])))
    for attempt in range(attempts):
        x = start + spread.normal(0, 0.2 if attempt else 0, len(start))
        x = least_squares(lambda x: measured.errors(constants(x)), x, loss="soft_l1", f_scale=0.04).x
        x = minimize(loss, np.clip(x, *np.array(bounds).T), method="L-BFGS-B", bounds=bounds).x
        x = minimize(loss, x, method="Nelder-Mead", options={"maxiter": 1500, "adaptive": True}).x
        found.append((measured.regret(constants(x), 0.001), attempt, x))
    x = min(found)[2]
    return {name: round(value) for name, value in constants(x).items()}


# ---- the table ----


def read_costs(file):
    """{device: (what multiplies tiles, multiprocessors, constants)} of those that were measured."""
    devices = {}
    text = re.sub(r",\n +", ", ", file.read_text()) if file.exists() else ""  # a row may be several lines
    columns = re.search(r"^\.table DEVICES\(WGMMA, TCGEN05, (.*)\)$", text, re.MULTILINE)
    names = columns[1].split(", ") if columns else []
    measured = re.compile(r"^; (\w+): (\d+) multiprocessors\n +\w+: +(\w+, \w+), (.*)", re.MULTILINE)
    units = {flags(unit): unit for unit in CONDITIONS}
    for name, places, unit, row in measured.findall(text):
        devices[name] = (units[unit], int(places), dict(zip(names, map(int, row.split(",")))))
    return devices


def write_costs(file, devices, said):
    lines = ["; The times by which matmul_lowbit chooses, in picoseconds: written by bench/fit.py, not by hand.",
             f"; Command: {said}"]  # fmt: skip
    lines += [f"; {name:15}{what}" for name, (_, what) in CONSTANTS.items()]
    lines += [f".table DEVICES({', '.join(['WGMMA', 'TCGEN05', *CONSTANTS])})"]
    for name, (unit, places, constants) in devices.items():
        lines += [f"; {name}: {places} multiprocessors", f"    {name}: {flags(unit)}, {values(constants)}"]
    lines += ["; Not measured: by figures of an H100, of a B200 and of an A100."]
    lines += [f"    {name}: {flags(unit)}, {values(constants)}" for name, (unit, constants) in UNMEASURED.items()]
    lines += [".endtable"]
    here = {name: f"{CONDITIONS[unit]} && multiprocessors == {places}"
            for name, (unit, places, _) in devices.items()}  # fmt: skip
    lines += [f".let is_{name} = {condition}" for name, condition in here.items()]
    measured = " || ".join(f"is_{name}" for name in here)
    for name, (unit, _) in UNMEASURED.items():
        lines += [f".let is_{name} = {CONDITIONS[unit]}" + (f" && !({measured})" if measured else "")]
    partial = file.with_name(file.name + ".partial")
    wrapped = [textwrap.fill(line, 118, subsequent_indent="        " if line[0] in ". " else "; ",
                             break_long_words=False) for line in lines]  # fmt: skip
    partial.write_text("\n".join(wrapped) + "\n")
    partial.replace(file)


def flags(unit):
    """Of a row, WGMMA and TCGEN05."""
    return ", ".join("true" if unit == other else "false" for other in ("wgmma", "tcgen05"))


def values(constants):
    return ", ".join(str(round(constants[name])) for name in CONSTANTS)


# ---- what is said ----


def report(name, points, variants, constants, device, worst):
    by_type = {}
    for point in points:
        best, taken = min(point[5].values()), choose(variants, point, constants, *device[1:])
        entry = point[5].get(point[4], best) / best
        by_type.setdefault(point[0], []).append((point, taken, point[5][taken] / best, entry))
    for type_name, lines in by_type.items():
        for title, some in (("up to 16 rows", [line for line in lines if line[0][1] <= 16]),
                            ("more", [line for line in lines if line[0][1] > 16])):  # fmt: skip
            if not some:
                continue
            model, entry = (math.exp(sum(math.log(line[i]) for line in some) / len(some)) for i in (2, 3))
            said = f"{name:7} {type_name:8} {title:14} {len(some):4} points"
            print(f"{said}: now {model:.4f}, the entry measured {entry:.4f}")
        for point, variant, over, _ in sorted(lines, key=lambda line: -line[2])[:worst]:
            best = min(point[5], key=point[5].get)
            print(f"        {point[1]:5} rows of {point[2]} x {point[3]}: {variant} {over:.3f} times {best}")


def main():
    parser = argparse.ArgumentParser(description="Fits the times by which matmul_lowbit chooses its variants.")
    parser.add_argument("--fit", nargs="+", metavar="FILE", help="what bench/variants measured")
    parser.add_argument("--unseen", nargs="*", default=[], metavar="FILE", help="points that take no part in the fit")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the device's row into this table")
    parser.add_argument("--name", default="device", help="of the device, in the table (device)")
    parser.add_argument("--device", metavar="ROW", help="without --fit: the row of the table to take")
    parser.add_argument("--attempts", type=int, default=4, metavar="N", help="beginnings of the search (4)")
    parser.add_argument("--programs", type=Path, default=PROGRAMS, metavar="DIR")
    parser.add_argument("--choices", action="store_true", help="print the choice for each point, nothing else")
    parser.add_argument("--worst", type=int, default=0, metavar="N", help="name the N worst choices of each type")
    options = parser.parse_args()
    variants, table = read_tables(options.programs), options.programs / "matmul_lowbit_costs.vasminc"
    unseen, device = read_points(options.unseen)
    if options.fit:
        points, device = read_points(options.fit)
        if device is None:
            parser.error(f"{options.fit[0]} has no line '# device: NAME, target N, N multiprocessors'")
        before = read_costs(options.write).get(options.name) if options.write else None
        known = before[2] if before and before[2].keys() == CONSTANTS.keys() else None  # of these formulas
        constants = fit(Measured(points, variants, *device[1:], 1.6), options.attempts, known)
        for name, value in constants.items():
            print(f"{name:16} {value:9}  {CONSTANTS[name][1]}")
        if options.write:
            devices = read_costs(options.write) | {options.name: (*device[1:], constants)}
            write_costs(options.write, devices, "bench/fit.py " + " ".join(sys.argv[1:]))
        report("fitted", points, variants, constants, device, options.worst)
    elif device is None:
        parser.error("no points, or no line that names the device")
    elif options.device in UNMEASURED:
        constants = {name: round(value) for name, value in UNMEASURED[options.device][1].items()}
    else:
        measured = [row for row in read_costs(table).values() if row[:2] == device[1:]]
        if not measured:
            parser.error(f"{table} has no row of {device[0]}")
        constants = measured[0][2]
    if options.choices:
        for point in unseen:
            print(*point[:4], choose(variants, point, constants, *device[1:], newer=True))
    elif unseen:
        report("unseen", unseen, variants, constants, device, options.worst)


if __name__ == "__main__":
    main()
