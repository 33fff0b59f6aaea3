"""What each process of test_parallel.py does; torchrun --nproc-per-node 2 parallel_worker.py for two GPUs.

Without GPUs of its own for each process it is gloo and the interpreter.
"""

import copy
import os
import pickle
import sys
import time

import torch
import torch.distributed as dist

from tilusvm import nn, ops, parallel, quantize, storage


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    gpus = torch.cuda.is_available() and torch.cuda.device_count() >= world
    device = torch.device("cuda", rank) if gpus else torch.device("cpu")
    if gpus:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if gpus else "gloo", **({"device_id": device} if gpus else {}))
    torch.manual_seed(0)  # the same weights on every rank
    with torch.no_grad():
        check_all_reduce(device)
        check_layers(device)
        check_model(device, sys.argv[1] if len(sys.argv) > 1 else None)
        check_floats(device)
        check_language_model(device)
        check_experts(device)
        check_mixtures_of_transformers(device)
        if gpus:
            measure(device)
    dist.barrier()
    if rank == 0:
        print("parallel: all is right", flush=True)
    dist.destroy_process_group()


def close(ours, whole, tolerance=2e-3):
    assert ours.shape == whole.shape and ours.dtype == whole.dtype, (ours.shape, whole.shape, ours.dtype)
    worst = (ours.double() - whole.double()).abs().max() / whole.double().abs().max()
    assert worst <= tolerance, f"{worst:.2e}"


def check_layers(device):
    """Columns gathered, and rows added up, are the whole layer's, for whole granules and others, and every option."""
    rank, world = dist.get_rank(), dist.get_world_size()
    for type, group, zeros, outputs in [("u4", 64, False, 256), ("u3", 32, True, 48), ("f6_e3m2", 0, False, 36)]:
        linear = torch.nn.Linear(256, outputs)
        whole = nn.Linear.from_float(linear, type, group, zeros=zeros).to(device)
        x = torch.randn(2, 3, 256).half().to(device)
        y = whole(x)
        column = parallel.ColumnParallelLinear.from_linear(whole, gather_output=True)
        assert column.linear.out_features == outputs // world
        assert torch.equal(column.linear.dequantize(), whole.dequantize().chunk(world)[rank])
        close(column(x), y, 1e-3)
        column.gather_output = False
        close(column(x), y.chunk(world, -1)[rank], 1e-3)
        for options in ({}, {"reduce_dtype": torch.float32}):
            row = parallel.RowParallelLinear.from_linear(whole, scatter_input=True, **options)
            assert torch.equal(row.linear.dequantize(), whole.dequantize().chunk(world, 1)[rank])
            assert (row.linear.bias is not None) == (rank == 0)
            close(row(x), y)
            assert torch.equal(copy.deepcopy(row)(x), row(x))
            assert torch.equal(
                pickle.loads(pickle.dumps(row)).linear(x[..., :128].contiguous()), row.linear(x[..., :128])
            )


def check_all_reduce(device):
    """Sums of any length, one after the other, with the bits of a sum in the order of the ranks."""
    rank, world = dist.get_rank(), dist.get_world_size()
    reduce = parallel.AllReduce(device=device)
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        for shape in [(1, 64), (3, 1000), (1, 8192), (0, 8), (70, 1024), (7,), (300, 1024)]:
            xs = [torch.randn(shape, generator=torch.Generator().manual_seed(r)).to(device, dtype) for r in range(world)]
            wanted = sum(x.float() for x in xs).to(dtype)
            for _ in range(3):
                assert torch.equal(reduce(xs[rank]), wanted), (dtype, shape)
    assert reduce.takes(xs[rank].float()) and not reduce.takes(torch.zeros((1 << 21) + 1, device=device))
    check_sums_with_residual(reduce, device)
    check_products(reduce, device)
    for wrong in (torch.zeros(4, dtype=torch.int32, device=device), torch.zeros(4, dtype=torch.float64, device=device)):
        assert not reduce.takes(wrong)
        try:
            reduce(wrong)
        except TypeError as error:
            assert str(wrong.dtype) in str(error)
        else:
            raise AssertionError("a type was taken that the program does not have")


def check_sums_with_residual(reduce, device):
    """add_to, of one token and of more, against sums of its own, among plain ones."""
    rank, world = dist.get_rank(), dist.get_world_size()
    draw = torch.Generator().manual_seed(3)
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        for shape in [(1, 64), (3, 1000), (1, 8192), (16, 2048), (0, 64)]:
            parts = torch.randn(world, *shape, generator=draw).to(device, dtype)
            residual, gain = (torch.randn(size, generator=draw).to(device, dtype) for size in (shape, shape[1:]))
            wanted = (residual.float() + sum(parts.float())).to(dtype)
            found = residual.clone()
            assert reduce.adds(parts[rank])
            moments, gained = reduce.add_to(found, parts[rank], gain)
            assert torch.equal(found, wanted), (dtype, shape)
            assert torch.equal(gained, (wanted.float() * gain.float()).to(dtype))
            squares = torch.nn.functional.pad(wanted.double().square(), (0, -shape[1] % 64))
            squares = squares.view(shape[0], moments.shape[1], 64).sum(-1)
            assert torch.allclose(moments.double(), squares, rtol=1e-5), (dtype, shape)
            assert torch.equal(reduce(parts[rank]), sum(parts.float()).to(dtype))
    for wrong in ((1, 12), (1 << 20, 8)):
        assert not reduce.adds(torch.zeros(wrong, device=device))


def check_products(reduce, device):
    """add_to of a row-parallel layer, by AllReduce and by torch.distributed, against the whole layer's."""
    rank, world = dist.get_rank(), dist.get_world_size()
    draw = torch.Generator().manual_seed(6)
    for inputs, outputs, type, group, dtype in (
        (256, 192, "u4", 64, torch.float16), (512, 1000, "u8", 32, torch.bfloat16),
        (256, 64, "f6_e3m2", 0, torch.float16),
    ):  # fmt: skip
        inputs = inputs // 2 * world
        linear = torch.nn.Linear(inputs, outputs, bias=type == "u4")
        whole = nn.Linear.from_float(linear, type, group, dtype=dtype).to(device)
        row = parallel.RowParallelLinear.from_linear(whole, all_reduce=reduce)
        assert row.fuses
        for tokens in (1, 16, 3, 8, 1, 1, 20):
            x, residual = (torch.randn(tokens, n, generator=draw).to(device, dtype) for n in (inputs, outputs))
            gain = torch.rand(outputs, generator=draw).to(device, dtype)
            own = x.chunk(world, -1)[rank].contiguous()
            wanted = residual.double() + whole(x, out_dtype=torch.float32).double()
            for row.all_reduce in (reduce, None):
                found = residual.clone()
                moments, gained = row.add_to(found, own, gain)
                close(found.double(), wanted, 2e-3 if dtype is torch.float16 else 1.6e-2)
                first = found.clone()
                dist.broadcast(first, 0)
                assert torch.equal(first, found)  # the same bits on every rank
                squares = torch.nn.functional.pad(found.double().square(), (0, -outputs % 64)).view(tokens, -1, 64)
                assert torch.allclose(moments.double(), squares.sum(-1), rtol=1e-4)
                assert torch.equal(gained, (found.float() * gain.float()).to(dtype))


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(128, 512)
        self.down = torch.nn.Linear(512, 128)

    def forward(self, x):
        return self.down(torch.nn.functional.silu(self.up(x)))


def check_model(device, folder):
    """A plan for a model, of layers that are loaded from a file where there is a folder; and compiled."""
    model = quantize.quantize_(Block(), "u4", 64, dtype=torch.float16, progress=False)
    x = torch.randn(4, 128).half().to(device)
    whole = copy.deepcopy(model).to(device)(x)
    if folder:
        if dist.get_rank() == 0:
            storage.save(model, folder)
        dist.barrier()
        model = storage.load(Block().to("meta"), folder)
    plan = {"up": "column", "down": "row"}
    model = parallel.parallelize_(model, plan).to(device)
    close(model(x), whole)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    close(compiled(x), whole)


def check_floats(device):
    """Each rank quantizes its own part: the codes are the whole layer's."""
    rank, world = dist.get_rank(), dist.get_world_size()
    linear = torch.nn.Linear(256, 128).to(device)
    whole = nn.Linear.from_float(linear, "u4", 32).dequantize()
    for kind, along in ((parallel.ColumnParallelLinear, 0), (parallel.RowParallelLinear, 1)):
        part = kind.from_float(linear, type="u4", group=32)
        assert torch.equal(part.linear.dequantize(), whole.chunk(world, along)[rank])
    try:
        parallel.RowParallelLinear.from_float(torch.nn.Linear(96, 8), type="u4", group=32)
    except ValueError as error:
        assert "a multiple of 32" in str(error)
    else:
        raise AssertionError("half a group was taken")


def check_language_model(device):
    """The plan of TORCH.md for a model of transformers, where it can be imported, whose heads the ranks share."""
    try:
        import transformers
    except ImportError:
        return
    from tilusvm import transformers as transformers_kit

    config = transformers.LlamaConfig(
        hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        head_dim=64, vocab_size=64, max_position_embeddings=64,
    )  # fmt: skip
    torch.manual_seed(2)
    model = transformers.LlamaForCausalLM(config).half().eval().to(device)
    quantize.quantize_(model, "u8", 32, skip=["lm_head"], progress=False)
    ids = torch.arange(1, 12, device=device).view(1, -1)
    whole = copy.deepcopy(model)
    plan = {"*.[qkv]_proj": "column", "*.o_proj": "row", "*.up_proj": "column", "*.gate_proj": "column",
            "*.down_proj": "row"}  # fmt: skip
    parallel.parallelize_(model, plan)
    assert model.model.layers[0].self_attn.q_proj.linear.out_features == 128
    close(model(ids).logits, whole(ids).logits, 5e-3)
    words = {"max_new_tokens": 4, "do_sample": False}
    tokens = whole.generate(ids, **words)
    assert torch.equal(model.generate(ids, **words)[:, :12], tokens[:, :12])
    decoder = transformers_kit.Decoder(model, batch=1, max_tokens=32, page=16)
    assert decoder.blocks[0].kv_heads == 1 and len(decoder.blocks[0].qkv.parts) == 1
    close(decoder.forward(ids), whole(ids).logits[:, -1], 5e-3)
    assert decoder.fuses and parallel.AllReduce is type(decoder.blocks[0].out.all_reduce)
    for all_reduce in (decoder.blocks[0].out.all_reduce, None):  # and by torch.distributed
        for block in decoder.blocks:
            block.out.all_reduce = block.unit.down.all_reduce = all_reduce
        decoder.cache.reset()
        decoder.prepare(ids.shape[1])
        decoder.forward(ids)
        longer = torch.cat([ids, torch.full_like(ids[:, :1], 5)], 1)
        close(decoder.forward(longer[:, -1:]), whole(longer).logits[:, -1], 5e-3)
    decoder.cache.reset()
    assert torch.equal(decoder.generate(ids, 4)[:, :12], tokens[:, :12])
    torch.manual_seed(dist.get_rank())
    drawn = decoder.generate(ids, 6, temperature=3.0, eos_token_id=[])
    first = drawn.clone()
    dist.broadcast(first, 0)
    assert torch.equal(drawn, first)  # by one seed on all ranks


class Stacks(torch.nn.Module):
    """Experts as transformers keeps them."""

    def __init__(self, count, hidden, inner):
        super().__init__()
        self.num_experts, self.act_fn = count, torch.nn.functional.silu
        self.gate_up_proj = torch.nn.Parameter(0.1 * torch.randn(count, 2 * inner, hidden))
        self.down_proj = torch.nn.Parameter(0.1 * torch.randn(count, hidden, inner))
        self.down_proj_bias = torch.nn.Parameter(torch.randn(count, hidden))

    def _apply_gate(self, x):
        gate, up = x.chunk(2, -1)
        return self.act_fn(gate) * up


def check_experts(device):
    """Tokens of each rank by all ranks' experts, where ranks have other numbers of them, none, or send them to one."""
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(4)
    whole = quantize.quantize_(
        torch.nn.ModuleList([Stacks(4 * world, 64, 96)]), "u8", 32, dtype=torch.float16, progress=False
    )[0].to(device)  # fmt: skip
    own = parallel.ExpertParallel.from_mixture(whole)
    assert own.experts.num_experts == 4 and own.experts.down_proj.packed.shape[0] == 4
    draw = torch.Generator().manual_seed(rank)
    for tokens, most in ((13 - 4 * rank, 4 * world), (0 if rank else 5, 4 * world), (6, 4), (3, 1)):
        x = torch.randn(tokens, 64, generator=draw).half().to(device)
        logits = torch.randn(tokens, 4 * world, generator=draw).to(device)
        logits[:, most:] -= 100.0
        routes = ops.Routes(*ops.route(logits, top=min(3, most), renormalize=True))
        found = own(x, routes, routes.weights)
        if tokens:
            close(found, whole(x, routes, routes.weights))
        ids = routes.ids.clone()
        ids[ids == 2] = -1  # an expert that is none adds nothing
        y = whole(x, ids, routes.weights)
        for module in (own, copy.deepcopy(own)):
            found = module(x, ids, routes.weights)
            assert torch.equal(found, y) or y.any() and close(found, y) is None
        check_layouts(own, x, ids, routes.weights, y)
    try:
        own.dispatch(x, ids[:, 0], routes.weights)
    except ValueError as error:
        assert "index and weights [tokens, k]" in str(error)
    else:
        raise AssertionError("a vector of experts was taken")


def check_layouts(own, x, ids, weights, wanted):
    """What dispatch gives is DeepEP's layout; the same rows sorted by expert, with gaps, are that of do_expand."""
    given = own.dispatch(x, ids, weights)
    assert given.ids.shape == given.weights.shape and not given.weights[given.ids < 0].any()
    assert ((given.ids >= -1) & (given.ids < 4)).all()
    assert (given.ids >= 0).any(-1).all()  # no token comes for nothing
    counts = given.counts(4)
    assert counts == [int((given.ids == e).sum()) for e in range(4)]
    rows, ends, begin = [], [], 0
    for e, count in enumerate(counts):
        at = (given.ids == e).nonzero()
        rows.append(torch.cat([at, at.new_full((-count % 8, 2), -1)]))
        ends.append(begin + count)
        begin += len(rows[-1])
    rows = torch.cat([*rows, torch.full((5, 2), -1, device=x.device)])  # and some behind the last
    is_row = (rows[:, 0] >= 0)[:, None]
    spread = torch.where(is_row, given.x[rows[:, 0]] if len(given.x) else x.new_zeros(1, x.shape[1]), 0)
    share = torch.where(is_row[:, 0], given.weights[rows[:, 0], rows[:, 1]] if len(given.x) else 0.0, 0.0)
    ends = torch.tensor(ends, dtype=torch.int32, device=x.device)
    made = own.experts.expanded(spread, ends, share, alignment=8)
    assert not made[~is_row[:, 0]].any()
    at, made = rows[is_row[:, 0], 0], made[is_row[:, 0]]
    y = torch.zeros(len(given.x), x.shape[1], device=x.device).index_add_(0, at, made.float())
    found = own.combine(y.half(), given, len(x))
    if len(x) and wanted.any():
        close(found, wanted, 4e-3)


def check_mixtures_of_transformers(device):
    """A plan that shares out the experts of a model, whose routers ops.route computes."""
    try:
        import transformers
    except ImportError:
        return
    config = transformers.AutoConfig.for_model(
        "mixtral", hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=1,
        num_key_value_heads=1, head_dim=64, vocab_size=32, num_local_experts=4, num_experts_per_tok=2,
    )  # fmt: skip
    torch.manual_seed(3)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float16).eval().requires_grad_(False)
    quantize.quantize_(model, "u8", 32, skip=["lm_head"], progress=False).to(device)
    ids = torch.arange(1, 12, device=device).view(1, -1)
    whole = model(ids).logits
    parallel.parallelize_(model, {"*.experts": "experts"})
    block = model.model.layers[0].mlp
    assert isinstance(block.experts, parallel.ExpertParallel) and "forward" in vars(block.gate)
    close(model(ids).logits, whole, 5e-3)


def measure(device):
    """The feed-forward part of Llama 3.3 70B: on one GPU, on both, and its sum alone; in CUDA graphs."""
    rank = dist.get_rank()
    up = torch.nn.Linear(8192, 28672, bias=False, device=device, dtype=torch.float16)
    down = torch.nn.Linear(28672, 8192, bias=False, device=device, dtype=torch.float16)
    layers = [nn.Linear.from_float(layer, "u4", 128, scales="absmax") for layer in (up, down)]
    column, row = (
        parallel.ColumnParallelLinear.from_linear(layers[0]),
        parallel.RowParallelLinear.from_linear(layers[1]),
    )
    for rows in (1, 16, 64):
        x = torch.randn(rows, 8192, device=device, dtype=torch.float16)
        close(row(column(x)), layers[1](layers[0](x)), 5e-3)
        y = torch.randn(rows, 8192, device=device, dtype=torch.float16)
        steps = {
            "one GPU": lambda x=x: layers[1](layers[0](x)),
            "two": lambda x=x: row(column(x)),
            "the sum": lambda y=y: dist.all_reduce(y),
        }
        for name, step in steps.items():
            for _ in range(3):
                step()
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                for _ in range(10):
                    step()
            graph.replay()
            torch.cuda.synchronize()
            dist.barrier()
            start = time.perf_counter()
            for _ in range(10):
                graph.replay()
            torch.cuda.synchronize()
            if rank == 0:
                print(f"rows {rows:3}  {name:8} {(time.perf_counter() - start) * 1e4:8.1f} us", flush=True)


if __name__ == "__main__":
    main()
