#!/usr/bin/env python3
"""A step of a language model with its linear layers by humming, Marlin or cuBLAS, beside the same step by
matmul_lowbit: the Decoder of bench/llm.py, in which only the products are exchanged (q, k, v and gate, up merged, the
head too).

    PYTHONPATH=... llm_peers.py [--shapes llama-8b,...] [--types u4,u8] [--batches 1,4,16,64] [--marlin ./libmarlin.so]

Weights are random, in groups of 128; cuBLAS has them as f16. A peer's product is a launch of its own, and so are norms,
activation and append around it; `tilusvm` has them in its products' launches, `plain` in launches of their own, as the
peers. With --scaled N steps of N layers and of a third of them are measured, and scaled to the shape's layers. Each is
measured --turns times, in turns; the best counts. lowbit_peers.py says what the peers need. Prints a JSON object a
line; torch.compile's step is llm.py's, with --transformers."""
import argparse
import concurrent.futures
import json
import sys
import time

import llm
import torch
from llm_shapes import products_of
from lowbit_peers import GROUP, Cublas, Humming, Marlin, add_marlin

from tilusvm.transformers import Decoder, Options


class Exchanged(torch.nn.Module):
    """A linear layer whose product a peer launches."""

    def __init__(self, weights, name, outputs):
        super().__init__()
        self.weights, self.name, self.out_features = weights, name, outputs

    def forward(self, x):
        out = torch.empty(x.shape[0], self.out_features, dtype=x.dtype, device=x.device)
        return self.weights.launch(self.name, x, out)


def places(decoder):
    """(owner, name) of each layer, where it can be taken and put."""
    found = [(decoder, "head")]
    for block in decoder.blocks:
        found += [(block.qkv.parts, "0"), (block, "out"), (block.unit.gate_up.parts, "0"), (block.unit, "down")]
    return found


def exchanged(peer, type, name, layers):
    """The peer's layer for each of ours, of the same sizes; those of one size are copies of one."""
    first, made = {}, []
    for layer in layers:
        size = layer.out_features, layer.in_features
        if size not in first:
            codes = torch.randint(0, 1 << int(type[1]), size[::-1], device="cuda", dtype=torch.uint8)
            scale = size[1] ** -0.5 / llm.spread(type, GROUP)  # outputs about as large as inputs
            scales = torch.full((size[1] // GROUP, size[0]), scale, device="cuda", dtype=torch.float16)
            first[size] = peer(type, codes, scales)
            made.append(Exchanged(first[size], name, size[0]))
        else:
            made.append(Exchanged(first[size].copies(), name, size[0]))
    return made


class Ways:
    """Decoders of a model by name, the peers' one with their layers put in when it is asked for."""

    def __init__(self, shape, type, options):
        begin = time.monotonic()
        model = llm.model_of(llm.config_of(shape, llm.counts_of(shape, options)[0][0]), type, type, GROUP)
        words = {"batch": 1, "max_tokens": options.prompt + 128}
        self.plain = Decoder(model, **words, options=Options(fuse=False))
        self.fused = Decoder(model, **words, consume=True)
        self.where = places(self.plain)
        self.layers = {"plain": [getattr(owner, name) for owner, name in self.where]}
        for peer in [Humming, Cublas] + ([Marlin] if Marlin.libraries else []):
            for name in peer.names:
                try:
                    self.layers[name] = exchanged(peer, type, name, self.layers["plain"])
                except Exception as error:
                    print(f"{shape}, {type}, {name}: {error!r}", file=sys.stderr)
        for decoder in (self.fused, self.plain):
            for batch in options.batches:
                decoder.serve(batch, options.prompt + 128, cache=options.cache)
                decoder.prepare(1)
        print(f"{shape}, {type}: made in {time.monotonic() - begin:.1f} s", file=sys.stderr)

    def names(self):
        return ["tilusvm", *self.layers]

    def decoder(self, name):
        if name == "tilusvm":
            return self.fused
        for (owner, place), layer in zip(self.where, self.layers[name]):
            setattr(owner, place, layer)
        return self.plain

    def step_us(self, name, batch, options, layers):
        """Of so many of its layers."""
        decoder = self.decoder(name)
        every = decoder.blocks, decoder.kinds
        try:
            decoder.blocks, decoder.kinds = (part[:layers] for part in every)
            decoder.serve(batch, options.prompt + 128, cache=options.cache)
            return llm.decode_us(decoder, options.prompt)
        finally:
            decoder.blocks, decoder.kinds = every


def compiled_ahead(cases, batches):
    """Makes humming's kernels of all cases, many at a time."""
    with concurrent.futures.ThreadPoolExecutor(len(cases)) as threads:
        jobs = {case: threads.submit(Humming.compile, case[1], products_of(case[0]), batches) for case in cases}
    for (shape, type), job in jobs.items():
        if job.exception():
            print(f"{shape}, {type}, humming: {job.exception()!r}", file=sys.stderr)


def rows_of(ways, shape, type, options):
    """The rows of a shape and type."""
    counts, layers = llm.counts_of(shape, options)
    for batch in options.batches:
        took = {}
        for name in ways.names() * options.turns:
            for count in counts:
                try:
                    us = ways.step_us(name, batch, options, count)
                    took.setdefault(name, {})[count] = min(took.get(name, {}).get(count, us), us)
                except Exception as error:
                    print(f"{shape}, {type}, {name}, batch {batch}: {error!r}", file=sys.stderr)
        for name, of in took.items():
            if len(of) == len(counts):
                us = llm.of_layers(of, layers)
                row = {"shape": shape, "type": type, "linear": name, "batch": batch, "prompt": options.prompt}
                row = llm.with_layers(row, counts, layers)
                yield {**row, "decode_us": round(us, 1), "tokens_s": round(batch * 1e6 / us, 1)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", default="llama-8b", help=", ".join(llm.SHAPES))
    parser.add_argument("--types", default="u4")
    parser.add_argument("--cases", help="SHAPE:TYPE,... in the place of all shapes with all types")
    parser.add_argument("--batches", default="1,4,16,64", type=lambda text: [int(word) for word in text.split(",")])
    parser.add_argument("--prompt", type=int, default=2048)
    parser.add_argument("--cache", help="type of keys and values; f16 without")
    parser.add_argument("--layers", type=int, help="as many instead of the shape's")
    parser.add_argument("--scaled", type=int, help="measure as many and a third of them, and scale to the shape's")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no further case after so many")
    parser.add_argument("--wait", action="store_true", help="make the first case, say ready, wait for a line")
    add_marlin(parser)
    options = parser.parse_args()
    begin = time.monotonic()
    cases = [(shape, type) for shape in options.shapes.split(",") for type in options.types.split(",")]
    if options.cases:
        cases = [tuple(case.split(":")) for case in options.cases.split(",")]
    compiled_ahead(cases, options.batches)
    for case in cases:
        if time.monotonic() - begin > options.seconds:
            print("time is over", file=sys.stderr)
            return 0
        ways = Ways(*case, options)
        if case is cases[0]:
            llm.await_turn(options)
        for row in rows_of(ways, *case, options):
            print(json.dumps(row), flush=True)
        del ways
        torch.cuda.empty_cache()
    return 0


if __name__ == "__main__":
    with torch.no_grad():
        sys.exit(main())
