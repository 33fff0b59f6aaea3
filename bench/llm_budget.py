#!/usr/bin/env python3
"""Where the time of a decode step goes, launch by launch, of the models of llm.py.

    python bench/llm_budget.py --shapes llama-8b --types u4 --batches 1,16 --layers 8

A step is replayed from its CUDA graph under torch's profiler. Launches overlap (programmatic dependent launch), so that
what one takes is what it adds to the end of the one before it; a mean over the layers but the first and the last:

Of few rows a layer is five launches: out (with the sum behind it), gate and up (norm and activation), down (sum), qkv
(norm, rotation and the append to a cache of 16 bits) and attention; with --plain norms, activation and append are
launches of their own.

    added   us, from the end of the launch before to its own
    begun   us, by how much it begins before the launch before has ended (below 0: a gap)
    lasts   us, from its first block to its last, also where it waits for the launch before
    floor   us, of products: their weights, scales and activations, with what they read and write beside, at 4.65 TB/s
"""

import argparse

import torch
from llm import RATE, SHAPES, config_of, decode_us, model_of, weight_bytes
from torch.profiler import ProfilerActivity, profile

from tilusvm.transformers import Decoder, Options


def launches_of(decoder, prompt, steps):
    """(name, first, last) of the launches of each step, us, in the order of their ends."""
    decoder.cache.tokens = prompt
    decoder.cache.lengths.fill_(prompt)
    decoder.step()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(steps):
            decoder.step()
        torch.cuda.synchronize()
    events = [e for e in profiler.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    found = sorted((e.time_range.end, e.time_range.start, e.name) for e in events)
    count = len(found) // steps
    rows = [(name.split("(")[0].split("<")[0], start, end) for end, start, name in found]
    return [rows[i * count : (i + 1) * count] for i in range(steps)]


def added(step):
    """(name, added, begun, lasts) of a step's launches but the first."""
    return [
        (name, end - before[2], before[2] - start, end - start) for before, (name, start, end) in zip(step, step[1:])
    ]


def mean(rows):
    """Of the same launch at several places."""
    numbers = [sum(column) / len(rows) for column in list(zip(*rows))[1:]]
    return rows[0][0], *numbers


def floors(decoder, batch):
    """us that the products of a layer take at the memory's rate, and of the head, in the order of a step from
    attention on."""
    block = decoder.blocks[1]

    def floor(layer, beside=0):
        """beside: halves of a row that are read and written but activations and product."""
        weights = sum(t.numel() * t.element_size() for t in (*layer.parameters(), *layer.buffers()))
        return (weights + batch * (layer.in_features + layer.out_features + beside) * 2) / RATE * 1e6

    hidden = block.out.out_features
    sums, squares = (2 * hidden + hidden // 32, hidden // 32) if decoder.fuses else (0, 0)
    gate_up = block.unit.gate_up.parts[0]
    halved = -gate_up.out_features // 2 if block.unit.pairs else 0
    parts = [(block.out, sums), (gate_up, squares + halved), (block.unit.down, sums), (block.qkv.parts[0], squares)]
    return [floor(*part) for part in parts], floor(decoder.head, squares)


def budget(decoder, batch, prompt, steps=4):
    """Lines of a table."""
    found = [added(step) for step in launches_of(decoder, prompt, steps)]
    layers, lines = [], []
    for step in found:
        starts = [i for i, row in enumerate(step) if row[0].startswith("attention_decode")]
        layers += [step[a:b] for a, b in zip(starts, starts[1:])]
    most = max({len(layer) for layer in layers}, key=[len(layer) for layer in layers].count)
    layers = [layer for layer in layers if len(layer) == most]
    products, head = floors(decoder, batch)
    layer_us = 0.0
    for rows in zip(*layers):
        name, *numbers = mean(rows)
        layer_us += numbers[0]
        floor = products.pop(0) if "matmul" in name and products else 0.0
        lines.append((name, *numbers, floor))
    lines.append((f"a layer, {most} launches", layer_us, 0.0, 0.0, sum(line[4] for line in lines)))
    last = max(i for i, row in enumerate(found[0]) if row[0].startswith("attention_decode"))
    products_of_last = [i for i, row in enumerate(found[0]) if i > last and "matmul" in row[0]]
    ends = [step[products_of_last[2] + 1 :] for step in found if len(step) == len(found[0])]
    for rows in zip(*ends):  # behind the last product of the last layer
        name, *numbers = mean(rows)
        lines.append((name, *numbers, head if "matmul" in name else 0.0))
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", default="llama-8b", help=", ".join(SHAPES))
    parser.add_argument("--types", default="u4")
    parser.add_argument("--batches", default="1,16", type=lambda text: [int(word) for word in text.split(",")])
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--prompt", default=2048, type=int)
    parser.add_argument("--cache", help="type of keys and values; f16 without")
    parser.add_argument("--plain", action="store_true", help="norms, activation and append as launches of their own")
    options = parser.parse_args()
    for shape in options.shapes.split(","):
        for weights in options.types.split(","):
            model = model_of(config_of(shape, options.layers), weights, weights, 128)
            fuse = Options(fuse=not options.plain)
            decoder = Decoder(model, 1, options.prompt + 128, options=fuse, consume=True)
            decoder.prepare(options.prompt)
            for batch in options.batches:
                decoder.serve(batch, options.prompt + 128, cache=options.cache)
                took = decode_us(decoder, options.prompt)
                share = weight_bytes(decoder) / RATE * 1e6 / took
                print(f"{shape} {weights} batch {batch}: a step of {options.layers} layers {took:.1f} us, {share:.3f}")
                print(f"  {'':44} added  begun  lasts  floor")
                for name, *numbers in budget(decoder, batch, options.prompt):
                    print(f"  {name:42}" + "".join(f"{number:7.2f}" for number in numbers), flush=True)


if __name__ == "__main__":
    main()
