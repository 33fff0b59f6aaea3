"""Layers as other programs quantize them, by the definitions of their formats: random codes, the tensors of a file, and
the weights that these stand for."""

import torch

AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


def words(codes, bits, dim):
    """Codes packed along a dimension into words of 32 bits, from the lowest bits up, across the ends of words."""
    codes = codes.movedim(dim, -1).to(torch.int64)
    stream = (codes[..., None] >> torch.arange(bits) & 1).flatten(-2)
    stream = stream.view(*stream.shape[:-1], -1, 32)
    packed = (stream << torch.arange(32)).sum(-1)
    return torch.where(packed >= 1 << 31, packed - (1 << 32), packed).int().movedim(-1, dim).contiguous()


def numbers(bits, inputs, outputs, groups):
    codes = torch.randint(0, 1 << bits, (inputs, outputs))
    zeros = torch.randint(1, 1 << bits, (groups, outputs))
    return codes, zeros, (torch.rand(groups, outputs) + 0.5).half() * 0.02


def gptq(inputs, outputs, bits=4, group=64, order=False, offset=1):
    groups = inputs // group
    codes, zeros, scales = numbers(bits, inputs, outputs, groups)
    g_idx = torch.arange(inputs) // group
    g_idx = g_idx[torch.randperm(inputs)] if order else g_idx
    weight = (codes - zeros[g_idx]).double() * scales.double()[g_idx]
    tensors = {"qweight": words(codes, bits, 0), "qzeros": words(zeros - offset, bits, 1), "scales": scales,
               "g_idx": g_idx.int()}  # fmt: skip
    return weight.t(), tensors


def awq(inputs, outputs, group=64):
    codes, zeros, scales = numbers(4, inputs, outputs, inputs // group)
    weight = (codes - zeros.repeat_interleave(group, 0)).double() * scales.double().repeat_interleave(group, 0)

    def packed(matrix):
        mixed = matrix.view(matrix.shape[0], -1, 8)[:, :, list(AWQ_ORDER)].flatten(1)
        return words(mixed, 4, 1)

    return weight.t(), {"qweight": packed(codes), "qzeros": packed(zeros), "scales": scales}


def compressed(inputs, outputs, bits=4, group=64, zeros=False):
    codes, points, scales = numbers(bits, inputs, outputs, inputs // group)
    points = points if zeros else torch.full_like(points, 1 << bits - 1)
    weight = (codes - points.repeat_interleave(group, 0)).double() * scales.double().repeat_interleave(group, 0)
    tensors = {"weight_packed": words(codes.t(), bits, 1), "weight_scale": scales.t().contiguous(),
               "weight_shape": torch.tensor([outputs, inputs])}  # fmt: skip
    if zeros:
        tensors["weight_zero_point"] = words(points.t(), bits, 0)
    return weight.t(), tensors


def fp8(inputs, outputs, block=None, channels=False, small=False):
    """Scales of blocks, of outputs, or of the matrix."""
    weight = torch.randn(outputs, inputs).to(torch.float8_e4m3fn)
    shape = (-(-outputs // block[0]), -(-inputs // block[1])) if block else (outputs, 1) if channels else ()
    scales = (torch.rand(shape) + 0.5) * (2.0**-18 if small else 0.02)
    every = scales
    if block:
        every = scales.repeat_interleave(block[0], 0)[:outputs].repeat_interleave(block[1], 1)[:, :inputs]
    name = "weight_scale_inv" if block else "weight_scale"
    return weight.double() * every.double(), {"weight": weight, name: scales}


def config_groups(bits, group, kind="int", symmetric=True):
    weights = {"num_bits": bits, "type": kind, "symmetric": symmetric, "group_size": group or None,
               "strategy": "group" if group else "channel"}  # fmt: skip
    return {"group_0": {"targets": ["Linear"], "weights": weights}}


#: Of each format: its quantization_config, and a function of inputs and outputs.
FORMATS = {
    "gptq": ({"quant_method": "gptq", "bits": 4, "group_size": 64}, gptq),
    "gptq 3 bits": ({"quant_method": "gptq", "bits": 3, "group_size": 64}, lambda k, n: gptq(k, n, 3)),
    "gptq of groups of 256": ({"quant_method": "gptq", "bits": 8, "group_size": 256}, lambda k, n: gptq(k, n, 8, 256)),
    "gptq_v2": (
        {"quant_method": "gptq", "bits": 4, "group_size": 64, "checkpoint_format": "gptq_v2"},
        lambda k, n: gptq(k, n, offset=0),
    ),
    "awq": ({"quant_method": "awq", "bits": 4, "group_size": 64, "version": "gemm"}, awq),
    "compressed-tensors": (
        {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": config_groups(4, 64)},
        compressed,
    ),
    "compressed-tensors with zero points": (
        {
            "quant_method": "compressed-tensors", "format": "pack-quantized",
            "config_groups": config_groups(8, 64, symmetric=False),
        },
        lambda k, n: compressed(k, n, 8, zeros=True),
    ),
    "compressed-tensors of floats": (
        {
            "quant_method": "compressed-tensors", "format": "float-quantized",
            "config_groups": config_groups(8, 0, "float"),
        },
        lambda k, n: fp8(k, n, channels=True),
    ),
    "fp8 of blocks": (
        {"quant_method": "fp8", "weight_block_size": [128, 128]}, lambda k, n: fp8(k, n, (128, 128), small=True),
    ),
    "fp8": ({"quant_method": "fp8"}, fp8),
}  # fmt: skip


def int8(inputs, outputs):
    codes = torch.randint(-127, 128, (outputs, inputs), dtype=torch.int8)
    scales = (torch.rand(outputs, 1) + 0.5) * 0.01
    return codes.double() * scales.double(), {"weight": codes, "weight_scale": scales}


def _eight(form, bits, group, kind):
    groups = config_groups(bits, group)
    token = {"num_bits": 8, "type": kind, "symmetric": True, "dynamic": True, "strategy": "token"}
    groups["group_0"]["input_activations"] = token
    return {"quant_method": "compressed-tensors", "format": form, "config_groups": groups}


#: As FORMATS, of checkpoints that say that activations have 8 bits.
EIGHT = {
    "W8A8": (_eight("int-quantized", 8, 0, "int"), int8),
    "W4A8": (_eight("pack-quantized", 4, 64, "float"), lambda k, n: compressed(k, n, zeros=True)),
    "DeepSeek": (
        {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"},
        lambda k, n: fp8(k, n, (128, 128)),
    ),
    "FP8, static": (
        {"quant_method": "fp8", "activation_scheme": "static"},
        lambda k, n: (lambda w, t: (w, {**t, "input_scale": torch.tensor(0.01)}))(*fp8(k, n)),
    ),
}  # fmt: skip
