"""Products whose both sides have 4 bits, NVFP4 and MXFP4: operators, layers, and checkpoints of others.

What is expected is computed by microscaled_kit's definitions, and products in float64."""

import json

import pytest
from conftest import NO_TORCH, torch

if torch is None:
    pytest.skip(NO_TORCH, allow_module_level=True)

from microscaled_kit import (  # noqa: E402
    F8,
    MAGNITUDES,
    SCALES,
    SIZES,
    codes_of,
    nearest,
    powers,
    rounded,
    unpacked,
    values,
    whole_scale,
)
from torch_kit import DEVICES, close, number, small_model, tvm_pack  # noqa: E402

import tilusvm  # noqa: E402
from tilusvm import UnsupportedError, nn, ops, quantize, storage  # noqa: E402
from tilusvm._device import multiplies_four  # noqa: E402
from tilusvm.nn8 import Linear8  # noqa: E402

HALF, FLOAT, F4 = torch.float16, torch.float32, torch.float4_e2m1fn_x2
KINDS = ("nvfp4", "mxfp4")


@pytest.fixture(params=DEVICES)
def device(request):
    torch.manual_seed(21)
    return request.param


# ---- operators ----


@pytest.mark.parametrize("kind, whole", [("nvfp4", False), ("nvfp4", True), ("mxfp4", False)])
@pytest.mark.parametrize("dtype", [HALF, torch.bfloat16, FLOAT])
def test_quantize_rows(device, dtype, kind, whole):
    x = (torch.randn(2, 3, 128, device=device) * torch.rand(2, 3, 1, device=device) * 3).to(dtype)
    x[0, 1, :32] = 0
    scale = whole_scale(x) if whole else None
    words = {"group": SIZES[kind], "scale_dtype": SCALES[kind], "scale": scale}
    y, s = ops.quantize_rows(x, torch.uint8, **words)
    numbers, steps = rounded(x, kind, scale)
    assert y.shape == (2, 3, 64) and y.dtype == torch.uint8 and s.dtype == SCALES[kind]
    live = numbers.unflatten(-1, (-1, SIZES[kind])).ne(0).any(-1)  # of zeros any scale is right
    assert torch.equal(powers(s)[live], steps[live]) and torch.equal(unpacked(y), numbers)
    turned, by_group = ops.quantize_rows(x, torch.uint8, by_group=True, **words)
    assert torch.equal(turned, y) and by_group.shape == (128 // SIZES[kind], 8)
    assert torch.equal(by_group[:, :6].t().double(), s.view(6, -1).double())
    both = torch.cat([x, x], -1)
    gated = ops.swiglu_quantized(both, torch.uint8, SIZES[kind], scale_dtype=SCALES[kind], scale=scale)
    expected = ops.quantize_rows(ops.swiglu(both), torch.uint8, **words)
    assert all(torch.equal(one.view(torch.uint8), other.view(torch.uint8)) for one, other in zip(gated, expected))


@pytest.mark.parametrize("kind, whole", [("nvfp4", False), ("nvfp4", True), ("mxfp4", False), ("mxfp8", False)])
@pytest.mark.parametrize("dtype", [HALF, torch.bfloat16])
def test_norms(device, dtype, kind, whole):
    """Quantized as rms_norm gives them: no farther from the norm in float64 than the nearest numbers are."""
    x, residual, weight = (torch.randn(*shape, device=device).to(dtype) for shape in ((2, 3, 256), (2, 3, 256), (256,)))
    total = x + residual
    scale = whole_scale(ops.rms_norm(total, weight)) if whole else None
    words = {"group": SIZES[kind], "scale_dtype": SCALES[kind], "scale": scale}
    kind_of = F8 if kind == "mxfp8" else torch.uint8
    exact = total.double() * (total.double().square().mean(-1, keepdim=True) + 1e-6).rsqrt() * weight.double()
    least = (values(exact.to(dtype), kind, scale) - exact).norm()
    plain = ops.rms_norm_quantized(total, weight, dtype=kind_of, **words)
    added = ops.add_rms_norm_quantized(x, residual, weight, dtype=kind_of, **words)
    assert torch.equal(residual, total)
    for y, s in (plain, added):
        assert y.dtype == kind_of and s.dtype == SCALES[kind] and s.shape == (2, 3, 256 // SIZES[kind])
        numbers = y.double() if kind == "mxfp8" else unpacked(y)
        found = numbers * powers(s).repeat_interleave(SIZES[kind], -1) * (1 if scale is None else scale.double())
        assert (found - exact).norm() < 1.001 * least
    turned, by_group = ops.rms_norm_quantized(total, weight, dtype=kind_of, by_group=True, **words)
    assert torch.equal(turned.view(torch.uint8), plain[0].view(torch.uint8))
    assert torch.equal(by_group[:, :6].t().double(), plain[1].view(6, -1).double())


@pytest.mark.parametrize("kind, whole", [("nvfp4", False), ("nvfp4", True), ("mxfp4", False), ("mxfp8", False)])
def test_layer_norm(device, kind, whole):
    x, weight, bias = (torch.randn(*shape, device=device).half() for shape in ((6, 256), (256,), (256,)))
    exact = torch.nn.functional.layer_norm(x.double(), (256,), weight.double(), bias.double(), 1e-5)
    scale = whole_scale(exact.to(HALF)) if whole else None
    words = {"group": SIZES[kind], "scale_dtype": SCALES[kind], "scale": scale}
    kind_of = F8 if kind == "mxfp8" else torch.uint8
    y, s = ops.layer_norm_quantized(x, weight, bias, dtype=kind_of, **words)
    assert y.dtype == kind_of and s.dtype == SCALES[kind] and s.shape == (6, 256 // SIZES[kind])
    numbers = y.double() if kind == "mxfp8" else unpacked(y)
    found = numbers * powers(s).repeat_interleave(SIZES[kind], -1) * (1 if scale is None else scale.double())
    assert (found - exact).norm() < 1.001 * (values(exact.to(HALF), kind, scale) - exact).norm()


@pytest.mark.parametrize("kind", [*KINDS, "mxfp8"])
def test_layers_behind_norms(device, kind):
    """The layer takes what the norm has rounded, as it would have itself."""
    type = "f8_e4m3" if kind == "mxfp8" else "f4_e2m1"
    layer = Linear8.from_float(torch.nn.Linear(256, 24).half(), type, SIZES[kind], activations=kind, device=device)
    x, weight = torch.randn(5, 256, device=device).half(), torch.randn(256, device=device).half()
    norm = ops.rms_norm(x, weight)
    scale = whole_scale(norm) if kind == "nvfp4" else None
    words = {"group": SIZES[kind], "scale_dtype": SCALES[kind], "scale": scale}
    given = ops.rms_norm_quantized(x, weight, dtype=F8 if kind == "mxfp8" else torch.uint8, **words)
    close(layer(given if scale is None else (*given, scale)), layer(norm), 1e-2)


def test_the_order_of_numbers(device):
    """In a byte, as compressed-tensors packs them; and torch's own types are those bytes."""
    x = torch.tensor(MAGNITUDES + [-m for m in MAGNITUDES], dtype=HALF, device=device).repeat(1, 2)
    y, s = ops.quantize_rows(x, torch.uint8, 32, scale_dtype=torch.uint8)
    assert y[0, :8].tolist() == [0x10, 0x32, 0x54, 0x76, 0x98, 0xBA, 0xDC, 0xFE] and s.tolist() == [[127]]
    typed, steps = ops.quantize_rows(x, F4, 32, scale_dtype=torch.float8_e8m0fnu)
    assert typed.dtype == F4 and steps.dtype == torch.float8_e8m0fnu
    assert torch.equal(typed.view(torch.uint8), y) and torch.equal(steps.view(torch.uint8), s)
    # float32 scales go with 4 bits, too
    y, s = ops.quantize_rows(x, F4, 32)
    assert s.tolist() == [[1.0]] and torch.equal(y.view(torch.uint8), typed.view(torch.uint8))


def test_bytes_of_compressed_tensors():
    helpers = pytest.importorskip("compressed_tensors.compressors.nvfp4.helpers")
    numbers = nearest(torch.randn(8, 64) * 3)
    theirs = helpers.pack_fp4_to_uint8(numbers.bfloat16())
    assert torch.equal(unpacked(theirs), numbers)
    numbers[:, 0] = 6.0  # so that the scale of a group of 64 is 1
    theirs = helpers.pack_fp4_to_uint8(numbers.bfloat16())
    assert torch.equal(ops.quantize_rows(numbers.float(), torch.uint8, 64)[0], theirs)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("m", [1, 6])
def test_matmul_scaled(device, kind, m):
    x, w = torch.randn(m, 256, device=device).half(), torch.randn(72, 256, device=device).half() * 0.05
    words = {"group": SIZES[kind], "scale_dtype": SCALES[kind]}
    whole = [whole_scale(t) if kind == "nvfp4" else None for t in (x, w)]
    (a, sa), (b, sb) = (ops.quantize_rows(t, torch.uint8, scale=g, **words) for t, g in zip((x, w), whole))
    bias, alpha = torch.randn(72, device=device), whole[0] * whole[1] if kind == "nvfp4" else None
    exact = values(x, kind, whole[0]) @ values(w, kind, whole[1]).t() + bias.double()
    y = ops.matmul_scaled(a, b, sa, sb, bias, group=SIZES[kind], alpha=alpha, out_dtype=FLOAT)
    close(y, exact, 1e-5)
    typed = [t.view(F4) for t in (a, b)] + [s.view(torch.float8_e8m0fnu) if kind == "mxfp4" else s for s in (sa, sb)]
    same = ops.matmul_scaled(*typed, bias, group=SIZES[kind], alpha=alpha, out_dtype=FLOAT)
    assert torch.equal(same, y)
    halves = ops.matmul_scaled(a[None], b, sa[None], sb, bias, group=SIZES[kind], alpha=alpha)
    assert halves.shape == (1, m, 72) and torch.equal(halves[0], y.bfloat16())


@pytest.mark.parametrize("type", ["f4_e2m1", "f6_e2m3", "f6_e3m2"])
@pytest.mark.parametrize("group", [0, 32, 128])
def test_narrow_weights(device, type, group):
    """Of matmul_scaled, beside activations of 8 bits."""
    dtype, bits = F8, int(type[1])
    words = {"scale_dtype": torch.uint8} if group == 32 else {}
    a, sa = ops.quantize_rows(torch.randn(5, 128, device=device).half(), dtype, group, **words)
    b = torch.randint(0, 256, (24, 128 * bits // 8), dtype=torch.uint8, device=device)
    if group == 32:
        sb = torch.randint(120, 130, (24, 4), dtype=torch.uint8, device=device)
    else:
        sb = torch.rand(1 if group else 24, 1, device=device)
    left = a.double() * powers(sa).repeat_interleave(128 // sa.shape[1], 1)
    right = unpacked(b, type) * powers(sb).expand(24, -1).repeat_interleave(128 // sb.shape[1], 1)
    y = ops.matmul_scaled(a, b, sa, sb, group=group, out_dtype=FLOAT, type_b=type)
    close(y, left @ right.t(), 1e-3)


BYTES, STEPS = torch.zeros(2, 64, dtype=torch.uint8), torch.ones(2, 4, dtype=torch.uint8)
EIGHT, WEIGHTS = torch.zeros(2, 128).to(F8), torch.zeros(8, 64, dtype=torch.uint8)


@pytest.mark.parametrize(
    "arguments, words, kind, said",
    [
        ((BYTES, WEIGHTS, STEPS, STEPS), {}, ValueError, "group 16 .NVFP4. and 32"),
        ((EIGHT, WEIGHTS, STEPS, STEPS), {"group": 16}, ValueError, "group 16 .NVFP4. goes with a of uint8"),
        ((BYTES, WEIGHTS, STEPS, STEPS), {"group": 32, "alpha": torch.ones(1)}, ValueError, "alpha goes with group 16"),
        ((BYTES, WEIGHTS, STEPS, STEPS), {"group": 32, "type_b": "f6_e2m3"}, ValueError, "type_b must be f4_e2m1, too"),
        ((EIGHT, WEIGHTS, STEPS, STEPS), {"group": 32, "type_b": "u4"}, ValueError, "type_b must be f4_e2m1, f6_e2m3"),
        ((BYTES, EIGHT, STEPS, STEPS), {"group": 32}, TypeError, "b must be torch.uint8"),
        ((BYTES[:, 32:].clone(), WEIGHTS, STEPS, STEPS), {"group": 32}, ValueError, "a must have 64 columns of bytes"),
        ((BYTES[:, 32:].clone(), WEIGHTS[:, 32:].clone(), STEPS, STEPS), {"group": 32}, ValueError, "128 num.*.8, 64."),
        ((BYTES, WEIGHTS, STEPS, STEPS), {"group": 16}, TypeError, "scale_a must be torch.float8_e4m3fn"),
        ((BYTES, WEIGHTS, STEPS[:, :2].clone(), STEPS), {"group": 32}, ValueError, r"scale_a must have .*\[2, 4\]"),
        ((BYTES.short(), WEIGHTS, STEPS, STEPS), {"group": 32}, TypeError, "a must be .*not torch.int16"),
    ],
)  # fmt: skip
def test_products_that_are_refused(arguments, words, kind, said):
    with pytest.raises(kind, match=f"matmul_scaled: .*{said}"):
        ops.matmul_scaled(*arguments, **words)


@pytest.mark.parametrize(
    "words, kind, said",
    [
        ({"dtype": torch.uint8}, ValueError, "goes with a group"), ({"dtype": torch.int32}, TypeError, "dtype must be"),
        ({"dtype": torch.uint8, "group": 64, "scale_dtype": torch.uint8}, ValueError, "e8m0 goes with group 32"),
        ({"dtype": torch.uint8, "group": 32, "scale_dtype": F8}, ValueError, "goes with group 16 of uint8"),
        ({"dtype": torch.uint8, "group": 32, "scale": torch.ones(1)}, ValueError, "scale goes with"),
        ({"dtype": torch.uint8, "group": 16, "scale_dtype": HALF}, TypeError, "scale_dtype must be"),
        ({"dtype": torch.uint8, "group": 16, "scale_dtype": F8, "scale": torch.ones(2)}, ValueError, r"shape \[1\]"),
        ({"dtype": torch.uint8, "group": 48}, ValueError, "group must be 0, 16, 32"),
    ],
)  # fmt: skip
def test_numbers_that_are_refused(words, kind, said):
    for op, x in ((ops.quantize_rows, torch.zeros(2, 128)), (ops.swiglu_quantized, torch.zeros(2, 256))):
        with pytest.raises(kind, match=f"quantize.*{said}"):
            op(x, **words)


@pytest.mark.parametrize("kind", KINDS)
def test_fake_tensors(kind):
    x, scale = torch.randn(3, 128), torch.ones(1) if kind == "nvfp4" else None
    made = (torch.uint8, SIZES[kind], False, SCALES[kind], scale)
    library, tests = torch.ops.tilusvm, ("test_schema", "test_faketensor")
    if kind == "nvfp4":
        tests = tests[1:]  # which multiplies results, and f8 torch does not
    torch.library.opcheck(library.quantize_rows.default, (x, *made), test_utils=tests)
    doubled = (torch.cat([x, x], -1), *made[:2], "silu", *made[2:])
    torch.library.opcheck(library.swiglu_quantized.default, doubled, test_utils=tests)
    a, sa = ops.quantize_rows(x, *made)
    b, sb = ops.quantize_rows(torch.randn(8, 128), *made)
    arguments = (a, b, sa, sb, None, SIZES[kind], HALF, False, scale)
    torch.library.opcheck(library.matmul_scaled.default, arguments, test_utils=tests)
    fake = ops.matmul_scaled(*(t.to("meta") for t in (a, b, sa, sb)), group=SIZES[kind])
    assert fake.is_meta and fake.shape == (3, 8) and fake.dtype == torch.bfloat16


# ---- layers ----


@pytest.mark.parametrize("kind", KINDS)
def test_linear(device, kind):
    linear = torch.nn.Linear(256, 72).to(device).half()
    layer = nn.Linear.from_float(linear, "f4_e2m1", SIZES[kind], activations=kind)
    assert isinstance(layer, Linear8) and f"activations={kind}" in repr(layer) and layer.dtype == HALF
    weight = linear.weight.detach()
    exact = values(weight, kind, whole_scale(weight) if kind == "nvfp4" else None)
    close(layer.dequantize(), exact, 1e-6)
    x = torch.randn(2, 3, 256, device=device).half()
    y = values(x, kind, whole_scale(x) if kind == "nvfp4" else None) @ exact.t() + linear.bias.double()
    close(layer(x), y, 2e-3)
    assert layer(x.bfloat16()).dtype == torch.bfloat16 and layer(x[:, :0]).shape == (2, 0, 72)
    assert layer(torch.zeros_like(x)).isfinite().all()
    scale = whole_scale(x) if kind == "nvfp4" else None
    given = ops.quantize_rows(x, torch.uint8, SIZES[kind], scale_dtype=SCALES[kind], scale=scale)
    assert torch.equal(layer(given if scale is None else (*given, scale)), layer(x))
    kinds = {name: buffer.dtype for name, buffer in layer.named_buffers()}
    layer.bfloat16()
    assert layer.dtype == torch.bfloat16 and {name: b.dtype for name, b in layer.named_buffers()} == kinds
    with pytest.raises(RuntimeError, match=f"activations of {kind}"):
        Linear8(256, 72, type="f4_e2m1", group=32, activations="f8_e4m3").load_state_dict(layer.state_dict())


def test_a_scale_of_all_activations(device):
    """Static: what is beyond the greatest numbers of the file's scale saturates."""
    layer = Linear8.from_float(torch.nn.Linear(128, 8).to(device).half(), "f4_e2m1", 16, activations="nvfp4")
    step = torch.tensor([0.0004], device=device)
    layer.input_scale = step
    x = torch.randn(3, 128, device=device).half()
    close(layer(x), values(x, "nvfp4", step) @ layer.dequantize().double().t() + layer.bias.double(), 2e-3)
    assert "static=True" in repr(layer)


@pytest.mark.parametrize("kind", KINDS)
def test_codes(device, kind):
    codes = torch.randint(0, 16, (128, 72), dtype=torch.uint8)
    if kind == "nvfp4":
        scales, multiplier = (torch.rand(8, 72) + 0.5).to(F8), torch.tensor([0.25])
    else:
        scales, multiplier = torch.randint(120, 130, (4, 72), dtype=torch.uint8), None
    table = torch.tensor([number("f4_e2m1", code) for code in range(16)], dtype=torch.float64)
    exact = table[codes.long()] * powers(scales).repeat_interleave(SIZES[kind], 0)
    exact = exact if multiplier is None else exact * 0.25
    given = codes.to(device), scales.to(device)
    layer = Linear8.from_codes(
        *given, type="f4_e2m1", group=SIZES[kind], activations=kind, multiplier=multiplier, dtype=HALF
    )
    assert torch.equal(layer.dequantize().double(), exact.t().to(device))
    halves = [
        Linear8.from_codes(*(t[:, part].contiguous() for t in given), type="f4_e2m1", group=SIZES[kind],
                           activations=kind, multiplier=multiplier)
        for part in (slice(0, 24), slice(24, 72))
    ]  # fmt: skip
    halves[1].bias = torch.ones(48, device=device)
    whole = Linear8.cat(halves)
    assert torch.equal(whole.dequantize(), layer.dequantize()) and whole.bias.tolist() == [0.0] * 24 + [1.0] * 48
    if kind == "nvfp4":
        halves[1].multiplier.fill_(0.5)
        with pytest.raises(ValueError, match="scales of all weights differ"):
            Linear8.cat(halves)


@pytest.mark.parametrize(
    "words, said",
    [
        ({"type": "u4", "group": 16}, "type must be f4_e2m1 with activations of nvfp4"),
        ({"group": 32}, "group of f4_e2m1 must be 16"), ({"activations": "mxfp4", "group": 16}, "must be 32"),
        ({"activations": "mxfp4", "group": 32, "static": True}, "static goes with"),
        ({"in_features": 64}, "multiple of 128"),
    ],
)  # fmt: skip
def test_layers_that_are_refused(words, said):
    words = {"in_features": 128, "out_features": 8, "type": "f4_e2m1", "group": 16, "activations": "nvfp4", **words}
    with pytest.raises(ValueError, match=f"Linear8: .*{said}"):
        Linear8(**words)


@pytest.mark.parametrize("kind", KINDS)
def test_models(tmp_path, device, kind):
    model = small_model().to(device).bfloat16()
    x = torch.randn(3, 128, device=device).bfloat16()
    exact = model(x)
    quantize.quantize_(model, "f4_e2m1", SIZES[kind], ["head"], activations=kind, progress=False)
    y = model(x)
    assert (y.float() - exact.float()).norm() < 0.3 * exact.float().norm()
    storage.save(model, tmp_path)
    other = storage.load(small_model().to("meta"), tmp_path, device=device)
    assert other.up.extra_repr() == model.up.extra_repr() and torch.equal(other(x), y)
    with torch.no_grad():
        assert torch.equal(torch.compile(model, backend="aot_eager", fullgraph=True)(x), y)


# ---- checkpoints ----


def arguments(kind, dynamic):
    strategy = {"nvfp4": "tensor_group", "mxfp4": "group"}[kind]
    return {"num_bits": 4, "type": "float", "strategy": strategy, "group_size": SIZES[kind], "symmetric": True,
            "dynamic": dynamic}  # fmt: skip


def checkpoint(path, kind, **changes):
    """A folder of compressed-tensors with one layer, and what its weights are."""
    weight = torch.randn(72, 256)
    scale = whole_scale(weight) if kind == "nvfp4" else None
    numbers, steps = rounded(weight, kind, scale)
    tensors = {"weight_packed": codes_of(numbers), "bias": torch.randn(72).bfloat16()}
    if kind == "nvfp4":
        tensors |= {
            "weight_scale": steps.float().to(F8), "weight_global_scale": 1 / scale,
            "input_global_scale": torch.tensor([1000.0]),
        }  # fmt: skip
    else:
        tensors["weight_scale"] = (steps.log2() + 127).to(torch.uint8)
    theirs = torch.nn.Sequential(torch.nn.Module())
    for name, tensor in {**tensors, **changes}.items():
        if tensor is not None:
            theirs[0].register_buffer(name, tensor)
    storage.save(theirs, path)
    dynamic = "local" if kind == "nvfp4" else True
    group = {"targets": ["Linear"], "weights": arguments(kind, False), "input_activations": arguments(kind, dynamic)}
    config = {"quant_method": "compressed-tensors", "format": f"{kind}-pack-quantized", "config_groups": {"0": group}}
    (path / "config.json").write_text(json.dumps({"quantization_config": config, "dtype": "bfloat16"}))
    return values(weight, kind, scale), tensors["bias"].double()


def empty():
    with torch.device("meta"):
        return torch.nn.Sequential(torch.nn.Linear(256, 72))


@pytest.mark.parametrize("kind", KINDS)
def test_checkpoints(tmp_path, device, kind):
    weight, bias = checkpoint(tmp_path, kind)
    layer = storage.load(empty(), tmp_path, device=device, activations=kind)[0]
    assert isinstance(layer, Linear8) and layer.activations == kind and layer.dtype == torch.bfloat16
    close(layer.dequantize(), weight.to(device), 1e-6)
    x = torch.randn(3, 256, device=device).bfloat16()
    step = torch.tensor([0.001], device=device) if kind == "nvfp4" else None
    close(layer(x), values(x, kind, step) @ weight.to(device).t() + bias.to(device), 8e-3)
    storage.save(torch.nn.Sequential(layer), tmp_path / "own")
    assert torch.equal(storage.load(empty(), tmp_path / "own", device=device)[0](x), layer(x))


def test_a_layer_that_compressed_tensors_packs(tmp_path):
    """Its own compressor and decompressor, whose results are bfloat16."""
    theirs = pytest.importorskip("compressed_tensors.compressors.nvfp4.base").NVFP4PackedCompressor
    from compressed_tensors.quantization import QuantizationScheme
    from compressed_tensors.quantization.quant_scheme import NVFP4

    torch.manual_seed(4)
    weight, how = torch.randn(72, 256), QuantizationScheme(targets=["Linear"], **NVFP4)
    given = {"weight": weight, "weight_global_scale": 1 / whole_scale(weight)}
    given["weight_scale"] = rounded(weight, "nvfp4", whole_scale(weight))[1].float()
    packed = theirs.compress(given, how)
    checkpoint(tmp_path, "nvfp4", **packed)
    config = json.loads((tmp_path / "config.json").read_text())
    groups = json.loads(how.model_dump_json())
    config["quantization_config"]["config_groups"] = {"group_0": groups}
    (tmp_path / "config.json").write_text(json.dumps(config))
    layer = storage.load(empty(), tmp_path, activations="nvfp4")[0]
    close(layer.dequantize(), theirs.decompress(packed, how)["weight"].double(), 8e-3)
    close(layer.dequantize(), values(weight, "nvfp4", whole_scale(weight)), 1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_devices_without_products_of_four_bits(tmp_path, monkeypatch, kind):
    """There the weights are taken alone, by tvm-pack, unless products are asked for."""
    torch.manual_seed(1)
    weight, _ = checkpoint(tmp_path, kind)
    with pytest.raises(UnsupportedError, match=f"activations='{kind}'.* tvm-pack --from=auto"):
        storage.load(empty(), tmp_path)
    tvm_pack("--from=auto", str(tmp_path), "-o", str(tmp_path / "own"))
    layer = storage.load(empty(), tmp_path / "own")[0]
    assert type(layer) is nn.Linear and layer.type == "f4_e2m1"
    close(layer.dequantize(), weight, 1e-3)
    found = {target: multiplies_four(tilusvm.target_report(target)) for target in ("sm_90a", "sm_100a", "sm_120a")}
    assert found == {"sm_90a": False, "sm_100a": True, "sm_120a": True}
    for target, taken in found.items():
        monkeypatch.setattr(storage, "device_report", lambda device, target=target: tilusvm.target_report(target))
        assert storage.four_of(None, "cuda") == (("nvfp4", "mxfp4") if taken else ())


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"weight_global_scale": None}, "no weight_global_scale"), ({"input_global_scale": None}, "no input_global"),
        ({"input_global_scale": torch.zeros(1)}, "input_global_scale is .*above 0"),
        ({"weight_scale": torch.ones(72, 8).to(F8)}, r"weight_scale is .*not \[72, 16\]"),
        ({"bias": torch.ones(3)}, "bias is"),
        ({"weight_packed": torch.zeros(72, 128).char()}, "not torch.uint8"), ({"odd": torch.ones(1)}, "'odd'"),
    ],
)  # fmt: skip
def test_damaged(tmp_path, changes, said):
    torch.manual_seed(1)
    checkpoint(tmp_path, "nvfp4", **changes)
    with pytest.raises((ValueError, UnsupportedError), match=f"layer 0 .compressed-tensors.*{said}"):
        storage.load(empty(), tmp_path, activations="nvfp4")


def test_other_choices_are_refused(tmp_path):
    with pytest.raises(ValueError, match="activations must be nvfp4, mxfp4 or None, not 'i8'"):
        torch.manual_seed(1)
        checkpoint(tmp_path, "nvfp4")
        storage.load(empty(), tmp_path, activations="i8")
