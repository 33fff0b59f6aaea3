#!/usr/bin/env python3
"""Fits a model of the time of matmul_lowbit's variants with wgmma to what bench/variants measured, and says how good the
choice by that model is: the time of the variant that it takes over the time of the best one, as a geometric mean.

    bench/fit.py --fit FILE... [--unseen FILE...] [--programs DIR]

The files are bench/variants' output; `--unseen` are points that take no part in the fit. The model is one formula of a
tile's size and a few constants of the device; a width of the weights has one constant, the time of converting them. For
a tile of BM rows and BN columns, in units of 128 (areas of 128 x 128), a step being 128 rows of W:

    time  = launch + waves * (wave + wave_area * area) + exchange * (1 + exchange_blocks * (BLOCKS - 1))
            + steps of a block * step + steps of all tiles * bytes of a step / multiprocessors * shared
    step  = smooth maximum of  compute = step_start + tensor * area + convert[width] * BN
                          and  load = load_start + load_rows * (BM + fill * rows that are not there) + load_columns * BN

Tiles cut into parts by stream-k (rows128, pairs256) have a launch, a tensor and a cut of their own. Needs numpy and
scipy."""

import argparse
import re
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares, minimize

#: Clusters of so many blocks that an H200 runs at a time (cuOccupancyMaxActiveClusters).
AT_ONCE = {1: 132, 2: 66, 3: 39, 4: 30, 6: 17, 8: 15}
MULTIPROCESSORS = 132
#: The constants and where the search for them begins: microseconds.
CONSTANTS = {
    "launch": 1, "exchange": 1.5, "exchange_blocks": 0.15, "wave": 1, "wave_area": 0.5, "step_start": 0.05,
    "tensor": 0.35, "load_start": 0.05, "load_rows": 0.1, "load_columns": 0.1, "fill": 1, "shared": 0.1,
    "stream_launch": 3, "stream_tensor": 0.4, "stream_cut": 2,
}  # fmt: skip
TABLES = {"CLUSTER_VARIANTS": "matmul_lowbit_clusters.vasminc", "ROW_VARIANTS": "matmul_lowbit_rows.vasminc"}


def cdiv(a, b):
    return -(-a // b)


class Variant:
    """A row of one of the program's tables: a tile, and how blocks share it."""

    def __init__(self, table, fields):
        stays = fields[-1] != "false"  # blocks that stay for all waves, where the weights' width allows it
        if table == "CLUSTER_VARIANTS":
            self.rows, self.columns, self.blocks = int(fields[0]), int(fields[1]), int(fields[3])
            self.kind = "stays" if stays else "grid"
        else:
            self.rows = int(fields[0])
            self.blocks = int(fields[2])
            self.columns = 2 * int(fields[1])  # of a block
            self.kind = "stream"

    def work(self, m, n, k):
        """Waves, steps of the busiest block, steps of all tiles, and whether a tile is cut into parts."""
        steps = cdiv(k, 128)
        if self.kind == "stream":
            tiles, most = cdiv(m, self.rows) * cdiv(n, self.columns * self.blocks), MULTIPROCESSORS // self.blocks
            rounds = cdiv(tiles, most)
            idle = rounds * most - tiles
            if idle * 16 <= tiles or idle * steps * 14 <= most * 90:  # as the kernels' own grids say
                return rounds, rounds * steps, tiles * steps * self.blocks, False
            return 1, tiles * steps / most, tiles * steps * self.blocks, True
        tiles = cdiv(m, self.rows) * cdiv(n, self.columns)
        if self.kind == "grid" or self.blocks == 1:
            waves = cdiv(tiles, AT_ONCE[self.blocks])
            return waves, waves * cdiv(steps, self.blocks), tiles * steps, False
        grid = max(min(MULTIPROCESSORS // self.blocks, tiles), 1) * self.blocks
        even, left = divmod(tiles, grid)
        last = 0 if left == 0 else cdiv(steps, self.blocks) if left * self.blocks <= grid else steps
        return even + (left > 0), even * steps + last, tiles * steps, False


def read_variants(programs):
    variants = {}
    for table, file in TABLES.items():
        text = (programs / file).read_text()
        body = re.search(rf"\.table {table}\(.*?\n(.*?)\.endtable", text, re.DOTALL)[1]
        for name, fields in re.findall(r"^ *(\w+): *(.*?) +if ", body, re.MULTILINE):
            variants[name] = Variant(table, fields.replace(" ", "").split(","))
    return variants


def read_points(files, variants):
    """(type, m, n, k, what the entry took, {variant: microseconds}) of each line with more than 16 rows."""
    for file in files:
        for line in Path(file).read_text().splitlines():
            type_name, m, n, k, *rest = line.split()
            times = {}
            entry = None
            for name, value in (word.replace("matmul_lowbit_", "").split(":") for word in rest):
                if name == "entry":
                    entry = value
                else:
                    times[name.rstrip("~")] = float(value)
            if int(m) > 16 and variants.keys() & times.keys():
                yield type_name, int(m), int(n), int(k), entry, times


class Measured:
    """The points as columns, a row for each variant of each point."""

    def __init__(self, points, variants, widths):
        rows, self.points, self.names = [], points, []
        for index, (type_name, m, n, k, entry, times) in enumerate(points):
            best = min(times.values())
            for name in times.keys() & variants.keys():
                v = variants[name]
                waves, block_steps, all_steps, is_cut = v.work(m, n, k)
                missing = min(cdiv(m, v.rows) * v.rows - m, v.rows)
                rows.append([index, times[name], times[name] / best, v.rows / 128, v.columns / 128, v.blocks,
                             v.kind == "stream", waves, block_steps, all_steps / MULTIPROCESSORS, is_cut, missing / 128,
                             widths.index(type_name), int(re.search(r"\d+", type_name)[0])])  # fmt: skip
                self.names.append(name)
        (self.point, self.time, self.over, self.rows, self.columns, self.blocks, self.stream, self.waves,
         self.block_steps, self.all_steps, self.cut, self.missing, self.width, self.bits) = np.array(rows, float).T  # fmt: skip
        self.point = self.point.astype(int)
        self.width = self.width.astype(int)
        self.weight = np.exp(-2.5 * np.minimum(self.over - 1, 2))  # a variant that is far from the best matters less

    def model(self, constants):
        c = dict(zip(CONSTANTS, constants))
        convert = constants[len(CONSTANTS) :][self.width]
        stream, area = self.stream > 0, self.rows * self.columns
        compute = c["step_start"] + np.where(stream, c["stream_tensor"], c["tensor"]) * area
        compute = compute + np.where(stream, 0, convert * self.columns)
        load = c["load_start"] + c["load_rows"] * (self.rows + c["fill"] * self.missing)
        load = load + c["load_columns"] * self.columns * self.bits / 4
        step = (compute**6 + load**6) ** (1 / 6)
        exchange = c["exchange"] * (1 + c["exchange_blocks"] * (self.blocks - 1)) * ((self.blocks > 1) & ~stream)
        launch = c["launch"] + np.where(stream, c["stream_launch"], 0) + self.cut * c["stream_cut"] * area * self.blocks
        wave = c["wave"] + c["wave_area"] * area
        shared = c["shared"] * self.all_steps * (self.rows * 2 + self.columns * self.bits / 4)
        return launch + exchange + self.waves * wave + self.block_steps * step + shared

    def regret(self, constants, softness):
        """The mean logarithm of the chosen variant's time over the best one's; soft, so that it has a gradient."""
        cost = np.log(self.model(constants))
        least = np.full(self.point.max() + 1, np.inf)
        np.minimum.at(least, self.point, cost)
        chosen = np.exp(-(cost - least[self.point]) / softness)
        total = np.bincount(self.point, chosen)
        return np.mean(np.bincount(self.point, chosen * np.log(np.minimum(self.over, 3))) / total)

    def choice(self, constants):
        """For each point: the variant with the least cost, its time over the best one's, and the entry's."""
        cost = self.model(constants)
        for index, (type_name, m, n, k, entry, times) in enumerate(self.points):
            at = np.flatnonzero(self.point == index)
            taken = at[np.argmin(cost[at])]
            best = min(times.values())
            yield type_name, m, n, k, self.names[taken], times[self.names[taken]] / best, times[entry] / best


def fit(measured, widths):
    start = np.log(list(CONSTANTS.values()) + [0.15] * len(widths))

    def errors(logarithms):
        return (np.log(measured.model(np.exp(logarithms))) - np.log(measured.time)) * measured.weight

    def loss(logarithms):
        return measured.regret(np.exp(logarithms), 0.03) + 0.5 * np.mean(errors(logarithms) ** 2)

    found = least_squares(errors, start, loss="soft_l1", f_scale=0.04).x
    for _ in range(2):
        found = minimize(loss, np.clip(found, -7, 4), method="L-BFGS-B", bounds=[(-7, 5)] * len(start)).x
        found = minimize(loss, found, method="Nelder-Mead", options={"maxiter": 2000, "adaptive": True}).x
    return np.exp(found)


def report(name, measured, constants, worst):
    by_type = {}
    for line in measured.choice(constants):
        by_type.setdefault(line[0], []).append(line)
    for type_name, lines in by_type.items():
        model, entry = (np.exp(np.mean(np.log([line[i] for line in lines]))) for i in (5, 6))
        print(f"{name:7} {type_name:8} {len(lines):4} points: model over best {model:.4f}, entry over best {entry:.4f}")
        for _, m, n, k, variant, over, _ in sorted(lines, key=lambda line: -line[5])[:worst]:
            print(f"        {m:5} rows of {n} x {k}: {variant} {over:.3f}")


def main():
    parser = argparse.ArgumentParser(description="Fits the model of the time of matmul_lowbit's variants.")
    parser.add_argument("--fit", nargs="+", required=True, metavar="FILE", help="what bench/variants measured")
    parser.add_argument("--unseen", nargs="*", default=[], metavar="FILE", help="points that take no part in the fit")
    parser.add_argument("--programs", type=Path, default=Path(__file__).resolve().parent.parent / "programs")
    parser.add_argument("--worst", type=int, default=0, metavar="N", help="name the N worst choices of each type")
    options = parser.parse_args()
    variants = read_variants(options.programs)
    points = list(read_points(options.fit, variants))
    widths = sorted({point[0] for point in points})
    measured = Measured(points, variants, widths)
    constants = fit(measured, widths)
    for name, value in zip([*CONSTANTS, *(f"convert {width}" for width in widths)], constants):
        print(f"{name:16} {value:8.4f}")
    report("fitted", measured, constants, options.worst)
    if options.unseen:
        unseen = [point for point in read_points(options.unseen, variants) if point[0] in widths]
        report("unseen", Measured(unseen, variants, widths), constants, options.worst)


if __name__ == "__main__":
    main()
