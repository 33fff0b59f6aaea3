#!/usr/bin/env python3
"""What ptxas makes of the programs that ship, for every target: kernels, engine, registers, spills, shared memory.

    bench/targets.py [--build build] [--log FILE] >bench/targets_table.txt
    bench/targets.py --quick                       a few programs and targets; exit status 1 where anything spills
    bench/targets.py --list                        the programs with their constants, and nothing else

Needs tvm-as and tvm-cc in the build folder and a ptxas; ptxas is called rather than nvJitLink (TVM_NVJITLINK=none),
so that the figures are of a version that the table names. `--log` keeps each result as a line of JSON: a run that is
cut off goes on where it ended. A row of the table is a program with its constants, and the targets that have as many
of its kernels and the same engine, the best of a kernel's: registers of a thread, spills of one, in bytes, and KiB of
shared memory of a block are the greatest among them. What a row says of kernels: those that the target has, of those of
the program; the others are for other targets, or need more shared memory than a block of the target may have."""

import argparse
import collections
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
#: Of each architecture the target that its GPUs take.
TARGETS = ("sm_80", "sm_86", "sm_87", "sm_89", "sm_90a", "sm_100a", "sm_103a", "sm_110a", "sm_120a", "sm_121a")
#: The constants with which programs ship: the defaults, and those with which Python's operators and layers and the
#: readers of checkpoints assemble them.
PROGRAMS = {
    "accept": ["", "CHANCES=true"],
    "all_reduce": ["RANKS=2", "RANKS=8 T=bf16"],
    "argmax": ["", "T=f32"],
    "attention": [
        "",
        "T=bf16 PAGE=16 CAP=true ALIBI=true",
        "T=f8_e4m3",
        "T=bf16 SINKS=true",
        "T=bf16 BLOCK=128",
        "BLOCK=64",
    ],
    "attention_backward": ["", "T=bf16 CAP=true ALIBI=true"],
    "attention_decode": [
        "EARLY=true",
        "ATYPE=f16 LSE=true SOFT_CAP=true",
        "D=64 LSE=true SINKS=true EARLY=true",
        "KTYPE=u4 VTYPE=u4 KZEROS=true VZEROS=true",
        "KTYPE=f8_e4m3 VTYPE=f8_e4m3",
        "KTYPE=u8 VTYPE=u4 D=256",
        "KTYPE=u4 VTYPE=u4 KGROUP=32 VGROUP=32",
    ],
    "attention_merge": ["", "SINKS=true"],
    "bucket": ["", "BUCKETS=512"],
    "causal_conv": ["", "T=bf16 BIAS=true"],
    "column_sums": ["", "T=bf16"],
    "combine": ["", "T=bf16 BASE=true"],
    "cross_entropy": ["", "T=f32"],
    "cumsum": ["", "T=f32"],
    "dequantize_lowbit": ["", "WTYPE=f6_e3m2 ATYPE=bf16 GROUP=32"],
    "embedding": ["", "T=f32", "T=bf16 EACH=true"],
    "embedding_backward": ["", "T=f32"],
    "gated_delta": ["", "T=bf16 NORM=true"],
    "histogram": ["", "T=u8"],
    "index_scores": ["", "T=f8_e4m3"],
    "kv_append": ["ROPE=true", "QKV=true KTYPE=u4 VTYPE=u4 EARLY=true"],
    "layer_norm": ["", "T=bf16", "T=bf16 OTYPE=f8_e4m3 GROUP=128"],
    "layer_norm_backward": ["", "T=f32"],
    "matmul": [
        "",
        "T=bf16 BIAS=true RESIDUAL=true ACT=gelu",
        "T=f8_e4m3 SCALES=true",
        "T=f8_e5m2 TB=f8_e4m3 OTYPE=f32",
        "T=i8 BIAS=true",
        "T=f32",
    ],
    "matmul_u4": ["", "ATYPE=bf16 GROUP=32 ZEROS=true"],
    "matmul_f6_e3m2": [""],
    "matmul_lowbit_u4": [
        "",
        "ATYPE=bf16 GROUP=64 ZEROS=true BIAS=true EARLY=true",
        "EXPERTS=true",
        "GROUP=16 OTYPE=f32",
        "POSTNORM=true",
    ],
    "matmul_lowbit_u3": [""],
    "matmul_lowbit_u8": [""],
    "matmul_lowbit_f4_e2m1": ["ATYPE=bf16 GROUP=32", "GROUP=16 STYPE=f8_e4m3 FACTOR=true"],
    "matmul_lowbit_f6_e3m2": [""],
    "matmul_lowbit_f8_e4m3": ["GROUP=0"],
    "matmul_lowbit_a8": [
        "",
        "ATYPE=f8_e4m3 GROUP=0",
        "ATYPE=f8_e4m3 ZEROS=true GROUP=32",
        "WTYPE=f4_e2m1 ATYPE=f8_e4m3 STYPE=e8m0 GROUP=32",
        "LEVELS=true ZEROS=true",
        "EXPERTS=true",
    ],
    "matmul_scaled": [
        "",
        "BY_GROUP=true",
        "GROUP=0 BIAS=true",
        "GROUP=32",
        "T=i8",
        "TB=f4_e2m1",
        "TB=f6_e3m2 GROUP=32",
        "T=f4_e2m1 GROUP=32",
        "T=f4_e2m1 GROUP=16 ALPHA=true",
        "EXPERTS=true",
    ],
    "matmul_simple": ["", "T=bf16"],
    "matmul_ternary": [""],
    "mla_append": ["NORM=true TURNS=true", "LTYPE=u4 TURNS=true"],
    "mla_decode": ["", "SPARSE=true", "LTYPE=f8_e4m3", "LTYPE=f8_e4m3 SPARSE=true", "LTYPE=i8", "LTYPE=u4"],
    "probabilities": ["", "T=f32 TOPK=64"],
    "qkv_lowbit": ["", "KTYPE=u4 VTYPE=u4", "HEADS_NORM=true"],
    "quantize_rows": [
        "",
        "OTYPE=f8_e4m3 GROUP=128",
        "OTYPE=f8_e4m3 GROUP=32 STYPE=e8m0",
        "OTYPE=f4_e2m1 GROUP=16 STYPE=f8_e4m3 TWO_SCALES=true",
    ],
    "reduce": ["", "T=f32 OP=max"],
    "rms_norm": [
        "",
        "T=bf16 OTYPE=f8_e4m3 GROUP=128",
        "T=bf16 OTYPE=f4_e2m1 GROUP=16 STYPE=f8_e4m3 TWO_SCALES=true",
        "GATE=after",
    ],
    "rms_norm_backward": ["", "T=f32"],
    "rope": ["", "T=bf16 STYLE=interleaved"],
    "route": ["", "EXPERTS=256 SCORE=sigmoid BIAS=true RENORMALIZE=true GROUPS=8 TOP_GROUPS=4", "EXPERTS=512 TOP=16"],
    "sample": ["", "T=f32 TOPK=64"],
    "scatter_add": ["", "T=bf16"],
    "softmax": ["", "T=f32"],
    "state_space": ["", "T=bf16 SKIP=true BIAS=true GATE=true"],
    "swiglu": ["", "T=bf16 ACT=gelu_tanh"],
    "swiglu_backward": ["", "T=f32"],
    "topk": ["", "T=f32"],
    "topk_set": [""],
    "transpose": ["", "T=f32"],
    "vector_add": [""],
    "widen_lowbit": [""],
}
#: A few seconds of ptxas: one of each engine and the greatest shared memory, on targets that others do not stand for.
QUICK = [
    ("matmul", "T=f8_e4m3 SCALES=true", ("sm_86", "sm_89", "sm_103a")),
    ("matmul_scaled", "GROUP=32", ("sm_121a",)),
    ("index_scores", "T=f8_e4m3", ("sm_80", "sm_87")),
    ("attention_decode", "D=256", ("sm_89",)),
    ("mla_decode", "LTYPE=f8_e4m3", ("sm_87",)),
]
#: Engines of a kernel, the first whose pattern one of the candidates that its report says were selected has.
ENGINES = (
    ("tcgen05", r"tcgen05\.mma"),
    ("wgmma", r"wgmma"),
    ("mma scaled", r"mma\.sync\S*(block_scale|mxf|nvf)"),
    ("mma f8", r"mma\.sync\S*(e4m3|e5m2|f8f6f4)"),
    ("mma i8", r"mma\.sync\S*[.][su]8"),
    ("mma", r"mma\.sync"),
)

Result = collections.namedtuple("Result", "kernels total engine registers spills spilling shared left_out")


def engine_of(lines):
    rows = [re.split(r" {2,}", line.strip()) for line in lines]
    candidates = [row[2] for row in rows if len(row) > 3]
    return next((name for name, pattern in ENGINES if any(re.search(pattern, text) for text in candidates)), "none")


def read_report(text):
    """A Result of what tvm-cc --emit report prints."""
    blocks, left_out, total = [], [], 0
    for line in text.splitlines():
        if match := re.match(r"kernel (\S+) is not for \S+: (.*)", line):
            total += 1
            if "shared memory" in match[2]:
                left_out.append(match[1])
        elif match := re.match(r"kernel (\S+) for \S+: \d+ threads, (\d+) bytes", line):
            total += 1
            blocks.append((match[1], int(match[2]), []))
        elif blocks:
            blocks[-1][2].append(line)
    engines = {engine_of(lines) for _, _, lines in blocks}
    registers, spills, spilling = 0, 0, []
    for name, _, lines in blocks:
        row = re.search(r"(\d+) registers, \d+ bytes of stack, (\d+) .* stores, (\d+) ", "\n".join(lines))
        if not row:
            raise ValueError(f"the registers of kernel {name} are not known")
        registers = max(registers, int(row[1]))
        if bytes_spilled := max(int(row[2]), int(row[3])):
            spilling.append(f"{name} {bytes_spilled}")
        spills = max(spills, bytes_spilled)
    engine = next((name for name, _ in ENGINES if name in engines), "-")
    shared = max((size for _, size, _ in blocks), default=0)
    return Result(len(blocks), total, engine, registers, spills, spilling, shared, left_out)


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "TVM_NVJITLINK": "none"})
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}: {done.stderr.strip() or done.returncode}")
    return done.stdout


class Maker:
    """Assembles each program once, and compiles it for a target."""

    def __init__(self, build, folder):
        self.build, self.folder = Path(build).resolve(), Path(folder)
        self.locks = collections.defaultdict(threading.Lock)

    def source(self, program):
        made = self.build / "programs" / f"{program}.vasm"
        return made if made.exists() else TOP / "programs" / f"{program}.vasm"

    def assemble(self, program, defines):
        out = self.folder / (re.sub(r"\W", "_", f"{program} {defines}") + ".vbc")
        words = [part for define in defines.split() for part in ("-D", define)]
        with self.locks[out]:
            if not out.exists():
                run([self.build / "tvm-as", "-I", TOP / "programs", *words, "-o", out, self.source(program)])
        return out

    def compile(self, job):
        program, defines, target = job
        report = run([self.build / "tvm-cc", "-t", target, "--emit", "report", self.assemble(program, defines)])
        return read_report(report)


class Progress:
    """A bar on a terminal's standard error, from the third second on."""

    def __init__(self, total):
        self.total, self.done, self.began = total, 0, time.monotonic()

    def step(self, what):
        self.done += 1
        passed = time.monotonic() - self.began
        if not sys.stderr.isatty() or passed < 2:
            return
        filled = 30 * self.done // self.total
        left = passed / self.done * (self.total - self.done)
        bar = "#" * filled + "." * (30 - filled)
        line = f"\r\033[K[{bar}] {self.done}/{self.total}, {left:.0f} s left: {what}"
        print(line, end="", file=sys.stderr, flush=True)

    def end(self):
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr)


def read_log(path):
    if not path or not path.exists():
        return {}
    rows = (json.loads(line) for line in path.read_text().splitlines())
    return {tuple(row["job"]): Result(*row["result"]) for row in rows}


def measure(jobs, build, workers, log):
    """A Result, or the text of an error, of each job: (program, constants, target)."""
    results = {job: result for job, result in read_log(log).items() if job in set(jobs)}
    missing = [job for job in jobs if job not in results]
    progress = Progress(len(missing))
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(workers) as pool:
        maker = Maker(build, folder)
        futures = {pool.submit(maker.compile, job): job for job in missing}
        for future in concurrent.futures.as_completed(futures):
            job = futures[future]
            try:
                results[job] = future.result()
            except RuntimeError as error:
                results[job] = str(error).splitlines()[0]
            else:
                if log:
                    with log.open("a") as file:
                        file.write(json.dumps({"job": job, "result": results[job]}) + "\n")
            progress.step(" ".join(job))
    progress.end()
    return {job: results[job] for job in jobs}


def write_row(name, targets, found):
    numbers = "all" if set(targets) == set(TARGETS) else " ".join(target.removeprefix("sm_") for target in targets)
    if isinstance(found[0], str):
        return f"{name:44} {numbers:36} {found[0]}"
    first = found[0]
    kernels, registers = f"{first.kernels}/{first.total}", max(result.registers for result in found)
    spills, shared = max(result.spills for result in found), max(result.shared for result in found)
    return f"{name:44} {numbers:36} {kernels:>7} {first.engine:10} {registers:4} {spills:6} {shared / 1024:6.1f}"


def write_table(results):
    """The rows of programs, then the kernels that spill, then a row a target."""
    print(f"{'program, constants':44} {'targets':36} {'kernels':>7} {'engine':10} {'regs':>4} {'spills':>6} {'KiB':>6}")
    for program, defines in dict.fromkeys(job[:2] for job in results):
        alike = collections.defaultdict(list)
        for job, result in results.items():
            if job[:2] == (program, defines):
                key = result if isinstance(result, str) else (result.kernels, result.engine)
                alike[key].append((job[2], result))
        name = f"{program} {defines}".strip()
        if len(name) > 44:
            print(name)
            name = ""
        for rows in alike.values():
            print(write_row(name, [target for target, _ in rows], [result for _, result in rows]))
            name = ""
    write_spills(results)
    write_targets(results)


def write_spills(results):
    print("\nKernels that spill, and the bytes of a thread that are stored or loaded, whichever are more:")
    none = True
    for job, result in results.items():
        if not isinstance(result, str) and result.spilling:
            none = False
            print(f"  {' '.join(part for part in job if part)}: {', '.join(result.spilling)}")
    if none:
        print("  none")


def write_targets(results):
    print(f"\n{'target':8} {'programs':>8} {'kernels':>8} {'regs':>5} {'KiB':>6} {'too big':>7}  programs by engine")
    for target in dict.fromkeys(job[2] for job in results):
        found = [result for job, result in results.items() if job[2] == target and not isinstance(result, str)]
        if not found:
            continue
        engines = collections.Counter(result.engine for result in found)
        print(
            f"{target:8} {len(found):8} {sum(result.kernels for result in found):8}"
            f" {max(result.registers for result in found):5} {max(result.shared for result in found) / 1024:6.1f}"
            f" {sum(len(result.left_out) for result in found):7}  "
            + ", ".join(f"{name} {engines[name]}" for name in [*(name for name, _ in ENGINES), "-"] if engines[name])
        )


def ptxas_version():
    text = run([os.environ.get("TVM_PTXAS") or "ptxas", "--version"])
    return re.search(r"V\d\S*", text)[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build", help="folder with tvm-as and tvm-cc (build)")
    parser.add_argument("--targets", help="sm_80,...")
    parser.add_argument("--programs", help="some programs: matmul,attention,...")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="ptxas at a time (one a processor)")
    parser.add_argument("--log", type=Path, help="keeps each result, and takes those that are there")
    parser.add_argument("--quick", action="store_true", help="a few programs, and exit status 1 where one spills")
    parser.add_argument("--list", action="store_true", help="prints the programs with their constants")
    given = parser.parse_args()
    targets = given.targets.split(",") if given.targets else TARGETS
    chosen = given.programs.split(",") if given.programs else PROGRAMS
    jobs = [(program, defines, target) for program in chosen for defines in PROGRAMS[program] for target in targets]
    if given.quick:
        jobs = [(program, defines, target) for program, defines, some in QUICK for target in some]
    if given.list:
        print(*dict.fromkeys(f"{program} {defines}".strip() for program, defines, _ in jobs), sep="\n")
        return 0
    results = measure(jobs, given.build, given.jobs, given.log)
    print(f"{time.strftime('%Y-%m-%d')}, ptxas {ptxas_version()}\n")
    write_table(results)
    failed = [result for result in results.values() if isinstance(result, str)]
    return 1 if failed or (given.quick and any(result.spills for result in results.values())) else 0


if __name__ == "__main__":
    sys.exit(main())
