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
import copy
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
from llm_shapes import SHAPES, layers_of
from timing import elapsed_us

from tilusvm import nn, storage
from tilusvm.transformers import Decoder
from tilusvm.transformers._cache import ARGUMENT

RATE = 4.65e12  # bytes a second that an H200 reads
torch._dynamo.config.automatic_dynamic_shapes = False  # each batch is compiled for itself
torch._dynamo.config.recompile_limit = 64


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
    times = []
    for _ in range(3):
        cache.tokens = prompt
        cache.lengths.fill_(prompt)
        decoder.step()
        times.append(elapsed_us(lambda: [decoder.step() for _ in range(steps)]) / steps)
    return min(times)


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


def of_layers(found, layers):
    """What so many layers take, of {number: what that many took}: linear in the two numbers, or the one there is."""
    (few, less), (many, more) = min(found.items()), max(found.items())
    return more if many == few else more + (more - less) / (many - few) * (layers - many)


def counts_of(shape, options):
    """The numbers of layers that are measured, the most first, and that of the row."""
    if options.scaled:
        return [options.scaled, options.scaled // 3], layers_of(shape)
    layers = options.layers or layers_of(shape)
    return [layers], layers


def with_layers(row, counts, layers):
    """The row with the GPU, its layers, and those that were measured where they are others."""
    row = dict(row, device=torch.cuda.get_device_name(), layers=layers)
    return dict(row, **({"scaled_from": counts[::-1]} if len(counts) > 1 else {}))


def await_turn(options):
    """Of a process that shares a GPU with others: says that it is ready to measure, and waits for a line."""
    if options.wait:
        print("ready", flush=True)
        sys.stdin.readline()


def measure(shape, weights, options):
    counts, layers = counts_of(shape, options)
    model = model_of(config_of(shape, counts[0]), weights, options.head or weights, options.group)
    decoder = Decoder(model, 1, options.prompt + 128, cache=options.cache, consume=True)
    row = {"shape": shape, "type": weights, "head": options.head or weights}
    blocks, kinds, found = decoder.blocks, decoder.kinds, {}
    for count in counts:
        decoder.blocks, decoder.kinds = blocks[:count], kinds[:count]
        found[count] = list(rows_of(decoder, row, options))
    for rows in zip(*found.values()):
        one = dict(rows[0])
        for key in {"decode_us", "weight_bytes", "cache_bytes", "first_ms"} & one.keys():
            one[key] = of_layers({count: row[key] for count, row in zip(found, rows)}, layers)
        yield with_shares(with_layers(one, counts, layers))


class Compiled:
    """transformers' model as it is: f16, a static cache, a step compiled without Python."""

    def __init__(self, model, batch, prompt, layers):
        self.model, self.layers, self.batch, self.prompt = model, layers, batch, prompt
        self.take()
        config = copy.deepcopy(model.config)
        if getattr(config, "layer_types", None):  # all caches hold the context: so no window has a count of its own
            config.layer_types = ["full_attention"] * layers
        self.cache = transformers.StaticCache(config, max_cache_len=prompt + 128)
        self.step = torch.compile(model.forward, mode="reduce-overhead", fullgraph=True)
        self.first(8)
        self.steps(8)

    def take(self):
        self.model.config.num_hidden_layers = self.layers

    def first(self, tokens):
        """Milliseconds of a prompt of so many tokens, up to its token."""
        self.take()
        prompt = torch.randint(0, self.model.config.vocab_size, (self.batch, tokens), device="cuda")
        self.cache.reset()
        torch.cuda.synchronize()
        begin = time.perf_counter()
        logits = self.model(prompt, **{ARGUMENT: self.cache}, logits_to_keep=1).logits
        logits.argmax(-1)[0, 0].item()
        return (time.perf_counter() - begin) * 1000

    def steps(self, count):
        """Microseconds of each of so many steps behind the prompt; what the cache holds does not matter."""
        self.take()
        for layer in self.cache.layers:
            layer.cumulative_length.fill_(self.prompt)

        def several():
            token = torch.zeros(self.batch, 1, dtype=torch.int64, device="cuda")
            for turn in range(count):
                position = torch.full((1, 1), self.prompt + turn, device="cuda")
                torch.compiler.cudagraph_mark_step_begin()
                logits = self.step(token, **{ARGUMENT: self.cache}, position_ids=position).logits
                token = logits[:, -1:].argmax(-1).clone()

        return elapsed_us(several) / count


@torch.no_grad()
def measure_transformers(shape, options):
    """A row a batch of transformers' own."""
    counts, layers = counts_of(shape, options)
    model = model_of(config_of(shape, counts[0]), "f16", "f16", options.group)
    made = [[Compiled(model, batch, options.prompt, count) for count in counts] for batch in options.batches]
    await_turn(options)
    for of in made:
        row = {"shape": shape, "type": "transformers f16", "batch": of[0].batch, "prompt": options.prompt}
        took = {}
        for one in of:
            one.steps(8)
            took[one.layers] = min(one.steps(32) for _ in range(3))
        row["decode_us"] = of_layers(took, layers)
        row["tokens_s"] = row["batch"] * 1e6 / row["decode_us"]
        if row["batch"] == 1:
            row["first_ms"] = of_layers({o.layers: min(o.first(options.prompt) for _ in range(3)) for o in of}, layers)
        yield with_layers(row, counts, layers)


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
    parser.add_argument("--transformers", action="store_true", help="transformers' own, compiled, too")
    parser.add_argument("--wait", action="store_true", help="transformers' own: compile, say ready, wait for a line")
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
