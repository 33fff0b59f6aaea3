#!/usr/bin/env python3
"""A step of a language model with its linear layers by humming or Marlin, beside the same step by matmul_lowbit: the
Decoder of bench/llm.py, in which only the products are exchanged (q, k, v and gate, up merged, the head too).

    PYTHONPATH=... llm_peers.py [--shape llama-8b] [--batches 1,16,64] [--marlin ./libmarlin.so] [--layers N]

Weights are u4 in groups of 128, random. Each is measured --turns times, in turns; the best counts. lowbit_peers.py says
what the peers need. Prints a JSON object a line."""
import argparse
import json
import sys
import time

import llm
import torch
from lowbit_peers import GROUP, Humming, Marlin, add_marlin

from tilusvm.transformers import Decoder


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


def exchanged(peer, name, layers):
    """The peer's layer for each of ours, of the same sizes; those of one size are copies of one."""
    first, made = {}, []
    for layer in layers:
        size = layer.out_features, layer.in_features
        if size not in first:
            codes = torch.randint(0, 16, size[::-1], device="cuda", dtype=torch.uint8)
            scale = size[1] ** -0.5 / 4.6  # outputs about as large as inputs
            scales = torch.full((size[1] // GROUP, size[0]), scale, device="cuda", dtype=torch.float16)
            first[size] = peer("u4", codes, scales)
            made.append(Exchanged(first[size], name, size[0]))
        else:
            made.append(Exchanged(first[size].copies(), name, size[0]))
    return made


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="llama-8b", help=", ".join(llm.SHAPES))
    parser.add_argument("--batches", default="1,16,64")
    parser.add_argument("--prompt", type=int, default=2048)
    parser.add_argument("--layers", type=int)
    parser.add_argument("--turns", type=int, default=2)
    add_marlin(parser)
    options = parser.parse_args()
    begin = time.monotonic()
    config = llm.config_of(options.shape, options.layers)
    model = llm.model_of(config, "u4", "u4", GROUP)
    decoder = Decoder(model, 1, options.prompt + 128, consume=True)
    where = places(decoder)
    layers = {"tilusvm": [getattr(owner, name) for owner, name in where]}
    for peer in [Humming] + ([Marlin] if Marlin.libraries else []):
        for name in peer.names:
            try:
                layers[name] = exchanged(peer, name, layers["tilusvm"])
            except Exception as error:
                print(f"{name}: {error!r}", file=sys.stderr)
    print(f"{options.shape}: made in {time.monotonic() - begin:.1f} s", file=sys.stderr)
    for batch in map(int, options.batches.split(",")):
        decoder.serve(batch, options.prompt + 128)
        took = {}
        for name in [*layers] * options.turns:
            for (owner, place), layer in zip(where, layers[name]):
                setattr(owner, place, layer)
            try:
                took[name] = min(took.get(name, float("inf")), llm.decode_us(decoder, options.prompt))
            except Exception as error:
                print(f"{name}, batch {batch}: {error!r}", file=sys.stderr)
        for name, us in took.items():
            row = {"shape": options.shape, "layers": config.num_hidden_layers, "linear": name, "batch": batch}
            row.update(decode_us=round(us, 1), tokens_s=round(batch * 1e6 / us, 1))
            print(json.dumps(row), flush=True)
    return 0


if __name__ == "__main__":
    with torch.no_grad():
        sys.exit(main())
