"""Checkpoints of others whose activations have 8 bits: small ones, made here by the definitions of the formats, loaded
as they lie. What they stand for is computed here alone, in float64: weights, and activations rounded as the
configuration says."""

import json
import struct

import pytest
from conftest import NO_TORCH, torch

if torch is None:
    pytest.skip(NO_TORCH, allow_module_level=True)

from foreign_kit import compressed, fp8  # noqa: E402
from torch_kit import DEVICES, close  # noqa: E402

from tilusvm import UnsupportedError, nn, storage  # noqa: E402

NAMES = {
    torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int32: "I32", torch.int64: "I64",
    torch.int8: "I8", torch.float8_e4m3fn: "F8_E4M3",
}  # fmt: skip
K, N = 256, 136


def write(path, tensors):
    header, parts, at = {}, [], 0
    for name, tensor in tensors.items():
        data = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        header[name] = {
            "dtype": NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [at, at + len(data)],
        }  # fmt: skip
        parts.append(data)
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-(len(text) + 8) % 16)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))


def folder_of(path, tensors, config, beside="config.json"):
    """A model of one layer, block.0, and a norm."""
    where = {"quantization_config": config, "dtype": "float16"}
    (path / beside).write_text(json.dumps(where if beside == "config.json" else config))
    layers = {f"block.0.{name}": tensor for name, tensor in tensors.items()}
    write(path / "model.safetensors", {**layers, "norm.weight": torch.ones(K)})
    return path


class Model(torch.nn.Module):
    def __init__(self, k=K, n=N, bias=False):
        super().__init__()
        self.norm = torch.nn.RMSNorm(k)
        self.block = torch.nn.Sequential(torch.nn.Linear(k, n, bias=bias))


# ---- formats ----


def group(weights, activations, **more):
    return {"targets": ["Linear"], "weights": weights, "input_activations": activations, **more}


def compressed_config(weights, activations, form, **more):
    groups = {"group_0": group(weights, activations)}
    return {"quant_method": "compressed-tensors", "format": form, "config_groups": groups, "ignore": ["head"], **more}


def args(bits, kind, strategy, dynamic=False, size=None, **more):
    return {
        "num_bits": bits, "type": kind, "strategy": strategy, "dynamic": dynamic, "group_size": size, "symmetric": True,
        **more,
    }  # fmt: skip


def int8(channels=True):
    codes = torch.randint(-127, 128, (N, K), dtype=torch.int8)
    scales = ((torch.rand(N, 1) if channels else torch.rand(1)) + 0.5) * 0.01
    return codes.double() * scales.double(), {"weight": codes, "weight_scale": scales.bfloat16().float()}


def unpacked(zeros=False):
    """Integers of 4 bits, one to a byte."""
    codes = torch.randint(-8, 8, (N, K), dtype=torch.int8)
    points = torch.randint(-8, 8, (N, K // 128), dtype=torch.int8)
    scales = torch.rand(N, K // 128) + 0.5
    numbers = codes.double() - points.double().repeat_interleave(128, 1) * zeros
    tensors = {"weight": codes, "weight_scale": scales, **({"weight_zero_point": points} if zeros else {})}
    return numbers * scales.double().repeat_interleave(128, 1), tensors


def exact_of(made):
    """int8's scales are bfloat16, as files have them: what these stand for."""
    return made[1]["weight"].double() * made[1]["weight_scale"].double()


def with_input(made, step):
    return made[0], {**made[1], "input_scale": torch.tensor(step)}


TOKEN = {kind: args(8, kind, "token", True) for kind in ("int", "float")}
STATIC = {kind: args(8, kind, "tensor", False) for kind in ("int", "float")}
BLOCK = args(8, "float", "block", block_structure=[128, 128])
DEEPSEEK = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}

#: Of each: its quantization_config; weights and tensors; activations, their group, a static scale; type.
FORMATS = {
    "W8A8": (compressed_config(args(8, "int", "channel"), TOKEN["int"], "int-quantized"), int8, "i8", 0, None),
    "W8A8, one scale": (
        compressed_config(args(8, "int", "tensor"), TOKEN["int"], "int-quantized"), lambda: int8(False), "i8", 0, None,
    ),
    "W8A8, static": (
        compressed_config(args(8, "int", "channel"), STATIC["int"], "int-quantized"),
        lambda: with_input(int8(), 0.02), "i8", 0, 0.02,
    ),
    "FP8, rows": (
        compressed_config(args(8, "float", "channel"), TOKEN["float"], "float-quantized"),
        lambda: fp8(K, N, channels=True), "f8_e4m3", 0, None,
    ),
    "FP8, static": (
        compressed_config(args(8, "float", "tensor"), STATIC["float"], "float-quantized"),
        lambda: with_input(fp8(K, N), 0.005), "f8_e4m3", 0, 0.005,
    ),
    "FP8, blocks": (
        compressed_config(BLOCK, args(8, "float", "group", True, 128), "float-quantized"),
        lambda: blocks_of_compressed(), "f8_e4m3", 128, None,
    ),
    "DeepSeek": (DEEPSEEK, lambda: fp8(K, N, (128, 128), small=True), "f8_e4m3", 128, None),
    "AutoFP8, static": (
        {"quant_method": "fp8", "activation_scheme": "static"}, lambda: with_input(fp8(K, N), 0.01), "f8_e4m3", 0, 0.01,
    ),
    "AutoFP8, dynamic": (
        {"quant_method": "fp8", "activation_scheme": "dynamic"}, lambda: fp8(K, N), "f8_e4m3", 0, None,
    ),
    "Model Optimizer": (
        {"quant_method": "modelopt", "quant_algo": "FP8"}, lambda: with_input(fp8(K, N), 0.01), "f8_e4m3", 0, 0.01,
    ),
    "W4A8": (
        compressed_config(args(4, "int", "group", size=64), TOKEN["int"], "pack-quantized"),
        lambda: compressed(K, N), "i8", 0, None,
    ),
    "W4A8 of f8": (
        compressed_config(args(4, "int", "group", size=128), TOKEN["float"], "pack-quantized"),
        lambda: compressed(K, N, group=128), "f8_e4m3", 0, None,
    ),
    "W4A8, zero points": (
        compressed_config(args(4, "int", "group", size=64, symmetric=False), TOKEN["int"], "pack-quantized"),
        lambda: compressed(K, N, zeros=True), "i8", 0, None,
    ),
    "W4A8, rows": (
        compressed_config(args(4, "int", "channel"), TOKEN["float"], "pack-quantized"),
        lambda: compressed(K, N, group=K), "f8_e4m3", 0, None,
    ),
    "W4A8, groups of 256": (
        compressed_config(args(4, "int", "group", size=256), TOKEN["int"], "pack-quantized"),
        lambda: compressed(K, N, group=256, zeros=True), "i8", 0, None,
    ),
    "W2A8": (
        compressed_config(args(2, "int", "group", size=64), TOKEN["int"], "pack-quantized"),
        lambda: compressed(K, N, 2), "i8", 0, None,
    ),
    "W4A8, unpacked": (
        compressed_config(args(4, "int", "group", size=128), TOKEN["int"], "int-quantized"), unpacked, "i8", 0, None,
    ),
    "W4A8, unpacked, zero points": (
        compressed_config(args(4, "int", "group", size=128), TOKEN["int"], "int-quantized"),
        lambda: unpacked(True), "i8", 0, None,
    ),
}  # fmt: skip


def blocks_of_compressed():
    weight, tensors = fp8(K, N, (128, 128))
    return weight, {"weight": tensors["weight"], "weight_scale": tensors["weight_scale_inv"].bfloat16().float()}


def rounded(x, activations, size, step):
    """What 8 bits hold of x, in float64: a scale for each row, for `size` of it, or one."""
    greatest = {"i8": 127, "f8_e4m3": 448}[activations]
    parts = x.double().unflatten(-1, (-1, size or x.shape[-1]))
    scale = parts.abs().amax(-1, keepdim=True) / greatest if step is None else step
    numbers = (parts / scale).clamp(-greatest - (activations == "i8"), greatest)
    numbers = numbers.round() if activations == "i8" else numbers.float().to(torch.float8_e4m3fn).double()
    return (numbers * scale).flatten(-2)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", FORMATS)
def test_formats(tmp_path, name, device):
    config, make, activations, size, step = FORMATS[name]
    torch.manual_seed(7)
    weight, tensors = make()
    if name.startswith("W8A8"):
        weight = exact_of((weight, tensors))
    if name == "FP8, blocks":
        every = tensors["weight_scale"].double().repeat_interleave(128, 0)[:N].repeat_interleave(128, 1)
        weight = tensors["weight"].double() * every
    bias = torch.randn(N).half()
    folder_of(tmp_path, {**tensors, "bias": bias}, config)
    with torch.device("meta"):
        empty = Model(bias=True)
    layer = storage.load(empty, tmp_path, device=device).block[0]
    assert isinstance(layer, nn.Linear8) and layer.activations == activations and layer.dtype == torch.float16
    assert layer.device.type == device and empty.norm.weight.device.type == device
    close(layer.dequantize().double(), weight.to(device), 1e-6)
    x = torch.randn(2, 3, K).half()
    exact = rounded(x, activations, size, step) @ weight.t() + bias.double()
    close(layer(x.to(device)), exact.to(device), 2e-3)
    storage.save(empty, tmp_path / "own")  # and as any other model
    other = storage.load(Model(bias=True), tmp_path / "own", device=device)
    assert torch.equal(other.block[0](x.to(device)), layer(x.to(device)))


def test_weights_are_the_mapping(tmp_path, monkeypatch):
    """What has 8 bits is not copied."""
    _, tensors = int8()
    folder_of(tmp_path, tensors, FORMATS["W8A8"][0])
    place, found = storage.File.tensor, []

    def tensor(self, name):
        found.append(place(self, name))
        return found[-1]

    monkeypatch.setattr(storage.File, "tensor", tensor)
    layer = storage.load(Model(), tmp_path).block[0]
    assert layer.packed.data_ptr() in [each.data_ptr() for each in found]


def test_shards_and_what_says_nothing_of_weights(tmp_path):
    """A layer's tensors in two files; scales of a cache and of activations that are found anew."""
    weight, tensors = fp8(K, N, (128, 128))
    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": DEEPSEEK}))
    parts = [
        {"block.0.weight": tensors["weight"], "block.0.k_scale": torch.tensor(1.0)},
        {"block.0.weight_scale_inv": tensors["weight_scale_inv"], "norm.weight": torch.ones(K)},
    ]
    for i, part in enumerate(parts):
        write(tmp_path / f"{i}.safetensors", part)
    index = {name: f"{i}.safetensors" for i, part in enumerate(parts) for name in part}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    layer = storage.load(Model(), tmp_path).block[0]
    assert layer.dtype == torch.bfloat16  # the configuration does not say
    close(layer.dequantize().double(), weight, 1e-6)


def test_groups_of_layers(tmp_path):
    """Each is of the group that names it, or of that of all."""
    wide, narrow = int8(), compressed(K, N)
    config = compressed_config(args(8, "int", "channel"), TOKEN["int"], "mixed-precision")
    four = group(args(4, "int", "group", size=64), TOKEN["float"], format="pack-quantized")
    config["config_groups"]["group_1"] = {**four, "targets": ["re:.*block.1$"]}
    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": config}))
    layers = [{f"block.{i}.{name}": t for name, t in made[1].items()} for i, made in enumerate((wide, narrow))]
    write(tmp_path / "model.safetensors", {**layers[0], **layers[1], "norm.weight": torch.ones(K)})
    model = Model()
    model.block.append(torch.nn.Linear(K, N, bias=False))
    storage.load(model, tmp_path)
    assert [layer.activations for layer in model.block] == ["i8", "f8_e4m3"] and model.block[1].type == "u4"
    close(model.block[1].dequantize().double(), narrow[0], 1e-6)


# ---- what is refused ----


REFUSED = {
    "activations with zero points": (
        compressed_config(args(8, "int", "channel"), {**TOKEN["int"], "symmetric": False}, "int-quantized"), int8,
        "compressed-tensors.*activations have zero points",
    ),
    "static scales of rows": (
        compressed_config(args(8, "int", "channel"), args(8, "int", "channel"), "int-quantized"), int8,
        "static, one for each channel",
    ),
    "activations of 4 bits": (
        compressed_config(args(8, "int", "channel"), args(4, "float", "tensor_group", "local"), "x"), int8, "4 bits of",
    ),
    "blocks and rows": (
        compressed_config(BLOCK, TOKEN["float"], "float-quantized"), lambda: fp8(K, N, (128, 128)), "each block",
    ),
    "other blocks": ({**DEEPSEEK, "weight_block_size": [64, 64]}, lambda: fp8(K, N, (64, 64)), r"fp8.*\[64, 64\]"),
    "groups of 8 bits": (
        compressed_config(args(8, "int", "group", size=128), TOKEN["int"], "int-quantized"), int8, "for each group",
    ),
    "three bits": (
        compressed_config(args(3, "int", "group", size=64), TOKEN["int"], "pack-quantized"),
        lambda: compressed(K, N, 3), "2 and 4 bits",
    ),
    "groups of 16": (
        compressed_config(args(4, "int", "group", size=16), TOKEN["int"], "pack-quantized"),
        lambda: compressed(K, N, group=16), "groups are of 16",
    ),
    "float weights with integers": (
        compressed_config(args(8, "float", "channel"), TOKEN["int"], "x"), lambda: fp8(K, N, channels=True),
        "type float",
    ),
    "an order": (
        FORMATS["W4A8"][0],
        lambda: (None, {**compressed(K, N)[1], "weight_g_idx": (torch.arange(K) % 4).int()}), "act-order",
    ),
    "zero points of int8": (
        FORMATS["W8A8"][0], lambda: (None, {**int8()[1], "weight_zero_point": torch.ones(N, 1, dtype=torch.int8)}),
        "zero points",
    ),
    "a static zero point": (
        FORMATS["W8A8, static"][0],
        lambda: (None, {**int8()[1], "input_scale": torch.ones(1), "input_zero_point": torch.ones(1).to(torch.int8)}),
        "zero points",
    ),
    "transforms": (FORMATS["W8A8"][0] | {"transform_config": {"config_groups": {"a": 1}}}, int8, "transform"),
    "sparse": (FORMATS["W8A8"][0] | {"sparsity_config": {"format": "sparse-24-bitmask"}}, int8, "sparse"),
    "another tensor": (FORMATS["W8A8"][0], lambda: (None, {**int8()[1], "odd": torch.ones(1)}), "'odd'"),
    "other targets": (
        compressed_config(args(8, "int", "channel"), TOKEN["int"], "x") | {"config_groups": {
            "a": group(args(8, "int", "channel"), TOKEN["int"]) | {"targets": ["re:other"]}}}, int8, "no group of",
    ),
    "a group without": (
        compressed_config(args(8, "int", "channel"), TOKEN["int"], "x") | {"config_groups": {
            "a": group(args(8, "int", "channel"), TOKEN["int"]) | {"targets": ["head"]},
            "b": group(args(8, "int", "channel"), None)}}, int8, "16 bits, and",
    ),
    "f8 of another kind": ({**DEEPSEEK, "fmt": "e5m2"}, lambda: fp8(K, N, (128, 128)), "e5m2, not e4m3"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(tmp_path, name):
    """With the layer, its format and the reason, and what to do."""
    config, make, said = REFUSED[name]
    folder_of(tmp_path, make()[1], config)
    with pytest.raises(UnsupportedError, match=f"block.0.*{said}") as caught:
        storage.load(Model(), tmp_path)
    assert "tvm-pack --from=auto" in str(caught.value)


def test_sizes_are_refused(tmp_path):
    weight = torch.zeros(8, 96, dtype=torch.int8)
    tensors = {"weight": weight, "weight_scale": torch.ones(8, 1)}
    folder_of(tmp_path, tensors, FORMATS["W8A8"][0])
    with pytest.raises(UnsupportedError, match="block.0.*multiple of 128"):
        storage.load(Model(96, 8), tmp_path)


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"weight_scale": torch.ones(N - 8, 1)}, "weight_scale is"),
        ({"weight_scale": torch.ones(N, 1).int()}, "int32"), ({"bias": torch.ones(3)}, "bias is"),
        ({"weight_scale_inv": torch.ones(1)}, "weight_scale and weight_scale_inv"),
        ({"input_scale": torch.ones(2)}, "input_scale is"), ({"input_scale": None}, "no input_scale"),
        ({"weight": None}, "none of weight"),
    ],
)  # fmt: skip
def test_damaged(tmp_path, changes, said):
    tensors = {**int8()[1], "input_scale": torch.ones(1), "bias": torch.ones(N), **changes}
    tensors = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    folder_of(tmp_path, tensors, FORMATS["W8A8, static"][0])
    with pytest.raises(ValueError, match=f"block.0.*{said}"):
        storage.load(Model(bias=True), tmp_path)


def test_the_other_configuration(tmp_path):
    """Model Optimizer's own file."""
    _, tensors = with_input(fp8(K, N), 0.01)
    folder_of(tmp_path, tensors, {"quantization": {"quant_algo": "FP8"}}, "hf_quant_config.json")
    assert float(storage.load(Model(), tmp_path).block[0].input_scale) == pytest.approx(0.01)


def test_weights_alone_are_left_to_tvm_pack(tmp_path):
    config = compressed_config(args(8, "int", "channel"), None, "int-quantized")
    folder_of(tmp_path, int8()[1], config)
    with pytest.raises(UnsupportedError, match="tvm-pack --from=auto"):
        storage.load(Model(), tmp_path)
