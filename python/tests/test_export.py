"""tvm-pack --to: what was quantized here, read by the packages that it is written for, and by GPTQ's formula."""

import json

import numpy
import pytest
from conftest import NO_TORCH, torch

if torch is None:
    pytest.skip(NO_TORCH, allow_module_level=True)

from safetensors.torch import load_file  # noqa: E402
from torch_kit import tvm_pack  # noqa: E402

FORMS = [("u4", 32, True), ("u4", 128, False), ("i4", 64, False), ("u8", 32, True), ("i8", 0, False), ("u2", 32, True)]


def quantized(folder, type, group, zeros, *, k=256, n=96):
    """A matrix's file, and the weights that it stands for, f32 [k, n]."""
    weight = numpy.random.default_rng(2).standard_normal((k, n)).astype(numpy.float32)
    numpy.save(folder / "w.npy", weight)
    more = ["--zero=per-group"] if zeros else []
    tvm_pack(f"--type={type}", f"--group={group or 'k'}", *more, folder / "w.npy", "-o", folder / "ours.safetensors")
    tvm_pack("--unpack", folder / "ours.safetensors", "-o", folder / "values.npy")
    return folder / "ours.safetensors", torch.from_numpy(numpy.load(folder / "values.npy"))


def tensors_of(path):
    return {name.removeprefix("linear."): tensor for name, tensor in load_file(path).items()}


def gptq_weight(tensors, bits, minus):
    """AutoGPTQ's dequantization, for widths that divide 32."""
    shifts = torch.arange(0, 32, bits)
    codes = tensors["qweight"][:, None, :] >> shifts[None, :, None] & (1 << bits) - 1
    zeros = tensors["qzeros"][:, :, None] >> shifts & (1 << bits) - 1
    codes, zeros = codes.reshape(-1, codes.shape[-1]), zeros.reshape(zeros.shape[0], -1) + minus
    groups = tensors["g_idx"].long()
    return (codes - zeros[groups]) * tensors["scales"].float()[groups]


@pytest.mark.parametrize("type, group, zeros", FORMS)
def test_gptq(type, group, zeros, tmp_path):
    path, weight = quantized(tmp_path, type, group, zeros)
    tvm_pack("--to=gptq", path, "-o", tmp_path / "theirs.safetensors")
    tensors, bits = tensors_of(tmp_path / "theirs.safetensors"), int(type[1])
    minus = 0 if zeros and (tensors_of(path)["zeros"] == 0).any() else 1
    assert torch.equal(gptq_weight(tensors, bits, minus), weight)


@pytest.mark.parametrize("type, group, zeros", FORMS)
def test_compressed_tensors(type, group, zeros, tmp_path):
    compressors = pytest.importorskip("compressed_tensors.compressors.pack_quantized.base")
    from compressed_tensors.quantization import QuantizationConfig

    path, weight = quantized(tmp_path, type, group, zeros)
    model = tmp_path / "model"
    model.mkdir()
    path.rename(model / "model.safetensors")
    (model / "config.json").write_text(json.dumps({"quantization_config": {"quant_method": "tilusvm", "version": 1}}))
    tvm_pack("--to=compressed-tensors", model, "-o", tmp_path / "theirs")
    said = json.loads((tmp_path / "theirs" / "config.json").read_text())["quantization_config"]
    config = QuantizationConfig.model_validate(said)
    assert (config.format, config.quantization_status) == ("pack-quantized", "compressed")
    tensors = tensors_of(tmp_path / "theirs" / "model.safetensors")
    made = compressors.PackedQuantizationCompressor.decompress(tensors, config.config_groups["group_0"])["weight"]
    assert torch.equal(made, weight.t().to(made.dtype))


def test_of_gguf(tmp_path):
    """From another program's to another program's."""
    gguf = pytest.importorskip("gguf")
    kind, weight = gguf.GGMLQuantizationType.Q4_0, numpy.random.default_rng(1).standard_normal((64, 96))
    blocks = gguf.quantize(weight.astype(numpy.float32), kind)
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "qwen3")
    writer.add_tensor("blk.0.ffn_up.weight", blocks, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    tvm_pack("--from=gguf", "--to=gptq", tmp_path / "m.gguf", "-o", tmp_path / "m.safetensors")
    tensors = {name.split(".")[-1]: tensor for name, tensor in load_file(tmp_path / "m.safetensors").items()}
    assert torch.equal(gptq_weight(tensors, 4, 1), torch.from_numpy(gguf.dequantize(blocks, kind).copy()).t())
