#!/usr/bin/env python3
"""A step of a language model whose layers the ranks share, against one GPU that has all of them; random weights.

    torchrun --nproc-per-node 2 bench/llm_ranks.py --shape llama-70b --layers 8

A line of JSON a batch, by rank 0, as each rank measures alike:

    one_us      of a layer on one GPU: the difference of a step of --layers layers and one of half as many, by the
                layers between; each step is replayed from a CUDA graph
    ranks_us    on all; apart_us: with norms, activation and append in launches of their own
    ratio       one_us / ranks_us: how many times as many tokens a second all ranks give
"""

import argparse
import json
import os

import torch
import torch.distributed as dist
from llm import SHAPES, config_of, decode_us, model_of

from tilusvm.parallel import parallelize_
from tilusvm.transformers import Decoder, Options

PLAN = {"*.[qkv]_proj": "column", "*.o_proj": "row", "*.gate_proj": "column", "*.up_proj": "column",
        "*.down_proj": "row"}  # fmt: skip


#: Are the layers split, and fused?
WAYS = {"one": (False, True), "ranks": (True, True), "apart": (True, False)}


def layer_us(options, split, fuse):
    """Microseconds of a layer for each batch."""
    torch.manual_seed(0)  # the same weights on every rank
    model = model_of(config_of(options.shape, options.layers), options.type, options.type, 128)
    if split:
        parallelize_(model, PLAN)
    decoder = Decoder(model, 1, options.prompt + 128, options=Options(fuse=fuse), consume=True)
    half, found = options.layers // 2, {}
    all_blocks = decoder.blocks, decoder.kinds
    for batch in options.batches:
        steps = []
        for count in (options.layers, half):
            decoder.blocks, decoder.kinds = (part[:count] for part in all_blocks)
            decoder.serve(batch, options.prompt + 128)
            dist.barrier()
            steps.append(decode_us(decoder, options.prompt))
        found[batch] = (steps[0] - steps[1]) / (options.layers - half)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="llama-70b", choices=SHAPES)
    parser.add_argument("--type", default="u4")
    parser.add_argument("--batches", default="1,16", type=lambda text: [int(word) for word in text.split(",")])
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--prompt", default=2048, type=int)
    options = parser.parse_args()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    with torch.no_grad():
        found = {name: layer_us(options, *way) for name, way in WAYS.items()}
    for batch in options.batches if dist.get_rank() == 0 else ():
        case = {"shape": options.shape, "type": options.type, "batch": batch, "ranks": dist.get_world_size()}
        case |= {f"{name}_us": round(us[batch], 2) for name, us in found.items()}
        print(json.dumps({**case, "ratio": round(found["one"][batch] / found["ranks"][batch], 3)}), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
