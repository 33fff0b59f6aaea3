"""Checkpoints that others have quantized: small ones, made here by the published layouts, imported by tvm-pack --from
and loaded. The weights that they were made of are computed here alone, in f64."""

import copy
import json
import pathlib
import struct

import numpy
import pytest
from conftest import NO_TORCH, torch

if torch is None:
    pytest.skip(NO_TORCH, allow_module_level=True)

from torch_kit import DEVICES, close, number, tvm_pack  # noqa: E402

import tilusvm  # noqa: E402
from tilusvm import checkpoint, nn, parallel, storage  # noqa: E402

NAMES = {"float16": "F16", "float32": "F32", "int32": "I32", "uint32": "I32", "int64": "I64", "uint8": "U8"}


def write(path, tensors, metadata=None):
    """A .safetensors file of arrays; (name of the type, array) where numpy has no such type."""
    header, parts, at = {"__metadata__": metadata} if metadata else {}, [], 0
    for name, value in tensors.items():
        dtype, array = value if isinstance(value, tuple) else (NAMES[value.dtype.name], value)
        data = numpy.ascontiguousarray(array).tobytes()
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [at, at + len(data)]}
        parts.append(data)
        at += len(data)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))


def imported(folder, tensors, *options, config=None):
    """The folder that tvm-pack makes of a model of these tensors; config: what it says of its quantization."""
    source, target = folder / "theirs", folder / "ours"
    source.mkdir()
    if config:
        (source / "config.json").write_text(json.dumps({"quantization_config": config}))
    write(source / "model.safetensors", tensors)
    tvm_pack("--from=auto", *options, source, "-o", target)
    return target


class Model(torch.nn.Module):
    def __init__(self, k, n, bias):
        super().__init__()
        self.norm = torch.nn.LayerNorm(64, bias=False)
        self.block = torch.nn.Sequential(torch.nn.Linear(k, n, bias=bias))


def loaded(tensors, folder, *options, device=None, config=None):
    """The layer block.0 of a model that is a norm and this layer, loaded; `tensors` are those of the layer."""
    norm = numpy.random.default_rng(5).random(64).astype(numpy.float16)
    model = {f"block.0.{name}": value for name, value in tensors.items()} | {"norm.weight": norm}
    target = imported(folder, model, *options, config=config)
    layer = json.loads(storage.File(target / "model.safetensors").metadata["block.0.packed"])
    k, n = (int(extent) for extent in layer["shape"].split(","))
    with torch.device("meta"):
        empty = Model(k, n, "bias" in tensors)
    full = storage.load(empty, target, device=device)
    assert full is empty and type(full.block[0]) is nn.Linear and not full.block[0].packed.is_meta
    assert torch.equal(full.norm.weight.cpu(), torch.from_numpy(norm))  # not quantized: as it is
    return full.block[0]


def check(layer, weight, bias=None):
    """Is it a layer of the weights f64 [k, n]: exactly, and in what it gives for activations?"""
    device = layer.device
    weight = torch.from_numpy(weight).to(device)
    assert torch.equal(layer.dequantize().double(), weight.t())
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(2, 3, weight.shape[0], generator=generator).to(device, layer.dtype)
    exact = x.double() @ weight
    if bias is not None:
        exact += torch.from_numpy(bias).to(device).double()
    close(layer(x), exact, 2e-3 if layer.dtype == torch.float16 else 1.6e-2)
    close(layer(x, out_dtype=torch.float32), exact, 1e-3 if layer.dtype == torch.float16 else 8e-3)
    return x


# ---- the layouts ----


def words(codes, bits):
    """Codes [.., count] as strings of bits, low ones first, in words of 32."""
    strings = (codes[..., None] >> numpy.arange(bits) & 1).reshape(*codes.shape[:-1], -1, 32)
    return (strings.astype(numpy.uint64) << numpy.arange(32, dtype=numpy.uint64)).sum(-1).astype(numpy.uint32)


def drawn(k, n, group, bits, seed=0, zeros=True, scale=0.01):
    """Codes [k, n], scales f16 and zero points [k / group, n]."""
    draw = numpy.random.default_rng(seed)
    codes = draw.integers(0, 1 << bits, (k, n))
    scales = (scale * (0.5 + draw.random((k // group, n)))).astype(numpy.float16)
    points = draw.integers(1, 1 << bits, scales.shape) if zeros else numpy.full(scales.shape, 1 << bits - 1)
    return codes, scales, points


def gptq(k, n, group, bits, *, mixed=False, zeros=True, bias=False, seed=0):
    """qweight: strings of codes down the columns; qzeros along rows, less one; g_idx: the group of each row."""
    codes, scales, points = drawn(k, n, group, bits, seed, zeros=zeros)
    groups = numpy.arange(k) // group
    if mixed:
        groups = numpy.random.default_rng(9 + seed).permutation(groups)
    tensors = {
        "qweight": numpy.ascontiguousarray(words(codes.T, bits).T),
        "qzeros": words(points - 1, bits), "scales": scales, "g_idx": groups.astype(numpy.int32),
    }  # fmt: skip
    if bias:
        tensors["bias"] = numpy.random.default_rng(3).standard_normal(n).astype(numpy.float16)
    return tensors, (codes - points[groups]) * scales[groups].astype(float)


def planes(codes, bits):
    """Codes [.., count] as GPTQModel's docs/gptq_planar.md lays them out: of each 32, planes of 4, 2 or 1 bits (8 of
    8), from the lowest up, in whole words each."""
    blocks, lowest, found = codes.reshape(*codes.shape[:-1], -1, 32), 0, []
    for width in {2: [2], 3: [2, 1], 4: [4], 5: [4, 1], 6: [4, 2], 7: [4, 2, 1], 8: [8]}[bits]:
        found.append(words(blocks >> lowest & (1 << width) - 1, width))
        lowest += width
    return numpy.concatenate(found, -1).reshape(*codes.shape[:-1], -1)


def planar(k, n, group, bits):
    codes, scales, points = drawn(k, n, group, bits)
    tensors = {
        "qweight": numpy.ascontiguousarray(planes(codes.T, bits).T), "qzeros": planes(points, bits), "scales": scales,
    }  # fmt: skip
    return tensors, (codes - points.repeat(group, 0)) * scales.repeat(group, 0).astype(float)


def awq(k, n, group, zeros):
    """Eight columns in a word, in the order 0 2 4 6 1 3 5 7."""
    codes, scales, points = drawn(k, n, group, 4, zeros=zeros)

    def packed(values):
        return words(values.reshape(len(values), -1, 8)[:, :, [0, 2, 4, 6, 1, 3, 5, 7]].reshape(values.shape), 4)

    tensors = {"qweight": packed(codes), "qzeros": packed(points), "scales": scales}
    return tensors, (codes - points.repeat(group, 0)) * scales.repeat(group, 0).astype(float)


def bf16(values):
    """Rounded towards zero, and their bits."""
    bits = values.astype(numpy.float32).view(numpy.uint32) >> 16
    return (bits << 16).astype(numpy.uint32).view(numpy.float32), bits.astype(numpy.uint16)


def whole_words(values, bits):
    """Rows of codes, as many to a word of 32 bits as fit it whole: compressed-tensors before version 0.20."""
    a_word = 32 // bits
    filled = numpy.pad(values, [(0, 0), (0, -values.shape[1] % a_word)]).reshape(len(values), -1, a_word)
    return (filled << numpy.arange(a_word) * bits).sum(-1).astype(numpy.uint32)


def dense_words(values, bits):
    """Rows of codes one after the other, bit by bit: since version 0.20."""
    filled = numpy.pad(values, [(0, 0), (0, -values.shape[1] % 32)])
    return words(filled, bits)[:, : -(-values.shape[1] * bits // 32)]


def compressed(k, n, group, bits, zeros, dense=False):
    """pack-quantized: [n, k], codes along k; zero points along n."""
    codes, scales, points = drawn(k, n, group, bits, zeros=zeros)
    scales, raw = bf16(scales)

    def packed(values):
        return (dense_words if dense else whole_words)(values, bits)

    tensors = {
        "weight_packed": packed(codes.T), "weight_scale": ("BF16", raw.T), "weight_shape": numpy.array([n, k]),
    }  # fmt: skip
    if zeros:
        tensors["weight_zero_point"] = numpy.ascontiguousarray(packed(points).T)
    return tensors, (codes - points.repeat(group, 0)) * scales.repeat(group, 0).astype(float)


def fp8_block(k, n, scale):
    """[n, k] in e4m3, a scale f32 to a block of 128 by 128; here one that f16 holds, but for a power of two."""
    draw = numpy.random.default_rng(2)
    codes = draw.integers(0, 256, (n, k)).astype(numpy.uint8)
    codes[codes & 127 == 127] = 0  # not NaN
    scales = ((1 + draw.integers(0, 1024, (-(-n // 128), -(-k // 128))) / 1024) * scale).astype(numpy.float32)
    values = numpy.array([number("f8_e4m3", code) or 0 for code in range(256)])[codes]
    whole = scales.astype(float).repeat(128, 0)[:n].repeat(128, 1)[:, :k]
    return {"weight": ("F8_E4M3", codes), "weight_scale_inv": scales}, (values * whole).T


def mxfp8(k, n):
    """[n, k] in e4m3, an exponent to 32."""
    tensors, weight = fp8_block(k, n, 1.0)
    values = numpy.array([number("f8_e4m3", code) or 0 for code in range(256)])[tensors["weight"][1]]
    scales = numpy.random.default_rng(8).integers(110, 130, (n, k // 32)).astype(numpy.uint8)
    weight = values * 2.0 ** (scales.astype(float) - 127).repeat(32, 1)
    return {"weight": tensors["weight"], "weight_scale": scales}, weight.T


def int8(k, n):
    """[n, k], and the largest magnitude of each row, which 127 stands for: bitsandbytes' Linear8bitLt."""
    draw = numpy.random.default_rng(7)
    codes, scales = draw.integers(-127, 128, (n, k)).astype(numpy.int8), draw.random(n).astype(numpy.float16)
    tensors = {"weight": ("I8", codes), "SCB": scales.astype(numpy.float32) * 127}
    tensors["weight_format"] = numpy.zeros((), numpy.uint8)  # rows
    return tensors, (codes * scales[:, None].astype(float)).T


def mxfp4(k, n):
    """[n, k], two codes to a byte, the first below; an exponent to 32."""
    draw = numpy.random.default_rng(4)
    codes, scales = draw.integers(0, 16, (n, k)), draw.integers(110, 130, (n, k // 32)).astype(numpy.uint8)
    values = numpy.array([number("f4_e2m1", code) for code in range(16)])[codes]
    packed = (codes[:, ::2] | codes[:, 1::2] << 4).astype(numpy.uint8)
    weight = values * 2.0 ** (scales.astype(float) - 127).repeat(32, 1)
    return {"weight_packed": packed, "weight_scale": scales}, weight.T


def nvfp4(k, n, over):
    """As mxfp4, but a scale in e4m3 to 16, and one of all, f32, which multiplies (weight_scale_2) or divides."""
    tensors, _ = mxfp4(k, n)
    draw = numpy.random.default_rng(6)
    packed = tensors["weight_packed"]
    values = numpy.array([number("f4_e2m1", code) for code in range(16)])
    codes = numpy.stack([packed & 15, packed >> 4], -1).reshape(n, k)
    scales = draw.integers(0x18, 0x58, (n, k // 16)).astype(numpy.uint8)
    whole = numpy.float32(0.0137)
    weight = values[codes] * numpy.array([number("f8_e4m3", code) or 0 for code in range(256)])[scales].repeat(16, 1)
    tensors = {"weight_packed" if over else "weight": packed, "weight_scale": ("F8_E4M3", scales)}
    tensors["weight_global_scale" if over else "weight_scale_2"] = numpy.array([1 / whole if over else whole])
    times = numpy.float32(1) / tensors["weight_global_scale"][0] if over else whole
    return tensors, weight.T * float(times)


# ---- each format ----


@pytest.mark.parametrize("device", DEVICES)
def test_gptq_with_act_order(tmp_path, device):
    tensors, weight = gptq(256, 72, 64, 4, mixed=True, bias=True)
    layer = loaded(tensors, tmp_path, device=device)
    assert (layer.type, layer.group, layer.zeros is not None, layer.bias is not None) == ("u4", 64, True, True)
    x = check(layer, weight, tensors["bias"])
    groups = torch.from_numpy(tensors["g_idx"])
    assert not torch.equal(groups, groups.sort().values)
    assert torch.equal(groups[layer.order.cpu().long()], groups.sort().values)
    x = x.requires_grad_()
    layer(x).float().sum().backward()
    close(x.grad[0, 0], torch.from_numpy(weight).to(device).sum(1), 2e-3)


@pytest.mark.parametrize(
    "k, n, group, bits, zeros, found",
    [
        (128, 96, 32, 3, True, 32),
        (128, 32, 64, 2, False, 64),
        (512, 32, 256, 4, True, 128),  # two groups share a scale
        (192, 32, 96, 8, True, 32),
        (96, 32, 96, 4, True, 0),
        (64, 32, 64, 4, False, 64),
    ],
)
def test_gptq(tmp_path, k, n, group, bits, zeros, found):
    tensors, weight = gptq(k, n, group, bits, zeros=zeros)
    layer = loaded(tensors, tmp_path)
    assert (layer.type, layer.group, layer.zeros is not None) == (f"u{bits}", found, zeros)
    assert layer.order is None and layer.multiplier is None
    check(layer, weight)


@pytest.mark.parametrize("zeros", [False, True])
def test_awq(tmp_path, zeros):
    tensors, weight = awq(128, 64, 64, zeros)
    layer = loaded(tensors, tmp_path)
    assert (layer.type, layer.group, layer.zeros is not None) == ("u4", 64, zeros)
    check(layer, weight)


@pytest.mark.parametrize(
    "k, n, group, bits, zeros", [(128, 40, 32, 4, False), (128, 37, 64, 4, True), (96, 24, 96, 8, False)]
)
def test_compressed_tensors(tmp_path, k, n, group, bits, zeros):
    tensors, weight = compressed(k, n, group, bits, zeros)
    layer = loaded(tensors, tmp_path)
    assert layer.dtype == torch.bfloat16 and (layer.type, layer.zeros is not None) == (f"u{bits}", zeros)
    check(layer, weight)


@pytest.mark.parametrize("bits, dense", [(3, False), (3, True), (5, True), (7, True)])
def test_compressed_tensors_of_odd_widths(tmp_path, bits, dense):
    """37 outputs: rows of codes that are no whole bytes."""
    tensors, weight = compressed(128, 37, 32, bits, True, dense)
    config = {"quant_method": "compressed-tensors", "version": "0.20.0" if dense else "0.9.4", "bits": bits}
    layer = loaded(tensors, tmp_path, config=config)
    assert (layer.type, layer.group, layer.zeros is not None) == (f"u{bits}", 32, True)
    check(layer, weight)


def test_packing_of_compressed_tensors():
    """What the tests write is what compressed-tensors writes, where it is installed."""
    helpers = pytest.importorskip("compressed_tensors.compressors.pack_quantized.helpers")
    for bits in range(1, 9):
        codes = numpy.random.default_rng(bits).integers(0, 1 << bits, (5, 77))
        theirs = helpers.pack_to_int32(torch.from_numpy(codes - (1 << bits - 1)).to(torch.int8), bits)
        assert numpy.array_equal(dense_words(codes, bits).view(numpy.int32), theirs.numpy())


@pytest.mark.parametrize("bits", [3, 6])
def test_planar_gptq(tmp_path, bits):
    tensors, weight = planar(128, 96, 64, bits)
    layer = loaded(tensors, tmp_path, config={"quant_method": "gptq", "checkpoint_format": "gptq_p"})
    assert (layer.type, layer.group, layer.zeros is not None) == (f"u{bits}", 64, True)
    check(layer, weight)


def test_what_is_said_of_activations(tmp_path):
    """Scales of inputs and caches are not the weights', and no tensors of the model's."""
    tensors, weight = fp8_block(128, 64, 2.0**-8)
    more = {"input_scale_ub": numpy.ones(1, numpy.float32), "k_scale": numpy.ones(1, numpy.float32)}
    tensors = {"weight": tensors["weight"], "weight_scale": tensors["weight_scale_inv"]} | more
    check(loaded(tensors, tmp_path), weight)


@pytest.mark.parametrize("make, found", [(mxfp8, ("f8_e4m3", 32)), (int8, ("i8", 0)), (mxfp4, ("f4_e2m1", 32))])
def test_names_and_types_of_others(tmp_path, make, found):
    tensors, weight = make(192, 40)
    if make is mxfp4:  # as Quark calls it
        tensors["weight"] = tensors.pop("weight_packed")
    layer = loaded(tensors, tmp_path)
    assert (layer.type, layer.group) == found
    check(layer, weight)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("k, n", [(256, 130), (192, 64)])
def test_fp8_block(tmp_path, k, n, device):
    tensors, weight = fp8_block(k, n, 2.0**-8)
    layer = loaded(tensors, tmp_path, device=device)
    assert (layer.type, layer.multiplier) == ("f8_e4m3", None)
    check(layer, weight)


def test_mxfp4(tmp_path):
    tensors, weight = mxfp4(96, 20)
    layer = loaded(tensors, tmp_path)
    assert (layer.type, layer.group, layer.dtype) == ("f4_e2m1", 32, torch.bfloat16)
    check(layer, weight)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("over", [False, True])
def test_nvfp4(tmp_path, over, device):
    """The scales of 16 inputs and that of all stay apart, as they are."""
    tensors, weight = nvfp4(288, 40, over)
    layer = loaded(tensors, tmp_path, device=device)
    assert (layer.type, layer.group, layer.dtype) == ("f4_e2m1", 16, torch.float16)
    assert layer.multiplier.item() == pytest.approx(0.0137)
    weight = torch.from_numpy(weight).to(device)
    assert torch.equal(layer.dequantize(), weight.t().float())
    for rows in (1, 9, 40):
        x = torch.randn(rows, 288, generator=torch.Generator().manual_seed(1)).to(device).half()
        close(layer(x), x.double() @ weight, 1e-3)
    halves = [parallel.shard(layer, rank, 2, "out")(x) for rank in range(2)]
    assert torch.equal(torch.cat(halves, -1), layer(x))


# ---- a multiplier ----


@pytest.mark.parametrize("device", DEVICES)
def test_scales_beyond_f16(tmp_path, device):
    """They stay divided by a power of two, which is multiplied in f32, before the bias; half() does not round it."""
    tensors, weight = fp8_block(256, 64, 2.0**-30)
    tensors["bias"] = (numpy.arange(64) * 2.0**-20).astype(numpy.float16)
    layer = loaded(tensors, tmp_path, device=device)
    assert layer.multiplier.dtype == torch.float32 and 0 < layer.multiplier.item() < 2.0**-25
    assert torch.equal(layer.dequantize().double().cpu(), torch.from_numpy(weight).t())
    x = torch.randn(3, 256, generator=torch.Generator().manual_seed(1)).to(device).half()
    exact = x.double() @ torch.from_numpy(weight).to(device) + torch.from_numpy(tensors["bias"]).to(device).double()
    close(layer(x, out_dtype=torch.float32), exact, 1e-3)
    before = layer(x, out_dtype=torch.float32)
    assert layer(x).dtype == torch.float16
    assert torch.equal(copy.deepcopy(layer).half()(x, out_dtype=torch.float32), before)
    with pytest.raises(ValueError, match="multiplier"):
        nn.Linear.cat([layer, layer])


def test_a_multiplier_that_scales_can_hold(tmp_path):
    """A power of two goes into scales of bf16, or of f16 that stay in their range."""
    tensors, weight = fp8_block(256, 64, 2.0**-15)  # subnormal in f16, so that tvm-pack divides
    tensors["weight_scale_inv"] = numpy.full_like(tensors["weight_scale_inv"], 2.0**-15)
    target = imported(tmp_path, {f"x.{name}": value for name, value in tensors.items()})
    assert "x.multiplier" in storage.File(target / "model.safetensors").entries
    model = torch.nn.Sequential()
    model.x = torch.nn.Linear(256, 64, bias=False)
    assert storage.load(model, target).x.multiplier is None
    values = torch.tensor([number("f8_e4m3", code) or 0 for code in range(256)])[tensors["weight"][1].astype(int)]
    assert torch.equal(model.x.dequantize(), values * 2.0**-15)


# ---- what is done with such layers ----


def ordered(folder, n=128):
    tensors, weight = gptq(256, n, 64, 4, mixed=True, bias=True)
    return loaded(tensors, folder), weight


def test_saved_and_loaded(tmp_path):
    model = torch.nn.Sequential(ordered(tmp_path)[0])
    storage.save(model, tmp_path / "saved")
    with torch.device("meta"):
        other = torch.nn.Sequential(torch.nn.Linear(256, 128))
    storage.load(other, tmp_path / "saved")
    x = torch.randn(2, 256).half()
    assert torch.equal(other(x), model(x)) and torch.equal(other[0].order, model[0].order)


def test_put_together_and_cut(tmp_path):
    layer, weight = ordered(tmp_path)
    x = torch.randn(2, 256).half()
    assert torch.equal(nn.Linear.cat([layer, layer])(x), torch.cat([layer(x), layer(x)], -1))
    other = copy.deepcopy(layer)
    other.order = other.order.flip(0)
    with pytest.raises(ValueError, match="orders"):
        nn.Linear.cat([layer, other])
    for world in (2, 4):
        parts = [parallel.shard(layer, rank, world, "out")(x) for rank in range(world)]
        assert torch.equal(torch.cat(parts, -1), layer(x))
    with pytest.raises(ValueError, match="act-order"):
        parallel.shard(layer, 0, 2, "in")


def test_what_is_mapped_and_tied(tmp_path):
    """Scales are the file itself; a head that is tied to the embedding is not in the file."""

    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = torch.nn.Embedding(10, 64)
            self.x = torch.nn.Linear(64, 64, bias=False)
            self.head = torch.nn.Linear(64, 10, bias=False)
            self.head.weight = self.embed.weight

    tensors, weight = gptq(64, 64, 64, 4)
    embed = numpy.random.default_rng(0).random((10, 64)).astype(numpy.float16)
    target = imported(tmp_path, {f"x.{name}": t for name, t in tensors.items()} | {"embed.weight": embed})
    model = storage.load(Tied(), target)
    assert model.head.weight is model.embed.weight and torch.equal(model.head.weight, torch.from_numpy(embed))
    maps = pathlib.Path("/proc/self/maps").read_text().splitlines()
    ranges = [line.split()[0].split("-") for line in maps if str(target) in line]
    at = model.x.scales.data_ptr()
    assert any(int(begin, 16) <= at < int(end, 16) for begin, end in ranges)


# ---- what is refused ----


def model_of(k, n):
    model = torch.nn.Sequential()
    model.x = torch.nn.Linear(k, n, bias=False)
    return model


def test_groups_that_no_program_has(tmp_path):
    target = imported(tmp_path, {f"x.{name}": t for name, t in gptq(80, 32, 40, 4)[0].items()})
    with pytest.raises(tilusvm.UnsupportedError, match="layer x .*groups are of 40"):
        storage.load(model_of(80, 32), target)


def test_what_is_not_imported(tmp_path):
    write(tmp_path / "model.safetensors", {f"x.{name}": t for name, t in gptq(64, 32, 64, 4)[0].items()})
    with pytest.raises(tilusvm.UnsupportedError, match=f"tvm-pack --from=auto {tmp_path} -o"):
        storage.load(model_of(64, 32), tmp_path)


def test_stacks_of_no_experts(tmp_path):
    blocks = numpy.zeros((3, 32, 2, 16), numpy.uint8)
    target = imported(tmp_path, {"x_blocks": blocks, "x_scales": numpy.full((3, 32, 2), 127, numpy.uint8)})
    with pytest.raises(tilusvm.UnsupportedError, match="layer x .*3 matrices"):
        storage.load(model_of(64, 32), target)


def test_models_that_it_is_not_of(tmp_path):
    target = imported(tmp_path, {f"x.{name}": t for name, t in gptq(64, 32, 64, 4)[0].items()})
    with pytest.raises(ValueError, match="layer x has 64 inputs and 32 outputs"):
        storage.load(model_of(64, 40), target)
    model = model_of(64, 32)
    model.x = torch.nn.Embedding(32, 64)
    with pytest.raises(tilusvm.UnsupportedError, match="layer x is a Embedding"):
        storage.load(model, target)
    with pytest.raises(KeyError, match="a layer x"):
        storage.load(torch.nn.Sequential(), target)
    model = model_of(64, 32)
    model.y = torch.nn.Linear(4, 4)
    with pytest.raises(KeyError, match="y.weight"):
        storage.load(model, target)


DESCRIBED = {"type": "u4", "shape": "64,32", "group": "64", "scale": "f16", "zero": "mid", "packing": "rows"}


@pytest.mark.parametrize(
    "change, says",
    [
        ({"shape": "64"}, "layer x: .*cannot be read"),
        ({"shape": "64,0"}, "layer x: .*cannot be read"),
        ({"group": "48"}, "layer x: .*cannot be read"),
        ({"type": "e5"}, "layer x: .*type must be"),
        ({"packing": "program"}, "layer x .*packing"),
        ({"zero": "per-group"}, "layer x: it has no zeros"),
        ({"shape": "64,40"}, "layer x: packed is"),
        ({"order": 64 * [0]}, "layer x: order is no permutation"),
        ({"order": list(range(-1, 63))}, "layer x: order is no permutation"),
    ],
)
def test_descriptions_that_are_damaged(tmp_path, change, says):
    tensors = {"x.packed": numpy.zeros((64, 16), numpy.uint8), "x.scales": numpy.ones((1, 32), numpy.float16)}
    if "order" in change:
        tensors["x.order"] = numpy.array(change["order"], numpy.int32)
    said = DESCRIBED | {key: value for key, value in change.items() if key != "order"}
    write(tmp_path / "m", tensors, {"format": "tilusvm-model", "version": "1", "x.packed": json.dumps(said)})
    n = 40 if change.get("shape") == "64,40" else 32
    with pytest.raises((ValueError, tilusvm.UnsupportedError), match=says):
        storage.load(model_of(64, n), tmp_path / "m")


def test_versions_that_are_not_known():
    with pytest.raises(tilusvm.UnsupportedError, match="version 2"):
        checkpoint.layers_of("m", {"format": "tilusvm-model", "version": "2"})


# ---- transformers ----


@pytest.mark.transformers
@pytest.mark.parametrize("device", DEVICES)
def test_from_pretrained(tmp_path, device):
    """A model whose linear layers are of GPTQ, and one of FP8, by transformers' own loader; and its blocks."""
    transformers = pytest.importorskip("transformers", reason="transformers cannot be imported")
    from tilusvm.transformers import accelerate_

    config = transformers.LlamaConfig(
        hidden_size=64, intermediate_size=96, num_hidden_layers=1, num_attention_heads=1, num_key_value_heads=1,
        head_dim=64, vocab_size=32, max_position_embeddings=32, tie_word_embeddings=True,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config).half().eval()
    model.save_pretrained(tmp_path / "theirs")
    tensors = {name: tensor.numpy() for name, tensor in model.state_dict().items() if name != "lm_head.weight"}
    for name, module in model.model.named_modules():
        if isinstance(module, torch.nn.Linear):
            if "o_proj" in name:
                layer, weight = fp8_block(64, 64, 2.0**-17)
            else:
                layer, weight = gptq(module.in_features, module.out_features, 32, 4, mixed="q_proj" in name)
            del tensors[f"model.{name}.weight"]
            tensors |= {f"model.{name}.{last}": value for last, value in layer.items()}
            module.weight.data = torch.from_numpy(weight.T.copy()).half()
    write(tmp_path / "theirs" / "model.safetensors", tensors)
    said = json.loads((tmp_path / "theirs" / "config.json").read_text())
    said["quantization_config"] = {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": True}
    (tmp_path / "theirs" / "config.json").write_text(json.dumps(said))
    tvm_pack("--from=auto", tmp_path / "theirs", "-o", tmp_path / "ours")

    load = transformers.AutoModelForCausalLM.from_pretrained
    found, ids = load(tmp_path / "ours", dtype=torch.float16).to(device), torch.arange(1, 9)[None]
    projection = found.model.layers[0].self_attn.q_proj
    assert type(projection) is nn.Linear and projection.order is not None and projection.device.type == device
    small = found.model.layers[0].self_attn.o_proj
    assert small.multiplier.dtype == torch.float32
    assert torch.equal(small.dequantize().double().cpu(), torch.from_numpy(fp8_block(64, 64, 2.0**-17)[1]).t())
    assert found.lm_head.weight is found.model.embed_tokens.weight
    with torch.no_grad():
        expected = model.float()(ids).logits
        close(found(ids.to(device)).logits.cpu(), expected, 0.02)
        close(accelerate_(found)(ids.to(device)).logits.cpu(), expected, 0.02)
    with pytest.raises(ValueError, match="dtype=torch.float16"):
        load(tmp_path / "ours", dtype=torch.bfloat16)
    with pytest.raises(ValueError, match="not serializable"):
        found.save_pretrained(tmp_path / "again")
