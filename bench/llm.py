#!/usr/bin/env python3
"""Decode and time to first token of language models' shapes, with random weights made on the GPU.

    python bench/llm.py --shapes llama-8b --types u4,f16 --batches 1,16,64 --json llm.json

f16 is the same harness with torch's linear layers (cuBLAS); --transformers measures transformers' own model in f16,
compiled, with a static cache; --start the way from a checkpoint on disk to the first token. A line of JSON a case:

    decode_us       of a step of all sequences, replayed from a CUDA graph, behind a prompt of --prompt tokens
    tokens_s        of all sequences together
    weight_bytes    that a step reads: linear layers, head, norms
    share           (weight_bytes / 4.65 TB/s) / decode: what of a step the weights alone would take at the H200's rate
    cache_bytes     of keys and values that it reads; share_all: of the weights and these together
    first_ms        prompt to first token, batch 1: host time, the GPU waited for
    scaled_from     with --scaled, the numbers of layers that were measured; all is then linear in them, not measured
                    (a whole llama-8b took 4 to 8% longer)

and of a start, by a process of its own, seconds: total_s of the process, of which imports_s; load_s, the files to the
GPU; first_s, a decoder, its kernels' code and the first token; cubins: "made" or "kept" in the cache; read_s: the files
read once more.
"""

import argparse
import functools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

STARTED = time.perf_counter()

import torch
import transformers

from tilusvm import nn, storage
from tilusvm.transformers import Decoder
from tilusvm.transformers._cache import ARGUMENT

RATE = 4.65e12  # bytes a second that an H200 reads

_LLAMA = dict(max_position_embeddings=16384, rms_norm_eps=1e-5)
SHAPES = {
    "llama-8b": ("llama", dict(_LLAMA, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32,
                               num_attention_heads=32, num_key_value_heads=8, vocab_size=128256, head_dim=128)),
    "qwen-32b": ("qwen2", dict(_LLAMA, hidden_size=5120, intermediate_size=27648, num_hidden_layers=64,
                               num_attention_heads=40, num_key_value_heads=8, vocab_size=152064, head_dim=128)),
    "qwen3-8b": ("qwen3", dict(_LLAMA, hidden_size=4096, intermediate_size=12288, num_hidden_layers=36,
                               num_attention_heads=32, num_key_value_heads=8, vocab_size=151936, head_dim=128)),
    "gemma-9b": ("gemma2", dict(_LLAMA, hidden_size=3584, intermediate_size=14336, num_hidden_layers=42,
                                num_attention_heads=16, num_key_value_heads=8, vocab_size=256000, head_dim=256,
                                query_pre_attn_scalar=256)),
    "llama-70b": ("llama", dict(_LLAMA, hidden_size=8192, intermediate_size=28672, num_hidden_layers=80,
                                num_attention_heads=64, num_key_value_heads=8, vocab_size=128256, head_dim=128)),
}  # fmt: skip


def config_of(shape, layers):
    family, words = SHAPES[shape]
    if layers:
        words = dict(words, num_hidden_layers=layers)
    return transformers.AutoConfig.for_model(family, **words)


def linear_of(weights, inputs, outputs, bias, group):
    """A layer whose outputs are about as large as its inputs."""
    if weights == "f16":
        layer = torch.nn.Linear(inputs, outputs, bias, device="cuda", dtype=torch.float16)
        layer.weight.data.normal_(0, inputs**-0.5)
        return layer
    layer = nn.Linear(inputs, outputs, bias, type=weights, group=group, device="cuda")
    layer.packed.random_(0, 256)
    layer.scales.fill_(inputs**-0.5 / spread(weights, group))
    return layer


@functools.lru_cache(maxsize=None)
def spread(weights, group):
    """The standard deviation of weights of random bytes."""
    probe = nn.Linear(1024, 64, False, type=weights, group=group, device="cuda")
    probe.packed.random_(0, 256)
    probe.scales.fill_(1.0)
    return float(probe.dequantize().std())


def empty_model_of(config):
    """transformers' model without weights, but with what is in no checkpoint."""
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float16)
    embed = model.model.embed_tokens
    if hasattr(embed, "embed_scale"):  # Gemma's
        embed.embed_scale = torch.tensor(embed.scalar_embed_scale, device="cuda", dtype=torch.float16)
    model.model.rotary_emb = type(model.model.rotary_emb)(config).to("cuda")
    return model.eval()


def model_of(config, weights, head, group):
    """transformers' model with weights on the GPU alone, random ones."""
    model = empty_model_of(config)
    for name, module in list(model.named_modules()):
        if isinstance(module, torch.nn.Linear):
            of = head if name == "lm_head" else weights
            owner = model.get_submodule(name.rpartition(".")[0])
            setattr(owner, name.rpartition(".")[2], linear_of(of, module.in_features, module.out_features,
                                                              module.bias is not None, group))  # fmt: skip
        elif isinstance(module, torch.nn.Embedding) or "Norm" in type(module).__name__:
            module.weight = torch.nn.Parameter(torch.empty_like(module.weight, device="cuda"), False)
            module.weight.data.normal_(1.0 if "Norm" in type(module).__name__ else 0.0, 0.02)
    return model


def weight_bytes(decoder):
    owners = [decoder.head, decoder.norm, *decoder.blocks]
    tensors = [t for owner in owners for t in (*owner.parameters(), *owner.buffers())]
    return sum(t.numel() * t.element_size() for t in tensors)


def cache_bytes(decoder, tokens):
    """Of keys and values of so many tokens of each sequence."""
    cache = decoder.cache
    data = cache.data[: len(decoder.blocks)]
    return sum(t.numel() * t.element_size() for t in data) * tokens // cache.max_tokens


def decode_us(decoder, prompt, steps=16):
    """Microseconds of a step behind a prompt; what the cache holds does not matter."""
    cache = decoder.cache
    decoder.capture()
    best = None
    for _ in range(3):
        cache.tokens = prompt
        cache.lengths.fill_(prompt)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        decoder.step()
        begin.record()
        for _ in range(steps):
            decoder.step()
        end.record()
        end.synchronize()
        took = begin.elapsed_time(end) * 1000 / steps
        best = took if best is None else min(best, took)
    return best


def first_ms(decoder, prompt, vocabulary):
    ids = torch.randint(0, vocabulary, (1, prompt), device="cuda")
    times = []
    for _ in range(4):
        decoder.cache.reset()
        torch.cuda.synchronize()
        begin = time.perf_counter()
        decoder.forward(ids).argmax(-1).item()
        times.append((time.perf_counter() - begin) * 1000)
    return min(times[1:])


def rows_of(decoder, row, options):
    """The row of each batch, of the decoder's layers."""
    decoder.prepare(options.prompt)
    for batch in options.batches:
        decoder.serve(batch, options.prompt + 128, cache=options.cache)
        found = dict(row, batch=batch, prompt=options.prompt, layers=len(decoder.blocks), cache=options.cache)
        found["decode_us"] = decode_us(decoder, options.prompt)
        found["weight_bytes"] = weight_bytes(decoder)
        found["cache_bytes"] = cache_bytes(decoder, options.prompt)
        if batch == 1:
            found["first_ms"] = first_ms(decoder, options.prompt, decoder.config.vocab_size)
        yield with_shares(found)


def with_shares(row):
    row["tokens_s"] = row["batch"] * 1e6 / row["decode_us"]
    row["share"] = row["weight_bytes"] / RATE * 1e6 / row["decode_us"]
    row["share_all"] = (row["weight_bytes"] + row["cache_bytes"]) / RATE * 1e6 / row["decode_us"]
    return row


def measure(shape, weights, options):
    config = config_of(shape, options.layers or options.scaled)
    model = model_of(config, weights, options.head or weights, options.group)
    decoder = Decoder(model, 1, options.prompt + 128, cache=options.cache, consume=True)
    row = {"shape": shape, "type": weights, "head": options.head or weights}
    rows = rows_of(decoder, row, options)
    if not options.scaled:
        yield from rows
        return
    rows, few, layers = list(rows), options.scaled // 3, SHAPES[shape][1]["num_hidden_layers"]
    decoder.blocks, decoder.kinds = decoder.blocks[:few], decoder.kinds[:few]
    for many, less in zip(rows, rows_of(decoder, row, options)):
        for key in ("decode_us", "weight_bytes", "cache_bytes", "first_ms"):
            if key in many:
                many[key] += (many[key] - less[key]) / (options.scaled - few) * (layers - options.scaled)
        many["scaled_from"], many["layers"] = [few, options.scaled], layers
        yield with_shares(many)


def measure_transformers(shape, options):
    """transformers' model as it is: f16, static cache, compiled without Python in a step."""
    config = config_of(shape, options.layers)
    model = model_of(config, "f16", "f16", options.group)
    step = torch.compile(model.forward, mode="reduce-overhead", fullgraph=True)
    for batch in options.batches:
        cache = transformers.StaticCache(config, max_cache_len=options.prompt + 128)
        prompt = torch.randint(0, config.vocab_size, (batch, options.prompt), device="cuda")
        with torch.no_grad():
            times = []
            for _ in range(3 if batch == 1 else 1):
                cache.reset()
                torch.cuda.synchronize()
                begin = time.perf_counter()
                token = model(prompt, **{ARGUMENT: cache}, logits_to_keep=1).logits.argmax(-1)
                token[0, 0].item()
                times.append((time.perf_counter() - begin) * 1000)
            for turn in range(40):
                if turn == 8:
                    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                    begin.record()
                position = torch.full((1, 1), options.prompt + turn, device="cuda")
                logits = step(token, **{ARGUMENT: cache}, position_ids=position).logits
                token = logits.argmax(-1).clone()
            end.record()
            end.synchronize()
        took = begin.elapsed_time(end) * 1000 / 32
        row = {"shape": shape, "type": "transformers f16", "batch": batch, "prompt": options.prompt}
        row.update(layers=config.num_hidden_layers, decode_us=took, tokens_s=batch * 1e6 / took)
        if batch == 1:
            row["first_ms"] = min(times[1:])
        yield row


def start_from(folder, shape, options):
    """From the files to the first token, in a process that does nothing else; one line of JSON."""
    row = {"imports_s": time.perf_counter() - STARTED}
    torch.zeros(1, device="cuda")
    begin = time.perf_counter()
    model = storage.load(empty_model_of(config_of(shape, options.layers)), folder, device="cuda")
    torch.cuda.synchronize()
    row["load_s"] = time.perf_counter() - begin
    begin = time.perf_counter()
    decoder = Decoder(model, 1, options.prompt + 128, cache=options.cache, consume=True)
    decoder.prepare(options.prompt)
    ids = torch.randint(0, decoder.config.vocab_size, (1, options.prompt), device="cuda")
    decoder.forward(ids).argmax(-1).item()
    row["first_s"] = time.perf_counter() - begin
    print(json.dumps(row))


def measure_start(shape, weights, options):
    """Starts of a packed checkpoint that is written first: with an empty cache of cubins, and with what that left."""
    folder = pathlib.Path(options.start) / f"{shape}-{weights}"
    model = model_of(config_of(shape, options.layers), weights, options.head or weights, options.group)
    storage.save(model, folder)
    del model
    torch.cuda.empty_cache()
    files = list(folder.glob("*.safetensors"))
    begin = time.perf_counter()
    for file in files:
        with open(file, "rb", buffering=0) as stream:
            buffer = bytearray(1 << 24)
            while stream.readinto(buffer):
                pass
    read = time.perf_counter() - begin
    words = [sys.executable, __file__, "--shapes", shape, "--prompt", str(options.prompt), "--from", str(folder)]
    words += ["--layers", str(options.layers)] if options.layers else []
    with tempfile.TemporaryDirectory() as cubins:
        for kept in (False, True):
            begin = time.perf_counter()
            environment = dict(os.environ, XDG_CACHE_HOME=cubins)
            found = subprocess.run(words, env=environment, check=True, stdout=subprocess.PIPE, text=True)
            row = {"shape": shape, "type": weights, "start": True, "cubins": "kept" if kept else "made"}
            row["file_bytes"] = sum(file.stat().st_size for file in files)
            row.update(read_s=read, total_s=time.perf_counter() - begin, **json.loads(found.stdout))
            yield row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", default="llama-8b", help=", ".join(SHAPES))
    parser.add_argument("--types", default="u4,f16", help="types of the weights; f16: torch's linear layers")
    parser.add_argument("--head", help="type of the head's weights, when it is another")
    parser.add_argument("--batches", default="1,16,64", type=lambda text: [int(word) for word in text.split(",")])
    parser.add_argument("--group", default=128, type=int)
    parser.add_argument("--prompt", default=2048, type=int)
    parser.add_argument("--cache", help="type of keys and values; f16 without")
    parser.add_argument("--layers", type=int, help="as many instead of the shape's")
    parser.add_argument("--scaled", type=int, help="measure as many and a third of them, and scale to the shape's")
    parser.add_argument("--transformers", action="store_true", help="transformers' own, compiled, too (minutes)")
    parser.add_argument("--start", metavar="FOLDER", help="starts instead, of checkpoints that are written there")
    parser.add_argument("--from", dest="source", help="one start of a checkpoint, by --start itself")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no further case after so many")
    parser.add_argument("--json", help="file of the rows, one a line")
    options = parser.parse_args()
    if options.source:
        return start_from(options.source, options.shapes, options)
    begin = time.perf_counter()
    out = open(options.json, "w") if options.json else None
    types = [word for word in options.types.split(",") if word]
    jobs = [(shape, weights) for shape in options.shapes.split(",") for weights in types]
    of = measure_start if options.start else measure
    makers = [lambda s=s, t=t: of(s, t, options) for s, t in jobs]
    if options.transformers:
        makers += [lambda s=s: measure_transformers(s, options) for s in options.shapes.split(",")]
    for maker in makers:
        if time.perf_counter() - begin > options.seconds:
            print("time is over", file=sys.stderr)
            break
        for row in maker():
            line = json.dumps({key: round(v, 4) if isinstance(v, float) else v for key, v in row.items()})
            print(line, flush=True)
            if out:
                print(line, file=out, flush=True)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
