"""The plugin for SGLang, by the linear layers of SGLang, on the CPU: layers of ranks against whole ones."""

import importlib.util
import types

import pytest
from conftest import NO_TORCH, torch

if torch is None:
    pytest.skip(NO_TORCH, allow_module_level=True)
if importlib.util.find_spec("sglang") is None:
    pytest.skip("sglang is not installed", allow_module_level=True)

from torch_kit import close  # noqa: E402

import tilusvm  # noqa: E402
import tilusvm.sglang  # noqa: E402
from tilusvm import nn  # noqa: E402

tilusvm.sglang.register()

from sglang.srt.arg_groups.choices import QUANTIZATION_CHOICES  # noqa: E402
from sglang.srt.layers import linear as sglang_linear  # noqa: E402
from sglang.srt.layers.quantization import get_quantization_config  # noqa: E402

from tilusvm.sglang.quantization import TilusConfig  # noqa: E402

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
        TilusConfig.from_config({"quant_method": "gptq"})


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
