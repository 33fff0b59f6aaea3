"""The plugin for SGLang, by the linear layers of SGLang, on the CPU: layers of ranks against whole ones."""

import importlib.util
import types

import pytest
from conftest import NO_TORCH, torch

if torch is None:
    pytest.skip(NO_TORCH, allow_module_level=True)
if importlib.util.find_spec("sglang") is None:
    pytest.skip("sglang is not installed", allow_module_level=True)

from foreign_kit import FORMATS  # noqa: E402
from torch_kit import close  # noqa: E402

import tilusvm  # noqa: E402
import tilusvm.sglang  # noqa: E402
from tilusvm import nn  # noqa: E402

tilusvm.sglang.register()

from sglang.srt.arg_groups.choices import QUANTIZATION_CHOICES  # noqa: E402
from sglang.srt.layers import linear as sglang_linear  # noqa: E402
from sglang.srt.layers.quantization import get_quantization_config  # noqa: E402

from tilusvm.sglang.quantization import TilusConfig, TilusMoEMethod  # noqa: E402

HIDDEN = 256
MAPPING = {"qkv_proj": ["q_proj", "k_proj", "v_proj"], "gate_up_proj": ["gate_proj", "up_proj"]}


@pytest.fixture
def rank(monkeypatch):
    """A function that lets the layers made after it be those of a rank."""

    def as_rank(at, ranks):
        group = types.SimpleNamespace(rank_in_group=at, world_size=ranks)
        monkeypatch.setattr(sglang_linear, "_resolve_linear_group", lambda *words: group)

    torch.manual_seed(0)
    return as_rank


def quantization(**words):
    return TilusConfig.from_config(
        {"quant_method": "tilusvm", "group": 64, "packed_modules_mapping": MAPPING, "hf_config": None, **words}
    )


def whole(outputs, inputs=HIDDEN):
    linear = torch.nn.Linear(inputs, outputs, bias=False)
    made = nn.Linear.from_float(linear, "u4", 64)
    return made, {"plain": {"weight": linear.weight.data}, "packed": {"packed": made.packed, "scales": made.scales}}


def load(layer, tensors, *shard):
    for name, tensor in tensors.items():
        param = dict(layer.named_parameters())[name]
        param.weight_loader(param, tensor, *shard)


def finish(layer):
    layer.quant_method.process_weights_after_loading(layer)
    return torch.cat([each.dequantize() for each in layer.tilus])


def test_what_is_registered():
    assert get_quantization_config("tilusvm") is TilusConfig and QUANTIZATION_CHOICES.count("tilusvm") == 1
    tilusvm.sglang.register()
    assert QUANTIZATION_CHOICES.count("tilusvm") == 1
    with pytest.raises(tilusvm.UnsupportedError, match="tvm-pack --from=auto"):
        TilusConfig.from_config({"quant_method": "mxfp4"})


@pytest.mark.parametrize("source", ["plain", "packed"])
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_columns_and_rows(rank, source, ranks):
    up, up_tensors = whole(512)
    down, down_tensors = whole(HIDDEN, 512)
    x = torch.randn(3, HIDDEN).half()
    total = torch.zeros(3, HIDDEN, dtype=torch.float64)
    for at in range(ranks):
        rank(at, ranks)
        words = {"bias": False, "params_dtype": torch.float16, "quant_config": quantization()}
        first = sglang_linear.ColumnParallelLinear(HIDDEN, 512, prefix="a.up", **words)
        second = sglang_linear.RowParallelLinear(512, HIDDEN, prefix="a.down", reduce_results=False, **words)
        load(first, up_tensors[source])
        load(second, down_tensors[source])
        size = 512 // ranks
        assert torch.equal(finish(first), up.dequantize()[at * size : (at + 1) * size])
        assert torch.equal(finish(second), down.dequantize()[:, at * size : (at + 1) * size])
        total += second.quant_method.apply(second, torch.relu(first.quant_method.apply(first, x))).double()
    exact = torch.relu(x.double() @ up.dequantize().double().t()) @ down.dequantize().double().t()
    close(total, exact, 4e-3)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_queries_keys_and_values(rank, fused, ranks):
    parts = {"q": whole(512), "k": whole(128), "v": whole(128)}
    for at in range(ranks):
        rank(at, ranks)
        layer = sglang_linear.QKVParallelLinear(
            HIDDEN, 64, 8, 2, bias=False, params_dtype=torch.float16, quant_config=quantization(), prefix="a.qkv_proj"
        )
        tensors = {name: parts[name][1]["packed"] for name in parts}
        for name, own in tensors.items():
            if not fused:
                load(layer, own, name)
        if fused:
            along = {"packed": 0, "scales": 1}
            load(layer, {name: torch.cat([t[name] for t in tensors.values()], axis) for name, axis in along.items()})
        copies, size, small = max(ranks // 2, 1), 512 // ranks, 128 // min(ranks, 2)
        begins = {"q": (at * size, size), "k": (at // copies * small, small), "v": (at // copies * small, small)}
        exact = torch.cat([parts[n][0].dequantize()[b : b + s] for n, (b, s) in begins.items()])
        assert torch.equal(finish(layer), exact)


def test_gate_and_up(rank):
    gate, up = whole(256), whole(256)
    for at in range(2):
        rank(at, 2)
        layer = sglang_linear.MergedColumnParallelLinear(
            HIDDEN, [256, 256], bias=False, params_dtype=torch.float16, quant_config=quantization(),
            prefix="a.gate_up_proj",
        )  # fmt: skip
        load(layer, gate[1]["packed"], 0)
        load(layer, up[1]["packed"], 1)
        own = slice(at * 128, (at + 1) * 128)
        assert torch.equal(finish(layer), torch.cat([gate[0].dequantize()[own], up[0].dequantize()[own]]))


@pytest.mark.parametrize("name", ["gptq", "awq", "compressed-tensors", "fp8 of blocks"])
def test_checkpoints_of_others(rank, name):
    config, make = FORMATS[name]
    taken = TilusConfig.from_config({**config, "packed_modules_mapping": MAPPING, "hf_config": None})
    up, down = make(512, 512), make(512, 512)
    for at in range(2):
        rank(at, 2)
        words = {"bias": False, "params_dtype": torch.float16, "quant_config": taken}
        first = sglang_linear.ColumnParallelLinear(512, 512, prefix="a.up", **words)
        second = sglang_linear.RowParallelLinear(512, 512, prefix="a.down", reduce_results=False, **words)
        load(first, up[1])
        load(second, down[1])
        own = slice(at * 256, (at + 1) * 256)
        close(finish(first), up[0][own], 1e-3)
        close(finish(second), down[0][:, own], 1e-3)


@pytest.mark.parametrize("ranks", [1, 2])
def test_experts(ranks):
    """The method of mixtures, as SGLang's layer calls it: experts loaded one by one, an expert that is another rank's,
    and the factor of the routed ones; the sum over the ranks is the mixture of the dequantized weights."""
    width, count = 128, 4
    plain = {"w1": torch.randn(count, width, HIDDEN) / 16, "w3": torch.randn(count, width, HIDDEN) / 16,
             "w2": torch.randn(count, HIDDEN, width) / 11}  # fmt: skip
    x, index, factors = torch.randn(5, HIDDEN).half(), torch.randint(-1, count, (5, 2)), torch.rand(5, 2)
    runner = types.SimpleNamespace(activation="silu", routed_scaling_factor=2.5)
    names = {shard: f"mlp.experts.{{}}.{shard}" for shard in plain}
    total, exact = (torch.zeros(5, HIDDEN, dtype=torch.float64) for _ in range(2))
    for at in range(ranks):
        layer = torch.nn.Module()
        layer.moe_runner_config, layer.moe_tp_rank, layer.moe_tp_size = runner, at, ranks
        layer._map_global_expert_id_to_local_expert_id = lambda i: i if i < count else -1
        method = TilusMoEMethod(quantization().scheme, names)
        method.create_weights(layer, count, HIDDEN, width // ranks, torch.float16, weight_loader=None)
        method.create_moe_runner(layer, runner)
        for shard, stack in plain.items():
            param = layer.w2_weight if shard == "w2" else layer.w13_weight
            for i in range(count + 1):
                param.weight_loader(param, stack[i % count], "weight", shard, i)
        method.process_weights_after_loading(layer)
        chosen = types.SimpleNamespace(topk_weights=factors, topk_ids=index)
        given = types.SimpleNamespace(hidden_states=x, topk_output=chosen)
        total += method.apply(layer, given).hidden_states.double()
        both, down = layer.tilus_before[0].dequantize().double(), layer.tilus_down.dequantize().double()
        for token, k in ((t, k) for t in range(5) for k in range(2) if index[t, k] >= 0):
            gate, up = (both[index[token, k]] @ x[token].double()).view(-1, 2).unbind(-1)
            exact[token] += 2.5 * factors[token, k] * (down[index[token, k]] @ (torch.nn.functional.silu(gate) * up))
    close(total, exact, 6e-3)
