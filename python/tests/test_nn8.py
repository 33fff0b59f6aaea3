"""nn8.Linear8, on the interpreter and on a GPU: rounded activations times the weights of the layer."""

import pytest
from conftest import NO_TORCH, torch

if torch is None:
    pytest.skip(NO_TORCH, allow_module_level=True)

from torch_kit import DEVICES, close, small_model  # noqa: E402

from tilusvm import nn, ops, parallel, quantize, storage  # noqa: E402
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
    if wide:
        assert torch.equal(layer((*ops.quantize_rows(x, DTYPES[activations], wide, True), True)), layer(x))
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


# ---- as nn.Linear ----


def rounded(x, activations, group=0, input_scale=None):
    """What 8 bits hold of x, in float64, by the definition."""
    greatest = {"i8": 127, "f8_e4m3": 448}[activations]
    parts = x.double().unflatten(-1, (-1, group or x.shape[-1]))
    scale = parts.abs().amax(-1, keepdim=True) / greatest if input_scale is None else input_scale
    numbers = (parts / scale).clamp(-greatest - (activations == "i8"), greatest)
    numbers = numbers.round() if activations == "i8" else numbers.float().to(DTYPES[activations]).double()
    return (numbers * scale).flatten(-2)


@pytest.mark.parametrize("type, group, activations", [k for k in KINDS if k[0] != "i4"])
def test_linear_makes_it(device, type, group, activations):
    linear = torch.nn.Linear(256, 72).to(device).bfloat16()
    layer = nn.Linear.from_float(linear, type, group, activations=activations)
    assert isinstance(layer, Linear8) and layer.dtype == torch.bfloat16 and layer.device == linear.weight.device
    assert layer.parameter_count() == 257 * 72 and f"type={type}" in repr(layer) and activations in repr(layer)
    exact = layer.dequantize().double()
    x = torch.randn(3, 256, device=device).bfloat16()
    close(layer(x), rounded(x, activations, group if layer.is_wide else 0) @ exact.t() + linear.bias.double(), 2e-2)
    assert layer.weight.dtype == torch.bfloat16 and torch.equal(layer.weight, layer.dequantize().bfloat16())


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("activations", DTYPES)
def test_codes_are_the_weights(device, activations, zeros):
    """Of every code, scale and zero point, in float64 from what they mean."""
    draw = torch.Generator().manual_seed(4)
    codes = torch.randint(0, 16, (256, 72), generator=draw, dtype=torch.uint8)
    scales = torch.rand(4, 72, generator=draw) + 0.5
    points = torch.randint(0, 16, (4, 72), generator=draw, dtype=torch.uint8) if zeros else None
    exact = codes.double() - (points.double().repeat_interleave(64, 0) if zeros else 8)
    exact *= scales.double().repeat_interleave(64, 0)
    given = [t if t is None else t.to(device) for t in (codes, scales, points)]
    layer = nn.Linear.from_codes(*given, type="u4", group=64, activations=activations)
    close(layer.dequantize(), exact.t().to(device), 1e-6)
    x = torch.randn(5, 256, generator=draw).half().to(device)
    close(layer(x), rounded(x, activations) @ exact.to(device), 2e-3)
    assert ("zeros=True" in repr(layer)) == zeros


@pytest.mark.parametrize("activations", DTYPES)
def test_wide_codes(device, activations):
    draw = torch.Generator().manual_seed(5)
    weight = (torch.randn(72, 128, generator=draw) * 20).to(DTYPES[activations]).to(device)
    scales = (torch.rand(1, 72, generator=draw) + 0.5).to(device)
    codes, step = weight.view(torch.uint8).t().contiguous(), torch.tensor(0.02, device=device)
    layer = Linear8.from_codes(codes, scales, type=activations, group=0, activations=activations, input_scale=step)
    exact = weight.double() * scales.double().t()
    close(layer.dequantize(), exact, 1e-6)
    x = torch.randn(5, 128, generator=draw).half().to(device)
    close(layer(x), rounded(x, activations, 0, step.double()) @ exact.t(), 2e-3)
    assert "static=True" in repr(layer)


@pytest.mark.parametrize("type, group, activations", [("i8", 0, "i8"), ("f8_e4m3", 128, "f8_e4m3"), ("u4", 64, "i8")])
def test_cat(device, type, group, activations):
    """Outputs one after the other, of the same bits; what does not fit is refused."""
    sizes = (128, 64, 24)
    linears = [torch.nn.Linear(256, n, bias=n != 64).half().to(device) for n in sizes]
    layers = [Linear8.from_float(linear, type, group, activations=activations) for linear in linears]
    if type == "f8_e4m3":
        with pytest.raises(ValueError, match="multiple of 128"):
            Linear8.cat(layers)
        layers.pop(1)
    whole = Linear8.cat(layers)
    x = torch.randn(3, 256, device=device).half()
    assert whole.out_features == sum(layer.out_features for layer in layers)
    close(whole(x), torch.cat([layer(x) for layer in layers], -1).double(), 1e-6)
    other = Linear8(256, 8, type="u2", group=64, activations=activations, device=device)
    with pytest.raises(ValueError, match="type differs"):
        Linear8.cat([layers[0], other])


def test_types_are_kept(device):
    """half() and the like are for what goes in and out; codes and scales stay as kernels take them."""
    for type, group, activations in (("f8_e4m3", 128, "f8_e4m3"), ("u4", 128, "i8")):
        layer = Linear8.from_float(torch.nn.Linear(128, 8).to(device), type, group, activations=activations)
        kinds = {name: buffer.dtype for name, buffer in layer.named_buffers()}
        x = torch.randn(2, 128, device=device)
        before = layer(x.half())
        assert torch.nn.Sequential(layer).bfloat16()[0] is layer and layer.dtype == torch.bfloat16
        assert {name: buffer.dtype for name, buffer in layer.named_buffers()} == kinds
        assert torch.equal(layer(x.half()), before) and layer(x.bfloat16()).dtype == torch.bfloat16
        with torch.autocast(device, torch.bfloat16):
            assert layer(x).dtype == torch.bfloat16


def test_states_of_other_layers_are_refused():
    layer = Linear8(128, 8, type="u4", activations="i8")
    for other in (Linear8(128, 8, type="u4", activations="f8_e4m3"), nn.Linear(128, 8, type="u4")):
        with pytest.raises(RuntimeError, match="activations of i8"):
            other.load_state_dict(layer.state_dict())
    with pytest.raises(RuntimeError, match="with one scale"):
        layer.load_state_dict(Linear8(128, 8, type="u4", activations="i8", static=True).state_dict())


def test_gradients_are_refused():
    layer = Linear8.from_float(torch.nn.Linear(128, 8).half())
    x = torch.randn(2, 128).half().requires_grad_()
    y = layer(x)
    with pytest.raises(NotImplementedError, match="no gradient.*8 bits"):
        y.sum().backward()
    with torch.no_grad():
        assert not layer(x).requires_grad


@pytest.mark.parametrize("type, group, activations", [("u4", 64, "i8"), ("i8", 0, "i8"), ("f8_e4m3", 128, "f8_e4m3")])
@pytest.mark.parametrize("most", [1 << 30, 20000])
def test_models(tmp_path, device, type, group, activations, most):
    torch.manual_seed(2)
    model = small_model().to(device).bfloat16()
    x = torch.randn(3, 128, device=device).bfloat16()
    exact = model(x)
    quantize.quantize_(model, type, group, ["head"], activations=activations, progress=False)
    assert isinstance(model.up, Linear8) and type_of(model.head) is torch.nn.Linear
    assert (model(x).float() - exact.float()).norm() < (0.3 if type == "u4" else 0.1) * exact.float().norm()
    storage.save(model, tmp_path, max_shard_bytes=most)
    for other in (small_model().half(), small_model().to("meta"), model):
        storage.load(other, tmp_path, device=device)
        assert other.up.extra_repr() == model.up.extra_repr() and other.up.dtype == torch.bfloat16
        assert torch.equal(other(x), model(x))


def type_of(module):
    return module.__class__


def test_a_static_layer_is_kept(tmp_path):
    layer = Linear8(128, 8, type="f8_e4m3", group=0, static=True)
    layer.input_scale.fill_(0.25)
    storage.save(layer, tmp_path)
    other = storage.load(Linear8(128, 8), tmp_path)
    assert float(other.input_scale) == 0.25 and other.group == 0


@pytest.mark.parametrize(
    "words, said",
    [
        ({}, "in_features must be a multiple of 128.*skip"), ({"skip": "1", "activations": "f16"}, "i8, f8_e4m3, nvfp4, mxfp4 or"),
        ({"skip": "1", "calibrate": [torch.zeros(1, 128)]}, "calibrate goes without"),
        ({"skip": "1", "type": "i8"}, "group of i8"), ({"skip": "1", "type": "f4_e2m1", "zeros": True}, "zeros goes"),
        ({"skip": "1", "type": "u8"}, "u8 do not go"),
    ],
)  # fmt: skip
def test_models_that_are_refused(words, said):
    """Before a layer is replaced."""
    model = torch.nn.Sequential(torch.nn.Linear(128, 128), torch.nn.Linear(96, 128))
    words = {"type": "u4", "activations": "i8", **words, "skip": list(words.get("skip", []))}
    with pytest.raises(ValueError, match=said):
        quantize.quantize_(model, progress=False, **words)
    assert type_of(model[0]) is torch.nn.Linear


def test_batch_invariance_is_refused():
    with pytest.raises(ValueError, match="batch_invariant"):
        nn.Linear.from_float(torch.nn.Linear(128, 8), activations="i8", batch_invariant=True)


def test_a_compiled_model(device):
    """Without a break of the graph, of the same bits."""
    model = quantize.quantize_(small_model().to(device).half(), "u4", 64, ["head"], activations="i8", progress=False)
    x = torch.randn(3, 128, device=device).half()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        assert torch.equal(compiled(x), model(x))


def test_parts_of_several_devices_are_refused():
    layer = Linear8.from_float(torch.nn.Linear(128, 64).half())
    with pytest.raises(TypeError, match="0 rounds its activations"):
        parallel.parallelize_(torch.nn.Sequential(layer), {"*": "column"})
