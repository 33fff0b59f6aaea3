"""nn8.Linear8, on the interpreter and on a GPU: rounded activations times the weights of the layer."""

import pytest
from conftest import NO_TORCH, torch

if torch is None:
    pytest.skip(NO_TORCH, allow_module_level=True)

from torch_kit import DEVICES, close  # noqa: E402

from tilusvm import ops  # noqa: E402
from tilusvm.nn8 import Linear8  # noqa: E402

DTYPES = {"i8": torch.int8, "f8_e4m3": torch.float8_e4m3fn}
KINDS = [
    ("i8", 0, "i8"), ("f8_e4m3", 0, "f8_e4m3"), ("f8_e4m3", 128, "f8_e4m3"), ("u4", 128, "f8_e4m3"), ("u4", 128, "i8"),
    ("i4", 0, "i8"), ("u3", 64, "i8"), ("f4_e2m1", 32, "f8_e4m3"),
]  # fmt: skip


@pytest.fixture(params=DEVICES)
def device(request):
    torch.manual_seed(11)
    return request.param


def weights_of(layer):
    """In float64, [out, in], by the layer's own operator: what it makes of the rows of an identity matrix."""
    one = torch.eye(layer.in_features, device=layer.scales.device)
    numbers = one.to(DTYPES[layer.activations])
    groups = layer.in_features // 128 if layer.is_wide and layer.group else 1
    scales = torch.ones(layer.in_features, groups, device=one.device)
    bias, layer.bias = layer.bias, None
    rows = layer((numbers, scales))
    layer.bias = bias
    return rows.double().t()


@pytest.mark.parametrize("type, group, activations", KINDS)
def test_linear8(device, type, group, activations):
    torch.manual_seed(3)
    linear = torch.nn.Linear(256, 136).to(device).half()
    layer = Linear8.from_float(linear, type, group, activations=activations)
    weights = weights_of(layer)
    bits = 8 if type == activations else int(type[1])
    assert (weights - linear.weight.double()).norm() <= {8: 0.04, 4: 0.2, 3: 0.4}[bits] * linear.weight.double().norm()
    x = torch.randn(2, 3, 256, device=device).half()
    wide = group if layer.is_wide else 0
    numbers, scales = ops.quantize_rows(x, DTYPES[activations], wide)
    rounded = numbers.double() * scales.double().repeat_interleave(256 // scales.shape[-1], -1)
    close(layer(x), rounded @ weights.t() + linear.bias.double(), 3e-3)
    assert torch.equal(layer((numbers, scales)), layer(x)) and layer(x.bfloat16()).dtype == torch.bfloat16
    other = Linear8(256, 136, type=type, group=group, activations=activations, device=device)
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other(x), layer(x))


@pytest.mark.parametrize(
    "arguments, said",
    [
        ({"activations": "f16"}, "activations must be"), ({"in_features": 100}, "multiple of 128"),
        ({"type": "i8", "activations": "i8"}, "group of i8"), ({"group": 16}, "group of u4"),
    ],
)  # fmt: skip
def test_other_layers_are_refused(arguments, said):
    with pytest.raises(ValueError, match=said):
        Linear8(**{"in_features": 128, "out_features": 8, **arguments})


def test_wrong_activations_are_refused():
    with pytest.raises(ValueError, match="128 columns"):
        Linear8(128, 8)(torch.zeros(2, 64).half())
