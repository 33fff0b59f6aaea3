"""nf4 and fp4, whose codes mean the values of a table: as layers, and as bitsandbytes writes them."""

import copy
import json
import pickle

import numpy
import pytest
from conftest import NO_TORCH, torch

if torch is None:
    pytest.skip(NO_TORCH, allow_module_level=True)

from test_checkpoint import loaded  # noqa: E402
from torch_kit import DEVICES, close  # noqa: E402

import tilusvm  # noqa: E402
from tilusvm import nn, ops, parallel, quantize, storage  # noqa: E402
from tilusvm._formats import format_of  # noqa: E402

# sign, and three bits as bitsandbytes' kernels take them apart
FP4 = [0, 0.0052083333, 0.66666667, 1.0, 0.33333333, 0.5, 0.16666667, 0.25]
TABLES = {"nf4": format_of("nf4").numbers().double(), "fp4": torch.tensor(FP4 + [-x for x in FP4]).double()}
TOLERANCE = {torch.float16: 2e-3, torch.bfloat16: 1.6e-2}  # of a table, scales and the result, each rounded


def test_values():
    """Those of nf4 are quantiles of the normal distribution: eight above zero, seven below, and zero (QLoRA)."""

    def quantiles(count):
        return torch.special.ndtri(torch.linspace(0.9677083, 0.5, count + 1, dtype=torch.float64)[:-1])

    values = torch.cat([quantiles(8), torch.zeros(1), -quantiles(7)]).sort().values
    torch.testing.assert_close(TABLES["nf4"], values / values.max(), rtol=0, atol=1e-6)
    torch.testing.assert_close(format_of("fp4").numbers().double(), TABLES["fp4"], rtol=0, atol=1e-8)
    for name in TABLES:
        assert TABLES[name][format_of(name).zero_code()] == 0


def exact(codes, scales, name):
    return TABLES[name].to(codes.device)[codes.long()] * scales.double().repeat_interleave(
        codes.shape[0] // scales.shape[0], 0
    )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "name, group, dtype, rows",
    [
        ("nf4", 64, torch.float16, (1, 9, 17, 70)), ("nf4", 64, torch.bfloat16, (3, 33)),
        ("fp4", 128, torch.float16, (5,)), ("nf4", 0, torch.float16, (2, 20)), ("fp4", 32, torch.bfloat16, (8,)),
        ("nf4", 16, torch.float16, (1, 40)),
    ],
)  # fmt: skip
def test_layers(name, group, dtype, rows, device):
    torch.manual_seed(3)
    codes = torch.randint(0, 16, (256, 136), dtype=torch.uint8, device=device)
    scales = (torch.rand(256 // (group or 256), 136, device=device) / 16).to(dtype)
    bias = torch.randn(136, device=device, dtype=dtype)
    layer = nn.Linear.from_codes(codes, scales, None, bias, type=name, group=group)
    weights = exact(codes, scales, name)
    assert torch.equal(quantize.unpack(layer.packed, name, group, 136), codes)
    close(layer.dequantize(), weights.t(), 1e-3 if dtype == torch.float16 else 4e-3)
    for m in rows:
        x = torch.randn(m, 256, device=device, dtype=dtype, requires_grad=m == rows[0])
        y = layer(x)
        close(y.detach(), x.detach().double() @ weights + bias.double(), TOLERANCE[dtype])
        if x.requires_grad:
            y.float().sum().backward()
            close(x.grad, weights.sum(1).expand(m, -1), 2 * TOLERANCE[dtype])


@pytest.mark.parametrize("name", list(TABLES))
@pytest.mark.parametrize("method", ["absmax", "mse"])
def test_quantized(name, method):
    """Values times a scale come back, others as the nearest values; a search is no worse than the least scale."""
    torch.manual_seed(4)
    codes = torch.randint(0, 16, (8, 128))
    codes[:, ::64] = int(TABLES[name].argmax())  # the largest is in each group
    weight = TABLES[name][codes] * 0.25
    linear = torch.nn.Linear(128, 8, bias=False)
    linear.weight.data = weight.float()
    back = nn.Linear.from_float(linear, name, 64, dtype=torch.float16, scales=method)
    torch.testing.assert_close(back.dequantize(), weight.float(), rtol=1e-3, atol=1e-5)
    linear = torch.nn.Linear(256, 64)
    errors = [
        (nn.Linear.from_float(linear, name, 64, scales=s).dequantize() - linear.weight).square().mean()
        for s in ("absmax", "mse")
    ]
    assert errors[1] < errors[0] < 2e-4 * (1 if name == "nf4" else 2)


def test_models(tmp_path):
    """A layer as any other: in models, files, copies, parts, and compiled."""
    torch.manual_seed(5)
    model = torch.nn.Sequential(torch.nn.Linear(128, 192), torch.nn.ReLU(), torch.nn.Linear(192, 64)).half()
    tilusvm.quantize_(model, {"0": "nf4", "2": "fp4"}, 64, progress=False)
    assert "type=nf4, group=64" in repr(model[0])
    x = torch.randn(3, 128).half()
    y = model(x)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(other(x), y)
    storage.save(model, tmp_path)
    empty = torch.nn.Sequential(torch.nn.Linear(128, 192), torch.nn.ReLU(), torch.nn.Linear(192, 64)).to("meta")
    assert torch.equal(storage.load(empty, tmp_path)(x), y)
    parts = [parallel.shard(model[0], rank, 2, "out")(x) for rank in range(2)]
    close(torch.cat(parts, -1), model[0](x).double(), 1e-3)
    assert torch.equal(torch.compile(model, fullgraph=True, backend="aot_eager")(x), y)


def test_what_is_refused():
    for call in (
        lambda: nn.Linear(64, 64, type="nf4", zeros=True),
        lambda: nn.Linear(64, 64, type="nf3"),
        lambda: ops.CacheFormat(k_type="nf4").shape(1, 1),
    ):
        with pytest.raises(ValueError, match="zeros goes with unsigned types|type must be|codes of a table"):
            call()


# ---- bitsandbytes ----


def bitsandbytes(k, n, name, nested, block=64):
    """The tensors of a layer, and its weights f64 [k, n]: what its own dequantize_4bit computes, in f64."""
    draw = numpy.random.default_rng(6)
    codes = draw.integers(0, 16, (n, k))
    blocks = n * k // block
    state = {"quant_type": name, "blocksize": block, "dtype": "float16", "shape": [n, k]}
    flat = codes.reshape(-1, 2)
    tensors = {
        "weight": (flat[:, :1] << 4 | flat[:, 1:]).astype(numpy.uint8),
        "weight.quant_map": TABLES[name].float().numpy(),
    }
    scales = (draw.random(blocks) / 16).astype(numpy.float32)
    if nested:
        map256 = numpy.sort(draw.uniform(-1, 1, 256)).astype(numpy.float32)
        outer = (draw.random(-(-blocks // 256)) / 32).astype(numpy.float32)
        inner = draw.integers(0, 256, blocks).astype(numpy.uint8)
        state |= {"nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": 0.0375}
        tensors |= {"weight.absmax": inner, "weight.nested_absmax": outer, "weight.nested_quant_map": map256}
        scales = map256[inner].astype(float) * outer[numpy.arange(blocks) // 256] + 0.0375
    else:
        tensors["weight.absmax"] = scales
    text = numpy.frombuffer(json.dumps(state).encode(), numpy.uint8)
    tensors[f"weight.quant_state.bitsandbytes__{name}"] = text
    weights = TABLES[name].numpy()[codes].reshape(-1, block) * scales.astype(float)[:, None]
    return tensors, weights.reshape(n, k).T


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "name, nested, k, n", [("nf4", False, 256, 130), ("nf4", True, 320, 72), ("fp4", True, 192, 64)]
)
def test_imported(tmp_path, name, nested, k, n, device):
    tensors, weights = bitsandbytes(k, n, name, nested)
    layer = loaded(tensors, tmp_path, device=device)
    assert (layer.type, layer.group, layer.dtype) == (name, 64, torch.float16)
    wanted = torch.from_numpy(numpy.ascontiguousarray(weights.T)).to(device)
    close(layer.dequantize(), wanted, 1e-3)
    for rows in (1, 20):
        x = torch.randn(rows, k, generator=torch.Generator().manual_seed(1)).to(device).half()
        close(layer(x), x.double() @ wanted.t(), 2e-3)


def test_large_blocks_and_bf16(tmp_path):
    """Blocks of 256 are two groups of 128 with the same scale."""
    tensors, weights = bitsandbytes(512, 64, "nf4", False, block=256)
    layer = loaded(tensors, tmp_path, "--scale=bf16")
    assert (layer.group, layer.dtype) == (128, torch.bfloat16) and torch.equal(layer.scales[0], layer.scales[1])
    close(layer.dequantize(), torch.from_numpy(weights.T.copy()), 8e-3)
