#!/usr/bin/env python3
"""What each launch that a layer is spared gains, of the models of llm.py: steps with and without, replayed from graphs.

    python bench/llm_fused.py --shapes llama-8b --types u4 --batches 1,4,16 --layers 8

A line of JSON a case, in about a minute on an H200. First the logits of two steps behind a prompt are compared with
those of the plain decoder: error is their greatest difference by the greatest logit, and the program ends with status 1
where it is above 2e-2.

    plain     norms, activation, rotation and append are launches of their own: nine a layer
    gate      the activation is behind gate and up
    norms     and the norms are before, and the sums with the residual behind products
    all       and keys and values are appended, and heads normed, by the launch of their product: five
    layer_us  of a layer: the difference of a step of --layers layers and one of half as many, by the layers between
"""

import argparse
import json
import sys

import torch
from llm import SHAPES, config_of, decode_us, model_of

from tilusvm.transformers import Decoder, Options

WAYS = ("plain", "gate", "norms", "all")


def decoder_of(model, way, prompt):
    decoder = Decoder(model, 1, prompt + 128, options=Options(fuse=way != "plain", addends=way in ("norms", "all")))
    decoder.fuses = decoder.fuses and way in ("norms", "all")
    for block in decoder.blocks:
        block.appends = way == "all"
    return decoder


def logits_of(decoder, batch):
    """Of two steps behind a prompt that differs by sequence."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(0, decoder.config.vocab_size, (batch, 42), generator=generator).cuda()
    decoder.forward(ids[:, :40])
    return torch.stack([decoder.forward(ids[:, i : i + 1]).float() for i in (40, 41)])


def measured(shape, weights, layers, options):
    """{(way, batch): (microseconds of a step, logits)}"""
    model = model_of(config_of(shape, layers), weights, weights, 128)
    found = {}
    for way in options.ways:
        decoder = decoder_of(model, way, options.prompt)
        for batch in options.batches:
            decoder.serve(batch, options.prompt + 128, cache=options.cache)
            logits = logits_of(decoder, batch)
            decoder.serve(batch, options.prompt + 128, cache=options.cache)
            found[way, batch] = decode_us(decoder, options.prompt), logits
        del decoder
        torch.cuda.empty_cache()
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", default="llama-8b", help=", ".join(SHAPES))
    parser.add_argument("--types", default="u4")
    parser.add_argument("--batches", default="1,4,16", type=lambda text: [int(word) for word in text.split(",")])
    parser.add_argument("--ways", default=WAYS, type=lambda text: text.split(","), help="the first is compared with")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--prompt", default=2048, type=int)
    parser.add_argument("--cache", help="type of keys and values; f16 without")
    options = parser.parse_args()
    bad = False
    for shape in options.shapes.split(","):
        for weights in options.types.split(","):
            torch.manual_seed(0)
            most, half = (measured(shape, weights, n, options) for n in (options.layers, options.layers // 2))
            for (way, batch), (step_us, logits) in most.items():
                plain = most[options.ways[0], batch][1]
                error = float((logits - plain).abs().max() / plain.abs().max())
                layer_us = (step_us - half[way, batch][0]) / (options.layers - options.layers // 2)
                case = {"shape": shape, "type": weights, "batch": batch, "way": way, "layer_us": round(layer_us, 2)}
                print(json.dumps({**case, "step_us": round(step_us, 1), "error": error}), flush=True)
                bad = bad or not error <= 2e-2
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
