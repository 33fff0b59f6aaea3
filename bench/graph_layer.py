"""A decoder's layers as a tilusvm.Graph beside torch.cuda.CUDAGraph of the same launches: results, time on the GPU,
and time of the host for a replay.

    python bench/graph_layer.py                       # on a GPU: layers of 8B, one token, u4; about 30 s
    python bench/graph_layer.py --device=cpu          # small layers on the interpreter: results alone
    python bench/graph_layer.py --persistent          # the graph as one persistent kernel, of variants that are alike

A layer is nine launches: norm and sum, product to queries, keys and values, rotation and append to the cache,
attention, product, norm and sum, product, gate, product. They are measured without and with EARLY, by which launches
overlap (programmatic dependencies), on the same tensors. With --persistent all three have the same variants: those that
have two blocks a multiprocessor resident.
"""

import argparse
import statistics
import sys
import time

import torch
from timing import captured, median_us

import tilusvm

D, PAGE_TOKENS, GROUP = 128, 16, 128


class Sizes:
    def __init__(self, hidden, heads, kv_heads, inner, context, layers):
        self.hidden, self.heads, self.kv_heads, self.inner = hidden, heads, kv_heads, inner
        self.context, self.layers = context, layers
        self.qkv = (heads + 2 * kv_heads) * D
        self.pages = -(-context // PAGE_TOKENS)


class Weights:
    """Codes of a product's weights, packed, and their scales."""

    def __init__(self, program, k, n, device):
        shape = program.pack.param_shape("p", k=k, n=n)
        self.k, self.n = k, n
        self.packed = torch.randint(0, 256, shape, dtype=torch.uint8, device=device)
        # of both signs, as codes are not: sums of all of one sign leave f16 behind two products
        self.scales = torch.randn(k // GROUP, n, dtype=torch.float16, device=device) / (9 * k**0.5)


class Layer:
    def __init__(self, sizes, programs, device):
        def weights(k, n):
            return Weights(programs["matmul"], k, n, device)

        self.qkv, self.o = weights(sizes.hidden, sizes.qkv), weights(sizes.heads * D, sizes.hidden)
        self.up, self.down = weights(sizes.hidden, 2 * sizes.inner), weights(sizes.inner, sizes.hidden)
        self.norms = [torch.ones(sizes.hidden, dtype=torch.float16, device=device) for _ in range(2)]
        shape = programs["append"].kv_append.param_shape("cache", **append_scalars(sizes))
        self.cache = torch.zeros(shape, dtype=torch.int32, device=device).view(torch.uint32)


def append_scalars(sizes):
    return dict(
        batch=1, tokens=1, longest=1, heads=sizes.heads, kv_heads=sizes.kv_heads, pages=sizes.pages,
        max_pages=sizes.pages, max=sizes.context,
    )  # fmt: skip


def programs_of(early, persistent):
    matmul = tilusvm.program("matmul_lowbit", WTYPE="u4", GROUP=GROUP, EARLY=early)
    attention = tilusvm.program("attention_decode", EARLY=early)
    return {
        "norm": tilusvm.program("rms_norm"),
        "matmul": matmul,
        "product": matmul.matmul_lowbit_mma_8x64x4 if persistent else matmul.matmul_lowbit,
        "append": tilusvm.program("kv_append", QKV=True, ROPE=True, EARLY=early),
        "attention": attention.attention_decode_columns8 if persistent else attention.attention_decode,
        "gate": tilusvm.program("swiglu"),
    }


def inputs_of(sizes, device):
    def ints(values):
        return torch.tensor(values, dtype=torch.int32, device=device)

    angles = torch.arange(sizes.context)[:, None] * 1e4 ** (-torch.arange(D // 2) / (D // 2))[None]
    return {
        "starts": ints([0, 1]),
        "table": ints([list(range(sizes.pages))]),
        "lengths": ints([sizes.context]),
        "rotation": torch.cat([angles.cos(), angles.sin()], 1).float().to(device).contiguous(),
    }


def layer_launches(sizes, programs, layer, t):
    """(kernel, arguments) of a layer; t has what is no weight by its name."""

    def product(weights, a, c):
        return programs["product"], [1, weights.n, weights.k, a, weights.packed, weights.scales, c]

    def norm(delta, weights):
        kernel = programs["norm"].add_rms_norm
        return kernel, [1, sizes.hidden, 1e-5, delta, t["residual"], weights, t["normed"]]

    append = programs["append"].kv_append
    where = {name: t[name] for name in ("starts", "table", "lengths", "rotation")}
    where.update(qkv=t["qkv"], q=t["q"], cache=layer.cache)
    scalars = append_scalars(sizes)
    attention = [1, 1, sizes.heads, sizes.kv_heads, sizes.pages, sizes.pages, 0, D**-0.5]
    attention += [t["q"], layer.cache, t["table"], t["lengths"], t["attended"]]
    return [
        norm(t["delta"], layer.norms[0]),
        product(layer.qkv, t["normed"], t["qkv_row"]),
        (append, [(scalars | where)[p.name] for p in append.params]),
        (programs["attention"], attention),
        product(layer.o, t["attended_row"], t["delta"]),
        norm(t["delta"], layer.norms[1]),
        product(layer.up, t["normed"], t["gates"]),
        (programs["gate"].swiglu, [1, sizes.inner, t["gates"], t["gated"]]),
        product(layer.down, t["gated"], t["delta"]),
    ]


def shapes_of(sizes):
    """What passes between launches; what has two shapes is a tensor and a part that is all of it."""
    whole = {
        "normed": (1, sizes.hidden), "qkv": (1, sizes.qkv // D, D), "q": (1, sizes.heads, D),
        "attended": (1, sizes.heads, D), "gates": (1, 2 * sizes.inner), "gated": (1, sizes.inner),
    }  # fmt: skip
    return whole, {"qkv_row": ("qkv", (1, sizes.qkv)), "attended_row": ("attended", (1, sizes.heads * D))}


def direct(sizes, programs, layers, inputs, x):
    """A function that makes the launches; residual and delta are x's."""
    whole, parts = shapes_of(sizes)
    t = dict(inputs, **x)
    t.update({name: torch.zeros(shape, dtype=torch.float16, device=x["delta"].device) for name, shape in whole.items()})
    t.update({name: t[of].view(shape) for name, (of, shape) in parts.items()})
    launches = [launch for layer in layers for launch in layer_launches(sizes, programs, layer, t)]

    def run():
        for kernel, arguments in launches:
            kernel(*arguments)

    return run, t


def graph_of(sizes, programs, layers, inputs, x, device, persistent):
    graph = tilusvm.Graph("layers", device=device, persistent=persistent)
    whole, parts = shapes_of(sizes)
    t = {name: graph.input(name, tensor) for name, tensor in inputs.items()}
    t.update({name: graph.state(name, tensor) for name, tensor in x.items()})
    t.update({name: graph.temporary(name, shape, "f16") for name, shape in whole.items()})
    t.update({name: graph.part(name, of, shape, "f16") for name, (of, shape) in parts.items()})
    caches = {id(layer.cache) for layer in layers}
    known = {}

    def named(argument):
        if not isinstance(argument, torch.Tensor):
            return argument
        if id(argument) not in known:
            declare = graph.state if id(argument) in caches else graph.input
            known[id(argument)] = declare(f"tensor{len(known)}", argument)
        return known[id(argument)]

    for layer in layers:
        for kernel, arguments in layer_launches(sizes, programs, layer, t):
            graph.launch(kernel, *map(named, arguments))
    return graph


def fresh(sizes, device, seed):
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(1, sizes.hidden, generator=generator).half().to(device) for name in ("residual", "delta")
    }


def same(what, a, b):
    for name in a:
        difference = (a[name].float() - b[name].float()).abs().max().item()
        print(f"{what}: {name}: {'same bits' if torch.equal(a[name], b[name]) else f'differs by up to {difference:g}'}")
        if not difference <= 0.02 * b[name].float().abs().max().item():
            sys.exit(f"{what}: {name} is wrong")


def measure(run, repeats=30, rounds=9):
    """Microseconds on the GPU and of the host for one."""
    host = []

    def several():
        begin = time.perf_counter()
        for _ in range(repeats):
            run()
        host.append((time.perf_counter() - begin) / repeats * 1e6)

    torch.cuda.synchronize()
    return median_us(several, rounds, rest=0.05) / repeats, statistics.median(host)


def on_gpu(sizes, early, persistent):
    device = "cuda"
    programs = programs_of(early, persistent)
    torch.manual_seed(4)
    layers = [Layer(sizes, programs, device) for _ in range(sizes.layers)]
    inputs = inputs_of(sizes, device)
    ours_x, theirs_x = fresh(sizes, device, 1), fresh(sizes, device, 1)
    graph = graph_of(sizes, programs, layers, inputs, ours_x, device, persistent)
    begin = time.perf_counter()
    graph.finish()
    print(f"early={early}: finished in {time.perf_counter() - begin:.2f} s; {graph.report().splitlines()[0]}")
    run, _ = direct(sizes, programs, layers, inputs, theirs_x)
    graph()
    run()
    torch.cuda.synchronize()
    same("beside the launches themselves", ours_x, theirs_x)
    launches = captured(lambda i: run(), 1)
    for x in (ours_x, theirs_x):
        for name, tensor in fresh(sizes, device, 2).items():
            x[name].copy_(tensor)
    graph()
    launches.replay()
    torch.cuda.synchronize()
    same("beside torch.cuda.CUDAGraph", ours_x, theirs_x)
    for name, replay in (("tilusvm.Graph", graph), ("torch.cuda.CUDAGraph", launches.replay), ("launches", run)):
        gpu, host = measure(replay)
        print(f"early={early} {name:22} {gpu / sizes.layers:8.2f} us a layer, host {host:8.2f} us a replay")
    graph.close()


def on_interpreter(sizes, persistent):
    programs = programs_of(True, False)  # the variants are for GPUs
    layers = [Layer(sizes, programs, "cpu") for _ in range(sizes.layers)]
    inputs = inputs_of(sizes, "cpu")
    ours, theirs = fresh(sizes, "cpu", 1), fresh(sizes, "cpu", 1)
    graph = graph_of(sizes, programs, layers, inputs, ours, "cpu", persistent)
    graph()
    direct(sizes, programs, layers, inputs, theirs)[0]()
    print(graph.report())
    same("on the interpreter", ours, theirs)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--layers", type=int, default=0, help="of a graph: 4; on the interpreter 2")
    parser.add_argument("--context", type=int, default=0, help="tokens in the cache: 1024; on the interpreter 40")
    parser.add_argument("--persistent", action="store_true", help="the graph is one persistent kernel")
    given = parser.parse_args()
    if given.device == "cpu":
        on_interpreter(Sizes(256, 2, 1, 256, given.context or 40, given.layers or 2), given.persistent)
        return
    sizes = Sizes(4096, 32, 8, 14336, given.context or 1024, given.layers or 4)
    print(tilusvm.device_name("cuda"), f"{sizes.layers} layers, {sizes.context} tokens")
    for early in (False, True):
        on_gpu(sizes, early, given.persistent)


if __name__ == "__main__":
    main()
