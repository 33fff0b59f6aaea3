#!/usr/bin/env python3
"""A table of decode steps of language models: ours, with the products of humming, Marlin and cuBLAS, and torch.compile.

    llm_table.py --rows rows.json --measure [--gpus 4] [--seconds 280] [--marlin ./libmarlin.so] [--scaled 6] ...
    llm_table.py --rows rows.json >llm_h100.txt

--measure runs bench/llm_peers.py, a process a GPU for a share of the cases, and bench/llm.py --transformers, a process
for each shape and batch; they are made side by side, and those of a GPU then measured one at a time. Rows are written
as they come, so that a run that was cut off leaves a part of the table; a second run with --append adds to them, and of
points that were measured again the least counts. What the processes say besides is in the file of the rows with .log
behind it. Without --measure the rows are drawn, each time with what bench/llm_predict.py predicted of it."""
import argparse
import json
import math
import os
import pathlib
import queue
import subprocess
import sys
import threading
import time

from llm_predict import predicted_us
from llm_shapes import SHAPES

HERE = pathlib.Path(__file__).resolve().parent
LINES = {"tilusvm": "ours", "plain": "ours, plain", "marlin": "Marlin", "vllm": "vLLM's Marlin"}
F16 = {"cublas": "cuBLAS, f16", "torch.compile": "torch.compile, f16"}  # without a width of their own

HEAD = """\
# Steps of language models, us, on one {device}:
# {prompt} tokens of context, random weights in groups of 128, keys and values of 16 bits, a step replayed from a CUDA
# graph.{scaled}
# ours: bench/llm.py's Decoder; the others are the same Decoder with their products, norms, sums, activation and append
# in launches of their own, as in `ours, plain`; torch.compile: transformers' own model. Each column: measured, in
# brackets what bench/llm_predict.py predicted, and ours of that line's width (of f16: u4) as a part of the line. A
# dash: not measured. Made by bench/llm_table.py.
"""
SCALED = "\n# Steps of {} and of {} layers were measured, the head in both; a model is on the line through the two."


class Child:
    """A process that measures on one GPU when it is told to."""

    def __init__(self, gpu, words, run):
        self.words, self.ready, self.run = words, threading.Event(), run
        environment = dict(os.environ, CUDA_VISIBLE_DEVICES=str(gpu), TORCHINDUCTOR_COMPILE_THREADS="4")
        self.process = subprocess.Popen(
            [sys.executable, *words, "--wait"], env=environment, text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        self.readers = [threading.Thread(target=self.read), threading.Thread(target=self.log)]
        for reader in self.readers:
            reader.start()

    def read(self):
        for line in self.process.stdout:
            if line.strip() == "ready":
                self.ready.set()
            else:
                self.run.rows.put(line)
        self.ready.set()

    def log(self):
        for line in self.process.stderr:
            self.run.say(line.rstrip())

    def measure(self, until):
        """Its turn, to its end or until so late."""
        begin = time.monotonic()
        try:
            self.process.stdin.write("\n")
            self.process.stdin.flush()
            self.process.wait(max(until - time.monotonic(), 0.1))
        except (BrokenPipeError, subprocess.TimeoutExpired) as error:
            self.run.say(f"{' '.join(self.words)}: {error!r}")
        self.process.kill()
        for reader in self.readers:
            reader.join()
        self.run.say(f"{' '.join(self.words[1:])}: measured in {time.monotonic() - begin:.1f} s")


class Run:
    def __init__(self, options):
        self.options, self.begin, self.rows = options, time.monotonic(), queue.Queue()
        self.until = self.begin + options.seconds
        self.out = open(options.rows, "a" if options.append else "w")
        self.logs = open(options.rows + ".log", "a" if options.append else "w")

    def say(self, line):
        print(f"{time.monotonic() - self.begin:6.1f} {line}", file=self.logs, flush=True)

    def commands(self, gpu):
        """What runs on a GPU: side by side until it measures, the transformers' first, as they are short; and behind
        all of that, whole models, which take much memory."""
        o = self.options
        cases = [f"{shape}:{type}" for type in o.types for shape in o.shapes]
        steps = [f"{shape}:{batch}" for batch in reversed(o.batches) for shape in o.shapes]  # the largest apart
        steps = steps if o.compiled is None else o.compiled
        scaled, peers = ["--scaled", str(o.scaled)], ["llm_peers.py", "--turns", str(o.turns)]
        peers += ["--batches", ",".join(map(str, o.batches))]
        peers += [word for library in o.marlin for word in ("--marlin", library)]
        made = [
            ["llm.py", "--transformers", "--types", "", "--shapes", shape, "--batches", batch, *scaled]
            for shape, batch in (step.split(":") for step in steps[gpu :: o.gpus])
        ]
        made += [[*peers, "--cases", ",".join(of), *scaled] for of in [cases[gpu :: o.gpus]] if of]
        late = [[*peers, "--cases", ",".join(of)] for of in [o.whole[gpu :: o.gpus]] if of]
        return tuple(
            [[str(HERE / script), *rest, "--prompt", str(o.prompt)] for script, *rest in of] for of in (made, late)
        )

    def turns(self, gpu):
        """Those of one GPU, one after the other when all are ready, or when so much time is over."""
        made, late = self.commands(gpu)
        children = [Child(gpu, words, self) for words in made]
        for child in children:
            child.ready.wait(max(self.begin + self.options.make - time.monotonic(), 0))
        self.say(f"GPU {gpu}: {sum(child.ready.is_set() for child in children)} of {len(children)} are ready")
        for child in children:
            last = child is children[-1]
            child.measure(self.until if last else min(self.until, time.monotonic() + 30))
        for words in late:
            if time.monotonic() < self.until:
                Child(gpu, words, self).measure(self.until)

    def write(self):
        while (line := self.rows.get()) is not None:
            print(line, end="", file=self.out, flush=True)

    def measure(self):
        writer = threading.Thread(target=self.write)
        writer.start()
        threads = [threading.Thread(target=self.turns, args=(gpu,)) for gpu in range(self.options.gpus)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.rows.put(None)
        writer.join()


ALL = ", all layers"  # behind the shape of what was not scaled, where other rows are


class Table:
    """The least us of each point, (shape, type, linear, batch); f16 has None for a type."""

    def __init__(self, rows):
        self.us, self.rows = {}, rows
        self.scaled = {tuple(row["scaled_from"]) for row in rows if "scaled_from" in row}
        for row in rows:
            linear = row.get("linear", "torch.compile")
            shape = row["shape"] + (ALL if self.scaled and "scaled_from" not in row else "")
            point = shape, None if linear in F16 else row["type"], linear, row["batch"]
            self.us[point] = min(row["decode_us"], self.us.get(point, math.inf))
        self.batches = sorted({point[3] for point in self.us})

    def predicted(self, point):
        shape, type, linear, batch = point
        return predicted_us(shape.removesuffix(ALL), type, linear, batch)

    def ours(self, point):
        """Of the same width, f16 beside u4; None for ours itself."""
        shape, type, linear, batch = point
        return None if linear == "tilusvm" else self.us.get((shape, type or "u4", "tilusvm", batch))

    def cell(self, point):
        us = self.us.get(point)
        if us is None:
            return f"{'-':>22}"
        predicted, ours = self.predicted(point), self.ours(point)
        part = f"{ours / us:.2f}" if ours else ""
        return f"{us:8.0f} {f'({predicted:.0f})' if predicted else '':>8} {part:>4}"

    def lines(self):
        there = {point[0] for point in self.us}
        for shape in (name for ending in ("", ALL) for name in (shape + ending for shape in SHAPES) if name in there):
            yield f"{shape:20}" + "".join(f"{f'batch {batch}':>22}" for batch in self.batches)
            kinds = dict.fromkeys((point[1], point[2]) for point in self.us if point[0] == shape)
            for type, linear in sorted(kinds, key=lambda kind: (kind[0] is None, kind[0] or "")):
                name = F16[linear] if type is None else f"{type} {LINES.get(linear, linear)}"
                yield f"  {name:18}" + "".join(self.cell((shape, type, linear, b)) for b in self.batches)

    def summary(self):
        """Ours beside each other way, and what was measured beside what was predicted."""
        for linear in dict.fromkeys(point[2] for point in self.us):
            points = [point for point in self.us if point[2] == linear]
            name = LINES.get(linear, F16.get(linear, linear))
            parts = [self.ours(point) / self.us[point] for point in points if self.ours(point)]
            if parts:
                yield f"ours / {name}: {len(parts)} points, {spread_of(parts)}, {sum(p < 1 for p in parts)} below 1"
            ratios = [self.us[point] / self.predicted(point) for point in points if self.predicted(point)]
            if ratios:
                yield f"{name}, measured / predicted: {len(ratios)} points, {spread_of(ratios)}"

    def text(self):
        devices = sorted({row["device"] for row in self.rows})
        scaled = "".join(SCALED.format(*of) for of in sorted(self.scaled))
        head = HEAD.format(device=" or ".join(devices), prompt=self.rows[0].get("prompt"), scaled=scaled)
        return head + "\n".join(line.rstrip() for line in [*self.lines(), "", *self.summary()])


def spread_of(numbers):
    mean = math.exp(sum(map(math.log, numbers)) / len(numbers))
    return f"{mean:.2f} (geometric mean), {min(numbers):.2f} to {max(numbers):.2f}"


def words_of(text):
    return [word for word in text.split(",") if word]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", required=True, help="file of rows, a JSON object a line")
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--append", action="store_true", help="to the rows that are there")
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1e9, help="end what still runs after so many")
    parser.add_argument("--make", type=float, default=120, help="seconds, then no process is waited for")
    parser.add_argument("--shapes", type=words_of, default=words_of("llama-8b,qwen-32b,gemma-9b,llama-70b,qwen3-8b"))
    parser.add_argument("--types", type=words_of, default=words_of("u4,u8,u3"), help="in the order of measuring")
    parser.add_argument("--batches", type=lambda text: [int(word) for word in text.split(",")], default=[1, 4, 16, 64])
    parser.add_argument("--prompt", type=int, default=2048)
    parser.add_argument("--scaled", type=int, default=6, help="of the steps, which bench/llm.py tells of")
    parser.add_argument("--whole", type=words_of, default=[], help="SHAPE:TYPE,... to measure with all layers, too")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--compiled", type=words_of, help="SHAPE:BATCH,... of torch.compile; all without")
    parser.add_argument("--marlin", action="append", default=[], help="as bench/lowbit_peers.py takes it")
    options = parser.parse_args()
    if options.measure:
        Run(options).measure()
    else:
        with open(options.rows) as file:
            print(Table([json.loads(line) for line in file]).text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
