"""nn.Linear against products of the weights that its codes stand for, computed apart from the package."""

import copy
import io
import pickle
import re
import warnings

import pytest
from conftest import NO_TORCH, needs_gpu, torch

if torch is None:
    pytest.skip(NO_TORCH, allow_module_level=True)

from torch_kit import DEVICES, HALVES, TYPES, close, weights_of  # noqa: E402

from tilusvm import nn, quantize  # noqa: E402

TOLERANCE = {torch.float16: 1e-3, torch.bfloat16: 8e-3}  # a rounding of the weights, one of the result


def layer(inputs=128, outputs=72, type="u4", group=64, bias=True, device="cpu", dtype=torch.float16, **options):
    torch.manual_seed(7)
    linear = torch.nn.Linear(inputs, outputs, bias).to(device)
    return nn.Linear.from_float(linear, type, group, dtype=dtype, **options)


def exact(layer, x):
    """The product in f64."""
    codes = quantize.unpack(layer.packed, layer.type, layer.group, layer.scales.shape[1])
    weights = weights_of(codes, layer.scales, layer.zeros, layer.type, layer.group)
    y = x.double() @ weights[: layer.in_features, : layer.out_features]
    return y if layer.bias is None else y + layer.bias.double()


def few_types():
    """Every type, with groups, zero points and types of activations in turn."""
    for i, type in enumerate(TYPES):
        group, dtype = (32, 64, 128, 0)[i % 4], HALVES[i // 2 % 2]
        yield type, group, dtype, False
        if type[0] == "u":
            yield type, (0, 128, 32, 64)[i % 4], HALVES[i % 2], True
        if i % 5 == 2:
            yield type, 16, torch.bfloat16, type[0] == "u"


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("type, group, dtype, zeros", list(few_types()))
def test_types(type, group, dtype, zeros, device):
    linear = layer(256, 72, type, group, device=device, dtype=dtype, zeros=zeros)
    x = torch.randn(3, 256, device=device, dtype=dtype)
    y = linear(x)
    assert y.dtype == dtype and y.device == x.device
    close(y, exact(linear, x), TOLERANCE[dtype])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("rows", [1, 2, 9, 16, 17, 40, 65, 130])
@pytest.mark.parametrize("type, group", [("u4", 64), ("f4_e2m1", 16)])
def test_rows(type, group, rows, device):
    linear = layer(256, type=type, group=group, device=device)
    x = torch.randn(rows, 256, device=device, dtype=torch.float16)
    close(linear(x), exact(linear, x), 1e-3)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("inputs, outputs", [(128, 64), (100, 5), (33, 200), (1, 1)])
def test_sizes(inputs, outputs, device):
    linear = layer(inputs, outputs, group=32, device=device)
    x = torch.randn(4, inputs, device=device, dtype=torch.float16)
    assert (linear.in_features, linear.out_features) == (inputs, outputs)
    close(linear(x), exact(linear, x), 1e-3)
    assert linear.dequantize().shape == (outputs, inputs)
    assert linear.bias.shape == (outputs,) and linear.weight.shape == (outputs, inputs)
    assert torch.equal(linear.weight, linear.dequantize(torch.float16))
    assert linear.parameter_count() == outputs * inputs + outputs


@pytest.mark.parametrize("device", DEVICES)
def test_shapes_and_strides(device):
    linear = layer(device=device)
    x = torch.randn(2, 3, 5, 128, device=device, dtype=torch.float16)
    flat = linear(x.view(30, 128))
    assert torch.equal(linear(x), flat.view(2, 3, 5, 72))
    assert linear(x[0, 0, 0]).shape == (72,)
    assert linear(x[:, :0]).shape == (2, 0, 5, 72)
    close(linear(x.transpose(0, 2)), flat.view(2, 3, 5, 72).transpose(0, 2), 1e-3)
    shifted = torch.empty(129, device=device, dtype=torch.float16)[1:].copy_(x[0, 0, 0])  # not aligned to 16 bytes
    assert torch.equal(linear(shifted), linear(x[0, 0, 0]))
    wide = torch.randn(4, 256, device=device, dtype=torch.float16)
    assert torch.equal(linear(wide[:, 128:]), linear(wide[:, 128:].clone()))


@pytest.mark.parametrize("device", DEVICES)
def test_no_row_knows_of_the_others(device):
    linear = layer(device=device, batch_invariant=True)
    x = torch.randn(40, 128, device=device, dtype=torch.float16)
    assert torch.equal(linear(x)[:1], linear(x[:1])) and torch.equal(linear(x)[5:23], linear(x[5:23].clone()))


def test_dequantized_weights_are_near():
    torch.manual_seed(8)
    linear = torch.nn.Linear(128, 64)
    for type, most in [("u8", 0.01), ("u4", 0.12), ("f6_e3m2", 0.06)]:
        back = nn.Linear.from_float(linear, type, 32).dequantize()
        assert (back - linear.weight).pow(2).mean().sqrt() < most * linear.weight.std()
        assert back.dtype == torch.float32
    assert nn.Linear.from_float(linear).dequantize(torch.bfloat16).dtype == torch.bfloat16


@pytest.mark.parametrize("zeros", [False, True])
def test_state_dict(zeros):
    linear = layer(zeros=zeros)
    x = torch.randn(2, 128, dtype=torch.float16)
    other = nn.Linear(128, 72, type="u4", group=64, zeros=zeros)
    assert not torch.equal(other(x), linear(x))
    other.load_state_dict(linear.state_dict())
    assert torch.equal(other(x), linear(x))
    assert set(linear.state_dict()) == {"packed", "scales", "bias"} | ({"zeros"} if zeros else set())
    with pytest.raises(RuntimeError, match="in the state u4 in groups of 64"):
        nn.Linear(128, 72, type="u3", group=64, zeros=zeros).load_state_dict(linear.state_dict())


def reread(state):
    """Through a file, as torch.save and torch.load have it."""
    file = io.BytesIO()
    torch.save(state, file)
    return torch.load(io.BytesIO(file.getvalue()), weights_only=True)


@pytest.mark.parametrize("way", [lambda state: state, copy.deepcopy, reread])
def test_states_say_of_which_type_they_are(way):
    """Types of one width have tensors of one shape: what they mean is another thing."""
    model = torch.nn.Sequential(layer(type="f6_e3m2"), torch.nn.ReLU())
    state = way(model.state_dict())
    for other, message in [
        (nn.Linear(128, 72, type="u6", group=64), "0 is u6 in groups of 64, in the state f6_e3m2 in groups of 64"),
        (nn.Linear(128, 72, type="f6_e2m3", group=64), "is f6_e2m3 in groups of 64"),
        (nn.Linear(128, 72, type="f6_e3m2", group=128), "is f6_e3m2 in groups of 128"),
        (nn.Linear(128, 72, type="u6", group=64, zeros=True), "is u6 in groups of 64 with zero points"),
    ]:
        with pytest.raises(RuntimeError, match=message):
            torch.nn.Sequential(other, torch.nn.ReLU()).load_state_dict(state)
        assert not other.packed.any()
    same = torch.nn.Sequential(nn.Linear(128, 72, type="f6_e3m2", group=64), torch.nn.ReLU())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        same.load_state_dict(state)
    assert torch.equal(same[0].packed, model[0].packed)


def test_states_that_do_not_say():
    """A plain dict, or a state of before, with a bias that is filled up: loaded where the shapes are the layer's."""
    linear = layer(128, 70)
    state = dict(linear.state_dict())
    state["bias"] = torch.nn.functional.pad(state["bias"], (0, 2))
    other = nn.Linear(128, 70, group=64)
    with pytest.warns(UserWarning, match=re.escape("they are taken for u4 in groups of 64")):
        other.load_state_dict(state)
    x = torch.randn(2, 128, dtype=torch.float16)
    assert torch.equal(other(x), linear(x)) and other.bias.shape == (70,)
    with pytest.warns(UserWarning), pytest.raises(RuntimeError, match="packed"):
        nn.Linear(128, 70, type="u3", group=64).load_state_dict(state)


def test_copies():
    linear = layer(zeros=True, batch_invariant=True)
    x = torch.randn(2, 128, dtype=torch.float16)
    y = linear(x)
    for other in (copy.deepcopy(linear), pickle.loads(pickle.dumps(linear)), copy.copy(linear)):
        assert torch.equal(other(x), y) and repr(other) == repr(linear)
    assert copy.deepcopy(linear).packed.data_ptr() != linear.packed.data_ptr()


def test_repr():
    text = repr(layer(zeros=True))
    assert (
        text
        == "Linear(in_features=128, out_features=72, bias=True, type=u4, group=64, zeros=True, dtype=torch.float16)"
    )


def test_other_halves():
    linear = layer().to(torch.bfloat16)
    x = torch.randn(2, 128, dtype=torch.bfloat16)
    assert linear.dtype == torch.bfloat16 and linear.packed.dtype == torch.uint8
    close(linear(x), exact(linear, x), 8e-3)


def test_given_codes():
    codes = torch.randint(0, 8, (64, 16), dtype=torch.uint8)
    scales, zeros = torch.rand(2, 16).half(), torch.randint(0, 8, (2, 16)).half()
    linear = nn.Linear.from_codes(codes, scales, zeros, torch.ones(16), type="u3", group=32)
    assert torch.equal(quantize.unpack(linear.packed, "u3", 32, 16), codes)
    x = torch.randn(3, 64, dtype=torch.float16)
    close(linear(x), x.double() @ weights_of(codes, scales, zeros, "u3", 32) + 1, 1e-3)
    with pytest.raises(ValueError, match="do not belong"):
        nn.Linear.from_codes(codes, scales[:1], type="u3", group=32)


@pytest.mark.parametrize("zeros", [False, True])
def test_layers_put_together(zeros):
    layers = [layer(128, n, bias=bias, zeros=zeros) for n, bias in ((64, True), (128, False), (20, True))]
    whole = nn.Linear.cat(layers)
    x = torch.randn(3, 128, dtype=torch.float16)
    assert whole.out_features == 212 and whole.in_features == 128
    assert torch.equal(whole(x), torch.cat([part(x) for part in layers], -1))
    assert torch.equal(whole.dequantize(), torch.cat([part.dequantize() for part in layers]))
    assert whole.bias.shape == (212,)
    assert nn.Linear.cat([layers[1]]).bias is None
    for other, message in [
        (layer(128, 64, group=32, zeros=zeros), "group differs"),
        (layer(128, 64, type="u3", zeros=zeros), "type differs"),
        (layer(256, 64, zeros=zeros), "in_features differs"),
        (layer(128, 64, zeros=not zeros), "zero points"),
    ]:
        with pytest.raises(ValueError, match=message):
            nn.Linear.cat([layers[0], other])
    with pytest.raises(ValueError, match="multiple of 64"):
        nn.Linear.cat(layers[::-1])


@pytest.mark.parametrize("device", DEVICES)
def test_autocast(device):
    linear = layer(device=device)
    x = torch.randn(2, 128, device=device)
    with torch.autocast(device, dtype=torch.bfloat16):
        y = linear(x)
        z = torch.ops.tilusvm.matmul_lowbit(x, linear.packed, linear.scales, None, None, "u4", 64)
    assert y.dtype == z.dtype == torch.float16
    assert torch.equal(y, linear(x.half()))


@pytest.mark.parametrize("device", DEVICES)
def test_gradient_of_the_input(device):
    linear = layer(device=device)
    x = torch.randn(2, 3, 128, device=device, dtype=torch.float16, requires_grad=True)
    weight = torch.randn(2, 3, 72, device=device, dtype=torch.float16)
    (linear(x) * weight).sum().backward()
    close(x.grad, weight.double() @ linear.dequantize().double(), 2e-3)


@pytest.mark.parametrize("device", DEVICES)
def test_compiled_without_graph_breaks(device):
    model = torch.nn.Sequential(layer(device=device), torch.nn.SiLU(), layer(72, 20, group=32, device=device)).eval()
    compiled = torch.compile(model, fullgraph=True, backend="inductor" if device == "cuda" else "aot_eager")
    with torch.no_grad():
        for rows in (1, 4, 6):  # the second number of rows makes the graph one of any number
            x = torch.randn(2, rows, 128, device=device, dtype=torch.float16)
            close(compiled(x), model(x), 2e-3)
    x = torch.randn(2, 4, 128, device=device, dtype=torch.float16, requires_grad=True)
    compiled(x).sum().backward()
    gradient, x.grad = x.grad, None
    model(x).sum().backward()
    close(gradient, x.grad, 2e-3)


@needs_gpu
def test_cuda_graphs():
    linear = layer(4096, 4096, group=128, device="cuda")
    x = torch.randn(2, 4096, device="cuda", dtype=torch.float16)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):  # nothing has run on this stream before
        y = linear(x)
    for _ in range(3):
        x.copy_(torch.randn_like(x))
        graph.replay()
        assert torch.equal(y, linear(x))


@needs_gpu
def test_streams():
    linear = layer(4096, 4096, group=128, device="cuda")
    x = torch.randn(1, 4096, device="cuda", dtype=torch.float16)
    y = linear(x)
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(20):
            assert torch.equal(linear(x), y)


def test_wrong_arguments():
    linear = layer()
    good = torch.randn(2, 128, dtype=torch.float16)
    with pytest.raises(TypeError, match=r"x must be torch\.float16, not torch\.float32"):
        linear(good.float())
    with pytest.raises(ValueError, match="x must have 128 columns"):
        linear(good[:, :64])
    with pytest.raises(ValueError, match="x must be on cpu, not on meta"):
        linear(good.to("meta"))
    with pytest.raises(TypeError, match="dtype"):
        nn.Linear(64, 64, dtype=torch.float32)
    with pytest.raises(ValueError, match="group"):
        nn.Linear(64, 64, group=48)
    with pytest.raises(ValueError, match="zeros"):
        nn.Linear(64, 64, type="f4_e2m1", zeros=True)
    with pytest.raises(TypeError, match="x must be a tensor, not list"):
        linear([1.0])
    with pytest.raises(TypeError, match="x must be a dense tensor, not a sparse_coo one"):
        linear(good.to_sparse())
    with pytest.raises(ValueError, match="in_features must be a number of features, not -1"):
        nn.Linear(-1, 64)
    with pytest.raises(TypeError, match="linear must be a torch.nn.Linear, not NoneType"):
        nn.Linear.from_float(None)
    with pytest.raises(TypeError, match="layers must be nn.Linear"):
        nn.Linear.cat([linear, None])
    linear.float()
    with pytest.raises(TypeError, match=r"scales must be torch\.float16"):
        linear(good)


def test_wrong_codes():
    """What would be other weights than those that are given."""
    codes, scales = torch.zeros(128, 64, dtype=torch.uint8), torch.ones(1, 64, dtype=torch.float16)
    for words, message in [
        ({"codes": codes + 16}, "codes must be below 16 for u4, not 16"),
        ({"codes": codes.int()}, "codes must be torch.uint8"),
        ({"scales": scales.float()}, "scales must be"),
        ({"zeros": scales[:, :8]}, "zeros must have the shape"),
        ({"bias": torch.ones(7)}, "bias must have 64 elements"),
    ]:
        with pytest.raises((TypeError, ValueError), match=message):
            nn.Linear.from_codes(**{"codes": codes, "scales": scales, "type": "u4", **words})
    linear = nn.Linear.from_codes(codes, scales, type="u4")
    for words, message in [
        ({"scales": scales[:0]}, "scales must have the shape"),
        ({"scales": [1]}, "scales must be a tensor"),
        ({"zeros": scales.to("meta")}, "zeros must be on cpu"),
    ]:
        with pytest.raises((TypeError, ValueError), match=message):
            quantize.dequantize(linear.packed, **{"scales": scales, "type": "u4", **words})


@needs_gpu
def test_wrong_device():
    linear = layer(device="cuda")
    with pytest.raises(ValueError, match="x must be on cuda:0, not on cpu"):
        linear(torch.randn(2, 128, dtype=torch.float16))
