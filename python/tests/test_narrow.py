"""Scales of 8 bits (NVFP4, MXFP4), which tvm-pack writes and nn.Linear multiplies by as they are in a checkpoint."""

import numpy
import pytest
from conftest import NO_TORCH, torch

if torch is None:
    pytest.skip(NO_TORCH, allow_module_level=True)

from test_checkpoint import imported, loaded, mxfp4, nvfp4  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch_kit import DEVICES, close, number, tvm_pack  # noqa: E402

from tilusvm import checkpoint, experts, nn, ops, parallel, storage  # noqa: E402
from tilusvm.engines.parts import Packed, Rows  # noqa: E402


def narrow(make, n=48):
    """A checkpoint's tensors, its weights f64 [k, n], and the scales' bytes [groups, n] with their type."""
    tensors, weight = make(256, n)
    scales = tensors["weight_scale"]
    dtype, raw = scales if isinstance(scales, tuple) else ("U8", scales)
    return tensors, weight, raw.T, {"U8": torch.uint8, "F8_E4M3": torch.float8_e4m3fn}[dtype]


def nvfp4_over(k, n):
    return nvfp4(k, n, True)


NARROW = pytest.mark.parametrize("make, dtype", [(nvfp4_over, torch.float16), (mxfp4, torch.bfloat16)])


@NARROW
@pytest.mark.parametrize("device", DEVICES)
def test_scales_of_8_bits(tmp_path, make, dtype, device):
    """They are the file's bytes, and the products those of halves; few rows, more, and a gradient."""
    tensors, weight, raw, kind = narrow(make)
    layer = loaded(tensors, tmp_path, device=device)
    assert (layer.dtype, layer.scale_dtype, layer.scales.dtype) == (dtype, kind, kind)
    assert numpy.array_equal(layer.scales.cpu().view(torch.uint8).numpy(), raw)
    (tmp_path / "wide").mkdir()
    wide = loaded(tensors, tmp_path / "wide", f"--scale={'f16' if dtype == torch.float16 else 'bf16'}", device=device)
    assert wide.scale_dtype is None and wide.scales.dtype == dtype
    assert torch.equal(wide.dequantize(), layer.dequantize())
    weight = torch.from_numpy(weight).to(device)
    close(layer.dequantize().double(), weight.t(), 1e-6)
    for rows in (1, 9, 40):
        x = torch.randn(rows, 256, generator=torch.Generator().manual_seed(1)).to(device, dtype)
        close(layer(x, out_dtype=torch.float32), x.double() @ weight, 1e-3)
        close(layer(x, out_dtype=torch.float32), wide(x, out_dtype=torch.float32).double(), 1e-3)
    x = x.requires_grad_()
    layer(x).float().sum().backward()
    close(x.grad[0], weight.sum(1), 4e-3 if dtype == torch.float16 else 2e-2)
    with pytest.raises(TypeError, match=f"x must be {dtype}"):
        layer(x.detach().float())


@NARROW
def test_scales_of_8_bits_are_kept(tmp_path, make, dtype):
    """Saved and loaded, in a state, on two ranks, joined, and where outputs are moved."""
    tensors, weight, raw, kind = narrow(make, 128)
    layer = loaded(tensors, tmp_path)
    x = torch.randn(3, 256, generator=torch.Generator().manual_seed(1)).to(dtype)
    model = torch.nn.Sequential(layer)
    storage.save(model, tmp_path / "saved")
    with torch.device("meta"):
        other = torch.nn.Sequential(torch.nn.Linear(256, 128, bias=False))
    storage.load(other, tmp_path / "saved")
    assert other[0].scale_dtype == kind and other[0].dtype == dtype and torch.equal(other(x), model(x))
    words = {"type": "f4_e2m1", "group": layer.group, "dtype": dtype, "multiplier": layer.multiplier is not None}
    empty = nn.Linear(256, 128, False, scale_dtype=kind, **words)
    empty.load_state_dict(layer.state_dict())
    assert torch.equal(empty(x), layer(x))
    with pytest.raises(RuntimeError, match="with scales of"):
        nn.Linear(256, 128, False, **words).load_state_dict(layer.state_dict())
    for world in (2, 8):  # whole granules of 64, and 16 outputs that are packed anew
        parts = [parallel.shard(layer, rank, world, "out") for rank in range(world)]
        assert {part.scale_dtype for part in parts} == {kind}
        assert torch.equal(torch.cat([part.dequantize() for part in parts]), layer.dequantize())
    assert parallel.shard(layer, 1, 16, "out").scale_dtype is None  # 8 outputs
    order = torch.randperm(128, generator=torch.Generator().manual_seed(2))
    assert torch.equal(layer.rearranged(order).dequantize(), layer.dequantize()[order])
    if layer.multiplier is None:
        both = nn.Linear.cat([layer, layer])
        assert both.scale_dtype == kind and torch.equal(both(x), layer(x).repeat(1, 2))


def test_scales_of_8_bits_and_half(tmp_path):
    """half() and the like are for activations: e4m3 goes with both halves, e8m0 with bfloat16."""
    layer = loaded(narrow(nvfp4_over)[0], tmp_path)
    raw, exact = layer.scales.view(torch.uint8).clone(), layer.dequantize()
    layer.bfloat16()
    assert layer.dtype == torch.bfloat16 and torch.equal(layer.scales.view(torch.uint8), raw)
    x = torch.randn(3, 256).bfloat16()
    close(layer(x), x.double() @ exact.double().t(), 1.6e-2)
    (tmp_path / "mx").mkdir()
    layer = loaded(narrow(mxfp4)[0], tmp_path / "mx")
    exact = layer.dequantize()
    layer.half()
    assert layer.dtype == layer.scales.dtype == torch.float16 and layer.scale_dtype is None
    close(layer.dequantize(), exact.double(), 1e-3)


def test_scales_beyond_the_program(tmp_path):
    """Powers of two above 2^28, and outputs that are no multiple of 16, take halves."""
    for name, n, most, kept in (("a", 48, 155, True), ("b", 48, 156, False), ("c", 40, 130, False)):
        tensors, weight = mxfp4(64, n)
        tensors["weight_scale"][0, 0] = most
        (tmp_path / name).mkdir()
        layer = loaded(tensors, tmp_path / name)
        assert (layer.scale_dtype is not None) == kept and layer.dtype == torch.bfloat16
        row = torch.zeros(1, 64, dtype=torch.bfloat16)
        row[0, :32] = 1
        want = layer.dequantize().double()[:, :32].sum(1)
        close(layer(row, out_dtype=torch.float32)[0], want, 1e-3)


def test_narrow_scales_are_read_again(tmp_path):
    """tvm-pack reads what it has written: the same weights as floats, and the same file."""
    for name, make in (("nv", nvfp4_over), ("mx", mxfp4)):
        tensors, weight, raw, _ = narrow(make)
        folder = tmp_path / name
        folder.mkdir()
        target = imported(folder, {f"x.{key}": value for key, value in tensors.items()})
        tvm_pack("--from=tilusvm", target, "-o", folder / "again")
        tvm_pack("--from=tilusvm", "--type=f32", target, "-o", folder / "floats")
        first, again = (storage.File(folder / which / "model.safetensors") for which in ("ours", "again"))
        assert set(first.entries) == set(again.entries)
        assert all(torch.equal(_raw(first.tensor(key)), _raw(again.tensor(key))) for key in first.entries)
        floats = storage.File(folder / "floats" / "model.safetensors").tensor("x.weight")
        close(floats, torch.from_numpy(weight.T.copy()), 1e-6)


def _raw(tensor):
    return tensor.reshape(-1).view(torch.uint8)


@NARROW
def test_parts_of_an_engine(tmp_path, make, dtype):
    """A rank's part of the inputs and of the outputs, of what tvm-pack wrote and of what storage.save did; beside e4m3
    activations are what the engine runs in."""
    tensors, weight, _, kind = narrow(make, 128)
    target = imported(tmp_path, {f"x.{name}": value for name, value in tensors.items()})
    file = storage.File(target / "model.safetensors")
    theirs = {name.removeprefix("x."): file.tensor(name).clone() for name in file.entries}
    whole = nn.Linear.from_strings(
        theirs["packed"], theirs["scales"], type="f4_e2m1", group=256 // len(theirs["scales"]), in_features=256,
        out_features=128, multiplier=theirs.get("multiplier"),
    )  # fmt: skip
    ours = {name: value for name, value in whole.state_dict().items() if name in theirs}
    rows, packed = Rows("x", file.metadata["x.packed"], "file"), Packed("f4_e2m1", whole.group)
    for how, own in ((rows, theirs), (packed, ours)):
        for axis, begin, end in (("out", 64, 128), ("out", 32, 48), ("in", 128, 256)):
            cut = {name: how.cut(name, value, axis, begin, end) for name, value in own.items()}
            inputs, outputs = (end - begin, 128) if axis == "in" else (256, end - begin)
            layer = how.linear(cut, inputs, outputs, torch.bfloat16)
            assert (layer.scale_dtype, layer.dtype) == (kind, torch.bfloat16)
            part = weight[begin:end] if axis == "in" else weight[:, begin:end]
            close(layer.dequantize(), torch.from_numpy(part.T.copy()), 1e-6)


@NARROW
def test_fused_products(tmp_path, make, dtype):
    """Of few rows, with a sum behind the product or nothing before it; and as torch.compile sees them, by shape."""
    layer = loaded(narrow(make, 64)[0], tmp_path)
    draw = torch.Generator().manual_seed(1)
    x, residual = (torch.randn(2, width, generator=draw).to(dtype) for width in (256, 64))
    exact = x.double() @ layer.dequantize().double().t()
    bound = 2e-3 if dtype == torch.float16 else 1.6e-2
    close(layer.normed(x), exact, bound)
    total = residual.double() + exact
    layer.add_to(residual, x, torch.ones(64, dtype=dtype))
    close(residual, total, bound)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        y = layer(mode.from_tensor(x))
    assert (y.shape, y.dtype) == ((2, 64), dtype)


def test_a_model_in_bfloat16(tmp_path):
    """What from_pretrained asks for goes with e4m3, whose scales stay."""
    tensors, weight, raw, kind = narrow(nvfp4_over)
    target = imported(tmp_path, {f"x.{name}": value for name, value in tensors.items()})
    file = storage.File(target / "model.safetensors")
    (layer,) = checkpoint.layers_of(file.path, file.metadata).values()
    assert layer.goes_with(torch.float16) and layer.goes_with(torch.bfloat16) and not layer.goes_with(torch.float32)
    own = {name.removeprefix("x."): file.tensor(name).clone() for name in file.entries}
    made = layer.layer(own, torch.bfloat16)
    assert (made.dtype, made.scale_dtype) == (torch.bfloat16, kind)
    assert numpy.array_equal(made.scales.view(torch.uint8).numpy(), raw)
    x = torch.randn(3, 256, generator=torch.Generator().manual_seed(1)).bfloat16()
    close(made(x, out_dtype=torch.float32), x.double() @ torch.from_numpy(weight), 8e-3)


def stacked(make, tmp_path, count=3, n=48):
    """A stack of as many experts of a checkpoint each, and its weights f64 [count, k, n]."""
    layers, weights = [], []
    for i in range(count):
        tensors, weight, *_ = narrow(make, n)
        tensors["weight_packed"] = numpy.roll(tensors["weight_packed"], i, 0)
        at = numpy.roll(numpy.arange(n), i)
        scales = tensors["weight_scale"]
        tensors["weight_scale"] = (scales[0], scales[1][at]) if isinstance(scales, tuple) else scales[at]
        folder = tmp_path / str(i)
        folder.mkdir(parents=True)
        layers.append(loaded(tensors, folder))
        weights.append(weight[:, at])
    return experts.Experts.from_linears(layers), torch.from_numpy(numpy.stack(weights))


@NARROW
@pytest.mark.parametrize("device", DEVICES)
def test_stacks_of_experts(tmp_path, make, dtype, device):
    """They have the file's bytes, too; products against float64, of few rows and more, with a gate; saved, loaded, and
    a part of them."""
    stack, weights = stacked(make, tmp_path)
    kind = narrow(make)[3]
    assert (stack.scale_dtype, stack.scales.dtype, stack.dtype) == (kind, kind, dtype)
    stack, weights = stack.to(device), weights.to(device)
    for rows in (4, 70):
        index = (torch.arange(rows) % 3).to(device)
        x = torch.randn(rows, 256, generator=torch.Generator().manual_seed(rows)).to(device, dtype)
        exact = torch.einsum("ik,ikn->in", x.double(), weights[index])
        close(stack(x, index), exact, 1e-3 if dtype == torch.float16 else 4e-3)
        a, b = exact[:, ::2], exact[:, 1::2]
        close(stack(x, index, gate="silu"), torch.nn.functional.silu(a) * b, 2e-3 if dtype == torch.float16 else 8e-3)
    for i in range(3):
        one = stack.linear(i)
        assert one.scale_dtype == kind and torch.equal(one.dequantize(), stack.dequantize()[i])
    storage.save(torch.nn.Sequential(stack), tmp_path / "saved")
    other = torch.nn.Sequential(experts.Experts(3, 256, 48, False, device="meta"))
    storage.load(other, tmp_path / "saved", device=device)
    assert (other[0].scale_dtype, other[0].dtype) == (kind, dtype)
    assert torch.equal(other[0](x, index), stack(x, index))


def test_stacks_that_differ(tmp_path):
    """Where an expert has a power of two that the program does not take, all have halves, and the same weights."""
    first, wide = (loaded(narrow(mxfp4)[0], tmp_path / name) for name in ("a", "b") if not (tmp_path / name).mkdir())
    wide._set_scales(torch.full_like(wide.scales, 160), torch.bfloat16)
    assert wide.scale_dtype is None
    for layers in ([first, wide, first], [wide, first]):
        stack = experts.Experts.from_linears(layers)
        assert stack.scale_dtype is None and stack.dtype == torch.bfloat16
        for i, layer in enumerate(layers):
            assert torch.equal(stack.linear(i).dequantize(), layer.dequantize())


def test_refusals(tmp_path):
    layer = loaded(narrow(mxfp4, 64)[0], tmp_path)
    x, words = torch.zeros(2, 256, dtype=torch.bfloat16), {"type": "f4_e2m1", "group": 32}
    with pytest.raises(ValueError, match="scales must have a multiple of 16 columns"):
        ops.matmul_lowbit(x, layer.packed, layer.scales[:, :40].contiguous(), **words)
    with pytest.raises(TypeError, match=r"x must be torch\.float16 or torch\.bfloat16"):
        ops.matmul_lowbit(x.float(), layer.packed, layer.scales, **words)
    for size, dtype in ((64, torch.float16), (40, torch.bfloat16)):
        with pytest.raises(ValueError, match="multiple of 16 outputs, and powers of two with torch.bfloat16"):
            nn.Linear(256, size, scale_dtype=torch.uint8, dtype=dtype, **words)
    stack = experts.Experts.from_linears([layer, layer])
    with pytest.raises(TypeError, match=r"Experts: x must be torch\.bfloat16"):
        stack(x.half(), torch.tensor([0, 1]))


def test_from_codes():
    """Scales of float8_e8m0fnu are their bits, in a stack of experts, too."""
    e8m0 = getattr(torch, "float8_e8m0fnu", None)
    if e8m0 is None:
        pytest.skip("this torch has no float8_e8m0fnu")
    draw = torch.Generator().manual_seed(3)
    codes = torch.randint(0, 16, (64, 32), generator=draw, dtype=torch.uint8)
    raw = torch.randint(120, 130, (2, 32), generator=draw, dtype=torch.uint8)
    layer = nn.Linear.from_codes(codes, raw.view(e8m0), type="f4_e2m1", group=32)
    assert layer.dtype == torch.bfloat16 and torch.equal(layer.scales, raw)
    powers = torch.exp2(raw.double() - 127).repeat_interleave(32, 0)
    values = torch.tensor([number("f4_e2m1", code) for code in range(16)])[codes.int()] * powers
    assert torch.equal(layer.dequantize().double(), values.t())
    stack = experts.Experts.from_linears([layer, layer])
    assert (stack.scale_dtype, stack.dtype) == (torch.uint8, torch.bfloat16) and torch.equal(stack.scales[1], raw)
    assert torch.equal(stack.dequantize()[1].double(), values.t())
