"""The plugin for vLLM, by the classes of vLLM, on the CPU: layers of ranks against whole ones, and attention against
torch's in float64."""

import dataclasses
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import types

import pytest
from conftest import NO_TORCH, torch

if torch is None:
    pytest.skip(NO_TORCH, allow_module_level=True)
if importlib.util.find_spec("vllm") is None:
    pytest.skip("vllm is not installed: tests/vllm.test installs it", allow_module_level=True)

import safetensors.torch  # noqa: E402
from foreign_kit import FORMATS as FOREIGN  # noqa: E402
from torch_kit import close  # noqa: E402

import tilusvm  # noqa: E402
import tilusvm.vllm  # noqa: E402
from tilusvm import nn, storage  # noqa: E402

tilusvm.vllm.register()

from vllm.config import VllmConfig, set_current_vllm_config  # noqa: E402
from vllm.distributed import parallel_state  # noqa: E402
from vllm.model_executor.layers import linear as vllm_linear  # noqa: E402
from vllm.model_executor.layers import quantization as vllm_quantization  # noqa: E402
from vllm.model_executor.layers import vocab_parallel_embedding as vocabulary  # noqa: E402
from vllm.model_executor import parameter as vllm_parameter  # noqa: E402
from vllm.platforms import current_platform  # noqa: E402
from vllm.v1.attention.backend import CommonAttentionMetadata  # noqa: E402
from vllm.v1.attention.backends.registry import AttentionBackendEnum  # noqa: E402
from vllm.v1.kv_cache_interface import FullAttentionSpec, compute_layer_kv_cache_shape_bytes  # noqa: E402
from vllm_kit import HIDDEN, PLAIN, VOCABULARY, config_of, logits, plain_model, take_backend, tiny_model  # noqa: E402

from tilusvm.engines.cache import VARIABLE  # noqa: E402
from tilusvm.vllm.attention import TilusAttentionBackend  # noqa: E402
from tilusvm.vllm.quantization import TilusConfig, TilusMoEMethod  # noqa: E402

WORKER = pathlib.Path(__file__).with_name("vllm_worker.py")
MAPPING = {"qkv_proj": ["q_proj", "k_proj", "v_proj"], "gate_up_proj": ["gate_proj", "up_proj"]}


@pytest.fixture(autouse=True)
def config():
    """What layers of vLLM ask for when they are made."""
    found = VllmConfig()
    torch.manual_seed(0)
    with set_current_vllm_config(found):
        yield found


@pytest.fixture
def rank(monkeypatch):
    """A function that lets the layers made after it be those of a rank."""

    def as_rank(at, ranks):
        for module in (vllm_linear, vllm_parameter, vocabulary):
            monkeypatch.setattr(module, "get_tensor_model_parallel_rank", lambda: at)
            monkeypatch.setattr(module, "get_tensor_model_parallel_world_size", lambda: ranks)

    as_rank(0, 1)
    return as_rank


def quantization(**words):
    config = TilusConfig.from_config({"quant_method": "tilusvm", "group": 64, **words})
    config.packed_modules_mapping = MAPPING
    return config


def whole(outputs, inputs=HIDDEN, type="u4"):
    """A plain weight, its nn.Linear, and the tensors that a file has of it, plain and packed."""
    linear = torch.nn.Linear(inputs, outputs, bias=False)
    made = nn.Linear.from_float(linear, type, 64)
    plain = {"weight": linear.weight.data}
    return made, {"plain": plain, "packed": {"packed": made.packed, "scales": made.scales}}


def load(layer, tensors, *shard):
    for name, tensor in tensors.items():
        param = dict(layer.named_parameters())[name]
        param.weight_loader(param, tensor, *shard)


def finish(layer):
    layer.quant_method.process_weights_after_loading(layer)
    assert not any(name in ("weight", "packed") for name, _ in layer.named_parameters(recurse=False))
    return layer


def weights(layer):
    return torch.cat([each.dequantize() for each in layer.tilus])


def test_what_is_registered():
    assert vllm_quantization.get_quantization_config("tilusvm") is TilusConfig
    assert AttentionBackendEnum.CUSTOM.get_class() is TilusAttentionBackend
    assert TilusConfig.override_quantization_method({"quant_method": "gptq"}, "tilusvm") == "tilusvm"
    assert TilusConfig.override_quantization_method({"quant_method": "gptq"}, None) is None
    with pytest.raises(tilusvm.UnsupportedError, match="quantized by mxfp4: tvm-pack"):
        TilusConfig.from_config({"quant_method": "mxfp4"})


@pytest.mark.parametrize("source", ["plain", "packed"])
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_columns_and_rows(rank, source, ranks):
    """A unit of two layers: the sum over the ranks is what the whole layers give."""
    up, up_tensors = whole(512)
    down, down_tensors = whole(HIDDEN, 512)
    x = torch.randn(3, HIDDEN).half()
    total = torch.zeros(3, HIDDEN, dtype=torch.float64)
    for at in range(ranks):
        rank(at, ranks)
        first = vllm_linear.ColumnParallelLinear(
            HIDDEN, 512, bias=False, params_dtype=torch.float16, quant_config=quantization(), prefix="a.up"
        )
        second = vllm_linear.RowParallelLinear(
            512, HIDDEN, bias=False, params_dtype=torch.float16, quant_config=quantization(), prefix="a.down",
            reduce_results=False,
        )  # fmt: skip
        load(first, up_tensors[source])
        load(second, down_tensors[source])
        size = 512 // ranks
        assert torch.equal(weights(finish(first)), up.dequantize()[at * size : (at + 1) * size])
        assert torch.equal(weights(finish(second)), down.dequantize()[:, at * size : (at + 1) * size])
        total += second(torch.relu(first(x)[0]))[0].double()
    exact = torch.relu(x.double() @ up.dequantize().double().t()) @ down.dequantize().double().t()
    close(total, exact, 4e-3)


@pytest.mark.parametrize("source", ["plain", "packed"])
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_queries_keys_and_values(rank, source, fused, ranks):
    """8 heads of queries share 2 of keys and values; in some files they are one tensor."""
    parts = {"q": whole(512), "k": whole(128), "v": whole(128)}
    every = {name: torch.cat([tensors[source][name] for _, tensors in parts.values()], 1 if name == "scales" else 0)
             for name in parts["q"][1][source]}  # fmt: skip
    bias = torch.randn(768).half()
    x = torch.randn(3, HIDDEN).half()
    for at in range(ranks):
        rank(at, ranks)
        layer = vllm_linear.QKVParallelLinear(
            HIDDEN, 64, 8, 2, bias=True, params_dtype=torch.float16, quant_config=quantization(), prefix="a.qkv_proj"
        )
        for name, (_, tensors) in parts.items():
            if not fused:
                load(layer, tensors[source], name)
        if fused:
            load(layer, every)
        layer.bias.weight_loader(layer.bias, bias[:512], "q")
        layer.bias.weight_loader(layer.bias, bias[512:640], "k")
        layer.bias.weight_loader(layer.bias, bias[640:], "v")
        y = finish(layer)(x)[0]
        copies, size = max(ranks // 2, 1), 512 // ranks
        small = 128 // min(ranks, 2)
        begins = {"q": (at * size, size), "k": (at // copies * small, small), "v": (at // copies * small, small)}
        exact = torch.cat([parts[n][0].dequantize()[b : b + s] for n, (b, s) in begins.items()])
        assert torch.equal(weights(layer), exact) and len(layer.tilus) == 1
        firsts = {"q": 0, "k": 512, "v": 640}
        own = torch.cat([bias[firsts[n] + b : firsts[n] + b + s] for n, (b, s) in begins.items()])
        close(y, x.double() @ exact.double().t() + own, 2e-3)


@pytest.mark.parametrize("ranks", [1, 2])
def test_gate_and_up(rank, ranks):
    gate, up = whole(256), whole(256)
    for at in range(ranks):
        rank(at, ranks)
        layer = vllm_linear.MergedColumnParallelLinear(
            HIDDEN, [256, 256], bias=False, params_dtype=torch.float16, quant_config=quantization(),
            prefix="a.gate_up_proj",
        )  # fmt: skip
        load(layer, gate[1]["packed"], 0)
        load(layer, up[1]["packed"], 1)
        size = 256 // ranks
        own = slice(at * size, (at + 1) * size)
        exact = torch.cat([gate[0].dequantize()[own], up[0].dequantize()[own]])
        assert torch.equal(weights(finish(layer)), exact)


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("name", ["gptq", "awq", "compressed-tensors", "fp8 of blocks"])
def test_checkpoints_of_others(rank, name, ranks):
    """Are taken over by --quantization tilusvm: columns, rows, and queries, keys and values."""
    config, make = FOREIGN[name]
    taken = TilusConfig.from_config(config)
    taken.packed_modules_mapping = MAPPING
    words = {"bias": False, "params_dtype": torch.float16, "quant_config": taken}
    column, row = make(512, 512), make(512, 512)
    parts = {"q": make(512, 512), "k": make(512, 256), "v": make(512, 256)}
    for at in range(ranks):
        rank(at, ranks)
        size = 512 // ranks
        layers = [
            vllm_linear.ColumnParallelLinear(512, 512, prefix="a.up", **words),
            vllm_linear.RowParallelLinear(512, 512, prefix="a.down", **words),
            vllm_linear.QKVParallelLinear(512, 64, 8, 4, prefix="a.qkv_proj", **words),
        ]
        load(layers[0], column[1])
        load(layers[1], row[1])
        for shard, (_, tensors) in parts.items():
            load(layers[2], tensors, shard)
        own = slice(at * size, (at + 1) * size)
        half = slice(at * size // 2, (at + 1) * size // 2)
        wanted = [column[0][own], row[0][:, own]]
        wanted.append(torch.cat([parts["q"][0][own], parts["k"][0][half], parts["v"][0][half]]))
        for layer, exact in zip(layers, wanted):
            close(weights(finish(layer)), exact, 1e-3)


@pytest.mark.parametrize("asked", [True, False])
def test_batch_invariance(rank, monkeypatch, asked):
    """Where it is asked for, the bits of a row do not depend on how many there are."""
    if asked:
        monkeypatch.setenv("VLLM_BATCH_INVARIANT", "1")
    _, tensors = whole(128)
    layer = vllm_linear.ReplicatedLinear(
        HIDDEN, 128, bias=False, params_dtype=torch.float16, quant_config=quantization(), prefix="a.b"
    )
    load(layer, tensors["packed"])
    x = torch.randn(70, HIDDEN).half()
    finish(layer)
    assert [linear.batch_invariant for linear in layer.tilus] == [asked]
    if asked:
        every = layer(x)[0]
        for rows in (1, 7, 33):
            assert torch.equal(layer(x[:rows])[0], every[:rows])


def test_a_replicated_layer_and_what_stays(rank):
    made, tensors = whole(64)
    layer = vllm_linear.ReplicatedLinear(
        HIDDEN, 64, bias=False, params_dtype=torch.float16, quant_config=quantization(), prefix="a.gate"
    )
    load(layer, tensors["packed"])
    assert torch.equal(weights(finish(layer)), made.dequantize())
    stays = quantization(skip=["*.gate"]).get_quant_method(layer, "a.gate")
    assert type(stays) is vllm_linear.UnquantizedLinearMethod
    with pytest.raises(ValueError, match="the engine has both as one layer"):
        quantization(skip=["*.k_proj"]).get_quant_method(layer, "a.qkv_proj")


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_head(rank, ranks):
    """A vocabulary of 100, which vLLM fills up to 128: what is filled up is zero."""
    made, tensors = whole(100)
    x = torch.randn(2, HIDDEN).half()
    outputs = []
    for at in range(ranks):
        rank(at, ranks)
        head = vocabulary.ParallelLMHead(
            100, HIDDEN, params_dtype=torch.float16, quant_config=quantization(skip=[]), prefix="lm_head"
        )
        load(head, tensors["packed"])
        outputs.append(finish(head).quant_method.apply(head, x))
    y = torch.cat(outputs, -1)
    assert y.shape[-1] == 128 and not y[:, 100:].any()
    close(y[:, :100], x.double() @ made.dequantize().double().t(), 2e-3)


def test_a_tied_head(rank):
    embedding = vocabulary.VocabParallelEmbedding(64, HIDDEN, params_dtype=torch.float16)
    embedding.weight.data.normal_()
    head = vocabulary.ParallelLMHead(
        64, HIDDEN, params_dtype=torch.float16, quant_config=quantization(skip=[]), prefix="lm_head"
    )
    head.tie_weights(embedding)
    before = embedding.weight.data.clone()
    finish(head)
    assert torch.equal(embedding.weight.data, before)
    linear = torch.nn.Linear(HIDDEN, 64, bias=False)
    linear.weight.data.copy_(before)
    assert torch.equal(weights(head), nn.Linear.from_float(linear, "u4", 64, dtype=torch.float16).dequantize())


def test_a_folder_of_layers_of_their_own_types(rank, tmp_path):
    model = torch.nn.Sequential()
    model.up, model.down = torch.nn.Linear(HIDDEN, 64, bias=False), torch.nn.Linear(64, HIDDEN, bias=False)
    tilusvm.quantize_(model.half(), {"up": "u6", "down": "f5_e2m2"}, group=64, progress=False)
    storage.save(model, tmp_path)
    config = quantization()
    config.maybe_update_config(str(tmp_path))
    file, = storage.files_of(str(tmp_path))
    for name, module in model.named_children():
        sizes = module.in_features, module.out_features
        layer = vllm_linear.RowParallelLinear(
            *sizes, bias=False, params_dtype=torch.float16, quant_config=config, prefix=name
        )
        load(layer, {entry.rpartition(".")[2]: file.tensor(entry) for entry in file.entries if entry.startswith(name)})
        assert layer.tilus_parts.scheme.kind(name).type == module.type
        assert torch.equal(weights(finish(layer)), module.dequantize())


def test_compilation_sees_one_operator(rank):
    made, tensors = whole(128)
    layer = vllm_linear.ReplicatedLinear(
        HIDDEN, 128, bias=False, params_dtype=torch.float16, quant_config=quantization(), prefix="a.b"
    )
    load(layer, tensors["packed"])
    finish(layer)
    seen = []

    def backend(graph, inputs):
        seen.extend(str(node.target) for node in graph.graph.nodes if node.op == "call_function")
        return graph.forward

    x = torch.randn(3, HIDDEN).half()
    compiled = torch.compile(lambda x: layer.quant_method.apply(layer, x), backend=backend, fullgraph=True)
    close(compiled(x), x.double() @ made.dequantize().double().t(), 2e-3)
    assert seen == ["tilusvm.matmul_lowbit.default"]


# ---- experts ----


def mixture_layer(experts, width, rank, ranks, **words):
    """What TilusMoEMethod asks of a layer of vLLM."""
    activation = types.SimpleNamespace(value=words.get("activation", "silu"))
    layer = torch.nn.Module()
    layer.layer_name = "mlp.experts"
    layer.moe_config = types.SimpleNamespace(tp_rank=rank, tp_size=ranks, has_bias=False)
    layer.activation, layer.apply_router_weight_on_input = activation, False
    layer.ckpt_gate_proj_name, layer.ckpt_up_proj_name, layer.ckpt_down_proj_name = "gate_proj", "up_proj", "down_proj"
    layer._map_global_expert_id_to_local_expert_id = lambda i: i
    layer.expert_map = words.get("expert_map")
    method = TilusMoEMethod(quantization().scheme, layer.moe_config)
    method.create_weights(layer, experts, HIDDEN, width, torch.float16, weight_loader=None)
    return method, layer


@pytest.mark.parametrize("ranks", [1, 2])
def test_experts(ranks):
    """Loaded one by one, plain; the sum over the ranks is the mixture of the dequantized weights."""
    width, count = 128, 4
    plain = {"w1": torch.randn(count, width, HIDDEN) / 16, "w3": torch.randn(count, width, HIDDEN) / 16,
             "w2": torch.randn(count, HIDDEN, width) / 11}  # fmt: skip
    x, index, factors = torch.randn(5, HIDDEN).half(), torch.randint(0, count, (5, 2)), torch.rand(5, 2)
    total = torch.zeros(5, HIDDEN, dtype=torch.float64)
    exact = torch.zeros(5, HIDDEN, dtype=torch.float64)
    for at in range(ranks):
        method, layer = mixture_layer(count, width // ranks, at, ranks)
        for shard, stack in plain.items():
            param = layer.w2_weight if shard == "w2" else layer.w13_weight
            for i in range(count):
                assert param.weight_loader(param, stack[i], "weight", shard, i, return_success=True)
        method.process_weights_after_loading(layer)
        total += method.apply(layer, x, factors, index).double()
        both, down = layer.tilus_before[0].dequantize().double(), layer.tilus_down.dequantize().double()
        for token, i, k in ((t, int(index[t, k]), k) for t in range(5) for k in range(2)):
            gate, up = (both[i] @ x[token].double()).view(-1, 2).unbind(-1)
            exact[token] += factors[token, k] * (down[i] @ (torch.nn.functional.silu(gate) * up))
    close(total, exact, 6e-3)


def test_experts_that_are_refused(monkeypatch):
    monkeypatch.setenv("VLLM_BATCH_INVARIANT", "1")
    with pytest.raises(NotImplementedError, match="experts are not batch-invariant, as is asked for: skip them"):
        mixture_layer(2, 64, 0, 1)
    monkeypatch.delenv("VLLM_BATCH_INVARIANT")
    with pytest.raises(NotImplementedError, match="swigluoai are not supported: skip them"):
        mixture_layer(2, 64, 0, 1, activation="swigluoai")


# ---- attention ----

FORMATS = ["", "f8_e4m3", "u8,u4", "u4+zeros", "u3,u2+zeros"]


def exact_attention(q, k, v, window=0, cap=0.0, sinks=None):
    """The newest tokens of one sequence, causally; q [n, heads, d], k, v [tokens, kv_heads, d]; float64."""
    n, heads, d = q.shape
    tokens = k.shape[0]
    k, v = (t.double().repeat_interleave(heads // t.shape[1], 1) for t in (k, v))
    scores = torch.einsum("qhd,khd->hqk", q.double(), k) * d**-0.5
    scores = cap * torch.tanh(scores / cap) if cap else scores
    place = torch.arange(tokens - n, tokens)[:, None] - torch.arange(tokens)
    hidden = (place < 0) | ((place >= window) if window else torch.zeros_like(place, dtype=torch.bool))
    scores = scores.masked_fill(hidden, float("-inf"))
    if sinks is not None:
        more = sinks.double()[:, None, None].expand(*scores.shape[:2], 1)
        return torch.einsum("hqk,khd->qhd", torch.cat([scores, more], -1).softmax(-1)[..., :-1], v)
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1), v)


class Engine:
    """A model runner of one layer: sequences with their pages in a cache of vLLM, and steps of new tokens."""

    def __init__(self, config, heads=4, kv_heads=2, head=64, block=16, blocks=24, **words):
        self.heads, self.kv_heads, self.head, self.block = heads, kv_heads, head, block
        dtype = torch.float16
        spec = TilusAttentionBackend.customize_spec(
            FullAttentionSpec(block_size=block, num_kv_heads=kv_heads, head_size=head, dtype=dtype)
        )
        shape = compute_layer_kv_cache_shape_bytes(spec, blocks)
        self.cache = torch.zeros(shape, dtype=torch.int8).view(dtype)
        speculative = words.pop("speculative", None)
        self.impl = TilusAttentionBackend.get_impl_cls()(heads, head, head**-0.5, kv_heads, **words)
        if speculative is not None:
            config = types.SimpleNamespace(
                speculative_config=types.SimpleNamespace(num_speculative_tokens=speculative, parallel_drafting=False),
                parallel_config=config.parallel_config, use_v2_model_runner=True,
            )  # fmt: skip
        self.builder = TilusAttentionBackend.get_builder_cls()(spec, ["layer"], config, torch.device("cpu"))
        self.free = torch.randperm(blocks - 1).add(1).int().tolist()  # block 0 is none's
        self.lengths, self.table, self.keys = {}, {}, {}

    def step(self, new, pad=0):
        """new: of each sequence its new tokens. Gives (output, what is exact for the sequence), each.
        pad: sequences of nothing behind the others, as a graph has them."""
        q, k, v = {}, {}, {}
        for name, n in new.items():
            self.lengths[name] = self.lengths.get(name, 0) + n
            pages = self.table.setdefault(name, [])
            while len(pages) * self.block < self.lengths[name]:
                pages.append(self.free.pop())
            q[name] = torch.randn(n, self.heads, self.head).half()
            k[name], v[name] = (torch.randn(n, self.kv_heads, self.head).half() for _ in "kv")
            old = self.keys.get(name, (k[name][:0], v[name][:0]))
            self.keys[name] = torch.cat([old[0], k[name]]), torch.cat([old[1], v[name]])
        table = torch.zeros(len(new) + pad, 8, dtype=torch.int32)
        for i, name in enumerate(new):
            table[i, : len(self.table[name])] = torch.tensor(self.table[name])
        counts = torch.tensor([*new.values(), *[0] * pad])
        starts = torch.cat([torch.zeros(1), counts.cumsum(0)]).int()
        lengths = torch.tensor([*(self.lengths[name] for name in new), *[0] * pad]).int()
        each = max(new.values())
        tokens = int(starts[-1]) + pad * each
        common = CommonAttentionMetadata(
            query_start_loc=starts, query_start_loc_cpu=starts, seq_lens=lengths, num_reqs=len(new) + pad,
            num_actual_tokens=tokens, max_query_len=each, max_seq_len=int(lengths.max()), block_table_tensor=table,
            slot_mapping=torch.zeros(tokens, dtype=torch.int64), seq_lens_cpu_upper_bound=lengths,
        )  # fmt: skip
        meta = self.builder.build(0, common)
        queries, keys, values = (torch.cat([*t.values()]) for t in (q, k, v))
        if pad:
            every = (queries, keys, values)
            queries, keys, values = (torch.cat([t, t.new_zeros(pad * each, *t.shape[1:])]) for t in every)
        # as a model gives them: keys and values are views of one product
        both = torch.cat([keys, values], 1)
        keys, values = both.split(self.kv_heads, 1)
        output = torch.empty(tokens, self.heads, self.head, dtype=torch.float16)
        self.impl.forward(None, queries, keys, values, self.cache, meta, output)
        self.meta = meta
        return {name: output[starts[i] : starts[i + 1]] for i, name in enumerate(new)}, q

    def check(self, new, tolerance, window=0, cap=0.0, pad=0):
        found, q = self.step(new, pad)
        for name, out in found.items():
            close(out, exact_attention(q[name], *self.keys[name], window, cap), tolerance)


# of quantized keys and values: the distance that rounding to so many bits makes, found with the exact products
TOLERANCE = {"": 3e-3, "f8_e4m3": 0.08, "u8,u4": 0.2, "u4+zeros": 0.25, "u3,u2+zeros": 0.9}


@pytest.mark.parametrize("form", FORMATS)
def test_prefill_then_decode(config, monkeypatch, form):
    """Prompts of several lengths, steps of decoding, a prompt in the midst of them, and one in two pieces."""
    monkeypatch.setenv(VARIABLE, form)
    engine = Engine(config)
    tolerance = TOLERANCE[form]
    engine.check({"a": 5, "b": 33}, 3e-3)
    assert engine.meta.decodes == 0 and engine.meta.prefill.cached is None
    engine.check({"a": 1, "b": 1}, tolerance)
    assert engine.meta.decodes == 2 and engine.meta.prefill is None
    engine.check({"a": 1, "b": 1, "c": 20}, tolerance)
    assert engine.meta.decodes == 2 and engine.meta.prefill.cached is None
    engine.check({"a": 1, "b": 1, "c": 19}, tolerance)
    assert engine.meta.prefill.cached.tokens == 39
    engine.check({"a": 1, "b": 1, "c": 1}, tolerance)


@pytest.mark.parametrize("form", ["u8,u4", "u4+zeros", "u3,u2+zeros"])
def test_quantized_caches_hold_what_their_types_can(config, monkeypatch, form):
    """Against attention to keys and values rounded as the types say, computed here; so close that it is rounding."""
    monkeypatch.setenv(VARIABLE, form)
    engine = Engine(config)
    engine.step({"a": 40})
    found, q = engine.step({"a": 1})
    types_ = engine.impl.types

    def rounded(x, type, zeros):
        levels = 2 ** int(type[1])
        x = x.double()
        if zeros:
            least, most = x.amin(-1, keepdim=True), x.amax(-1, keepdim=True)
            scale = (most - least) / (levels - 1)
            return ((x - least) / scale).round() * scale + least
        scale = x.abs().amax(-1, keepdim=True) / (levels // 2 - 1)
        return (x / scale).round() * scale

    k, v = engine.keys["a"]
    k = rounded(k, types_["k_type"], types_["k_zeros"])
    v = rounded(v, types_["v_type"], types_["v_zeros"])
    near = exact_attention(q["a"], k, v)
    far = exact_attention(q["a"], *engine.keys["a"])
    error, rounding = (found["a"].double() - near).norm(), (near - far).norm()
    assert error < 0.5 * rounding, (error, rounding)


def test_windows_and_caps(config, monkeypatch):
    monkeypatch.setenv(VARIABLE, "")
    for words in ({"sliding_window": 16}, {"logits_soft_cap": 5.0}):
        engine = Engine(config, **words)
        window, cap = words.get("sliding_window", 0), words.get("logits_soft_cap", 0.0)
        for new in ({"a": 40, "b": 3}, {"a": 1, "b": 1}, {"a": 1, "b": 30}):
            engine.check(new, 4e-3, window, cap)


@pytest.mark.parametrize("rows", [2, 4, 7, 16])
def test_drafts_that_speculation_verifies(config, monkeypatch, rows):
    monkeypatch.setenv(VARIABLE, "f8_e4m3")
    engine = Engine(config, speculative=rows - 1)
    engine.check({"a": 20, "b": 9}, 3e-3)
    engine.check({"a": rows, "b": rows}, 0.08)
    assert (engine.meta.decodes, engine.meta.queries) == (2, rows)
    engine.check({"a": rows, "b": rows - 1}, 0.08)  # not as many each
    engine.check({"a": 1, "b": 1}, 0.08)  # no drafts


def test_sinks(config, monkeypatch):
    """A score more of each head, as torch's softmax has it: prompts, steps, and prompts behind a prefix."""
    monkeypatch.setenv(VARIABLE, "")
    sinks = torch.randn(4)
    engine = Engine(config, sinks=sinks)
    assert TilusAttentionBackend.supports_sink()
    for new in ({"a": 20, "b": 5}, {"a": 1, "b": 1}, {"a": 1, "b": 7}):
        found, q = engine.step(new)
        for name, out in found.items():
            close(out, exact_attention(q[name], *engine.keys[name], sinks=sinks), 4e-3)


def test_padding_of_graphs(config, monkeypatch):
    monkeypatch.setenv(VARIABLE, "u8,u4")
    engine = Engine(config)
    engine.check({"a": 20, "b": 9}, 3e-3)
    before = engine.cache.view(torch.int16).clone()
    engine.check({"a": 1, "b": 1}, 0.2, pad=2)
    assert engine.meta.decodes == 4
    changed = (engine.cache.view(torch.int16) != before).flatten(1).any(1).nonzero().flatten().tolist()
    assert sorted(changed) == sorted(pages[-1] for pages in engine.table.values())


@pytest.mark.parametrize("block", [16, 32, 64, 128])
def test_blocks_and_sizes_of_specs(monkeypatch, block):
    monkeypatch.setenv(VARIABLE, "u4")
    spec = FullAttentionSpec(block_size=block, num_kv_heads=8, head_size=128, dtype=torch.bfloat16)
    own = TilusAttentionBackend.customize_spec(spec)
    assert own.page_size_bytes == block * 8 * 2 * (64 + 2)  # codes, and a scale of 2 bytes
    assert spec.page_size_bytes / own.page_size_bytes > 3.8
    assert TilusAttentionBackend.supports_block_size(block) and block in own_blocks()
    assert dataclasses.replace(own, state_content_bytes=None) == spec


def own_blocks():
    return TilusAttentionBackend.get_supported_kernel_block_sizes()


def test_attention_that_is_refused(config):
    with pytest.raises(NotImplementedError, match="ALiBi"):
        TilusAttentionBackend.get_impl_cls()(4, 64, 1.0, alibi_slopes=[1.0] * 4)
    assert not TilusAttentionBackend.supports_head_size(72)


# ---- a model ----


@pytest.fixture
def alone(tmp_path):
    """The process groups of vLLM, of this process alone."""
    parallel_state.init_distributed_environment(1, 0, f"file://{tmp_path}/store", 0, "gloo")
    parallel_state.initialize_model_parallel(1)
    yield
    parallel_state.destroy_model_parallel()
    parallel_state.destroy_distributed_environment()


def foreign_model(folder, name):
    """One that another program has quantized, but for its head; and in float64 what that stands for."""
    config, make = FOREIGN[name]
    model = tiny_model()
    model.save_pretrained(folder)
    tensors = {}
    for path, module in model.named_modules():
        if type(module) is torch.nn.Linear and path != "lm_head":
            weight, own = make(module.in_features, module.out_features)
            tensors.update({f"{path}.{last}": tensor for last, tensor in own.items()})
            module.weight.data = weight.float()
        else:
            own = module.named_parameters(recurse=False)
            tensors.update({f"{path}.{last}": parameter.data for last, parameter in own})
    safetensors.torch.save_file(tensors, folder / "model.safetensors")
    said = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**said, "quantization_config": config}))
    return model.double()


@pytest.mark.parametrize("source", ["plain", "gptq", "awq", "compressed-tensors", "fp8 of blocks"])
def test_a_model(monkeypatch, alone, tmp_path, source):
    """vLLM's own loader and Llama, on a plain checkpoint and on those of others: a prompt and a step behind it, against
    transformers in float64 with the dequantized weights."""
    monkeypatch.setenv(VARIABLE, "")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(type(current_platform), "get_attn_backend_cls", current_platform.get_attn_backend_cls)
    take_backend()
    plain = source == "plain"
    exact = plain_model(tmp_path) if plain else foreign_model(tmp_path, source)
    config = config_of(tmp_path, PLAIN if plain else {})
    ids = torch.randint(0, VOCABULARY, (21,))
    with set_current_vllm_config(config), torch.inference_mode():
        wanted = exact(ids[None]).logits[0]
        for begin, end, found in logits(config, ids, 20):
            close(found, wanted[begin:end], 2e-2)


def test_two_processes(tmp_path):
    """Tensor parallel: each process reads its part of the checkpoint, and vLLM sums over gloo."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    variables = {"OMP_NUM_THREADS": "1", VARIABLE: "", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [*command, WORKER, tmp_path], capture_output=True, text=True, timeout=3600, env={**os.environ, **variables}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "vllm: all is right" in done.stdout
