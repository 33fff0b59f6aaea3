"""Checkpoints of other methods as engines read them: a rank's part of each format against whole weights."""

import pytest
from conftest import NO_TORCH, torch

if torch is None:
    pytest.skip(NO_TORCH, allow_module_level=True)

from foreign_kit import EIGHT, FORMATS, compressed, fp8, gptq  # noqa: E402
from torch_kit import close  # noqa: E402

from tilusvm import UnsupportedError, nn, storage  # noqa: E402
from tilusvm.engines import layers, scheme  # noqa: E402

INPUTS, OUTPUTS = 1024, 512


def parts_of(config, inputs, sizes, dtype=torch.float16):
    made = scheme.Scheme.from_config(config)
    names = [f"a.{i}" for i in range(len(sizes))]
    return layers.LinearParts(made, names, inputs, sizes, dtype, torch.device("cpu"))


def weights(made):
    return torch.cat([layer.dequantize(torch.float64) for layer in made])


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("name", FORMATS)
def test_parts_of_ranks(name, ranks):
    """Outputs and inputs, of one layer and of three that an engine has as one."""
    torch.manual_seed(0)
    config, make = FORMATS[name]
    whole, tensors = make(INPUTS, OUTPUTS)
    key, key_tensors = make(INPUTS, OUTPUTS // 2)
    for rank in range(ranks):
        size = OUTPUTS // ranks
        own = slice(rank * size, (rank + 1) * size)
        half = slice(rank * size // 2, (rank + 1) * size // 2)
        parts = parts_of(config, INPUTS, [size, size // 2])
        for part, each, of in ((0, tensors, own), (1, key_tensors, half)):
            for tensor_name, tensor in each.items():
                parts.take(part, tensor_name, tensor, "out", of.start, of.stop)
        close(weights(parts.finish()), torch.cat([whole[own], key[half]]), 1e-3)
        size = INPUTS // ranks
        parts = parts_of(config, size, [OUTPUTS])
        for tensor_name, tensor in tensors.items():
            parts.take(0, tensor_name, tensor, "in", rank * size, (rank + 1) * size)
        close(weights(parts.finish()), whole[:, rank * size : (rank + 1) * size], 1e-3)


@pytest.mark.parametrize("name", ["gptq", "awq", "fp8 of blocks"])
def test_experts(name):
    """Of a rank of two: gate and up cut along their outputs, down along its inputs."""
    torch.manual_seed(0)
    config, make = FORMATS[name]
    if name.startswith("fp8"):  # of scales whose product f16 holds
        make = lambda inputs, outputs: fp8(inputs, outputs, (128, 128))  # noqa: E731
    hidden, width = 256, 512
    names = {shard: f"a.experts.{{}}.{shard}" for shard in ("w1", "w3", "w2")}
    made = [{s: make(*((width, hidden) if s == "w2" else (hidden, width))) for s in names} for _ in range(3)]
    x, index, factors = torch.randn(4, hidden).half() / 8, torch.randint(0, 3, (4, 2)), torch.rand(4, 2)
    parts = layers.ExpertParts(
        scheme.Scheme.from_config(config), names, 3, hidden, width // 2, torch.float16, torch.device("cpu")
    )
    for expert, shards in enumerate(made):
        for shard, (_, tensors) in shards.items():
            for tensor_name, tensor in tensors.items():
                parts.take(expert, shard, tensor_name, tensor, 1, 2)
    before, down = parts.finish()
    exact = torch.zeros(4, hidden, dtype=torch.float64)
    own = slice(width // 2, width)
    for token, k in ((t, k) for t in range(4) for k in range(2)):
        weights_of = {shard: whole for shard, (whole, _) in made[index[token, k]].items()}
        gate, up = (weights_of[shard][own] @ x[token].double() for shard in ("w1", "w3"))
        exact[token] += factors[token, k] * (weights_of["w2"][:, own] @ (torch.nn.functional.silu(gate) * up))
    close(layers.mixture(before, down, x, factors, index), exact, 1e-2)


def test_products_and_types():
    """In bfloat16 scales are rounded; products are those of the weights."""
    torch.manual_seed(0)
    for name in ("gptq", "compressed-tensors", "fp8 of blocks"):
        config, make = FORMATS[name]
        whole, tensors = make(256, 192)
        parts = parts_of(config, 256, [192], torch.bfloat16)
        for tensor_name, tensor in tensors.items():
            parts.take(0, tensor_name, tensor, "out", 0, 192)
        x = torch.randn(3, 256).bfloat16()
        close(layers.product(parts.finish(), x), x.double() @ whole.t(), 1.5e-2)


def test_act_order():
    """Is kept by one rank, and by ranks that cut outputs; inputs cannot be cut."""
    torch.manual_seed(0)
    config = {**FORMATS["gptq"][0], "desc_act": True}
    whole, tensors = gptq(INPUTS, OUTPUTS, order=True)
    for axis, size in (("out", (INPUTS, 256)), ("in", (INPUTS, OUTPUTS))):
        parts = parts_of(config, size[0], [size[1]])
        for name, tensor in tensors.items():
            parts.take(0, name, tensor, axis, 0, size[1] if axis == "out" else INPUTS)
        (layer,) = parts.finish()
        assert layer.order is not None
        close(layer.dequantize(torch.float64), whole[: size[1]], 1e-3)
    with pytest.raises(ValueError, match="inputs that have an order"):
        parts_of(config, 512, [OUTPUTS]).take(0, "g_idx", tensors["g_idx"], "in", 0, 512)


def test_layers_that_stay():
    for method, word in (
        ("awq", "modules_to_not_convert"),
        ("fp8", "ignored_layers"),
        ("compressed-tensors", "ignore"),
    ):
        config = dict(FORMATS[method][0], **{word: ["visual", "model.layers.0.mlp.gate"]})
        made = scheme.Scheme.from_config(config)
        stay = ["lm_head", "model.layers.0.mlp.gate", "model.visual.blocks.0.up"]
        assert [made.type_of(name) for name in stay] == [None] * 3
        assert made.type_of("model.layers.0.mlp.gate_proj") and made.type_of("model.layers.10.mlp.gate")
    config = dict(FORMATS["compressed-tensors"][0], ignore=["re:.*router.*"])
    assert scheme.Scheme.from_config(config).type_of("model.layers.3.router") is None
    assert scheme.Scheme.from_config(dict(FORMATS["gptq"][0], lm_head=True)).type_of("lm_head") == "u4"


@pytest.mark.parametrize(
    "config, message", [
        ({"quant_method": "mxfp4"}, "quantized by mxfp4: tvm-pack --from=auto MODEL -o FOLDER"),
        ({"quant_method": "exl2"}, "'exl2', which is not supported; serve a plain one, or one of gptq"),
        ({"quant_method": "awq", "group_size": 128, "version": "gemv"}, "awq with version 'gemv', where 'gemm'"),
        ({"quant_method": "gptq"}, "gptq, and its configuration has no bits"),
        ({"quant_method": "awq", "version": "gemm"}, "awq, and its configuration has no group_size"),
        ({"quant_method": "gptq", "bits": 5, "group_size": 128}, "gptq with bits 5"),
        ({"quant_method": "fp8", "fmt": "e5m2"}, "fp8 with fmt 'e5m2'"),
        ({"quant_method": "compressed-tensors", "config_groups": {}}, "with 0 groups of layers"),
        (
            {**FORMATS["compressed-tensors"][0], "format": "marlin-24"}, "format 'marlin-24', where 'pack-quantized'",
        ),
    ],
)  # fmt: skip
def test_what_is_refused(config, message):
    with pytest.raises(UnsupportedError, match=message):
        scheme.Scheme.from_config(config)


def test_tensors_that_do_not_fit():
    config, _ = FORMATS["compressed-tensors"]
    _, tensors = compressed(256, 192)
    parts = parts_of(config, 256, [192])
    parts.take(0, "weight_packed", tensors["weight_packed"], "out", 0, 192)
    with pytest.raises(ValueError, match="there is no weight_scale"):
        parts.finish()
    with pytest.raises(ValueError, match="a rank's part of the inputs, 32 to 64, must be a multiple of 64"):
        parts_of(config, 32, [192]).take(0, "weight_scale", tensors["weight_scale"], "in", 32, 64)


# ---- activations of 8 bits ----


def rounded(x, name):
    """What 8 bits hold of x, in float64: a scale for each row, for 128 of it, or one."""
    greatest, size = (127 if name == "W8A8" else 448), (128 if name == "DeepSeek" else x.shape[-1])
    parts = x.double().unflatten(-1, (-1, size))
    scale = 0.01 if "static" in name else parts.abs().amax(-1, keepdim=True) / greatest
    numbers = (parts / scale).clamp(-greatest, greatest)
    numbers = numbers.round() if name == "W8A8" else numbers.float().to(torch.float8_e4m3fn).double()
    return (numbers * scale).flatten(-2)


@pytest.mark.parametrize("axis, rank", [("out", 0), ("out", 1), ("in", 1)])
@pytest.mark.parametrize("name", EIGHT)
def test_activations_of_8_bits(name, axis, rank):
    """Of a rank of two: two layers that an engine has as one, cut, with a bias; one launch where they fit together."""
    torch.manual_seed(0)
    config, make = EIGHT[name]
    inputs, outputs = (512, 512) if axis == "out" else (512, 128)
    made = [make(inputs, outputs) for _ in range(2)]
    size = (outputs if axis == "out" else inputs) // 2
    own = slice(rank * size, (rank + 1) * size)
    part = [weight[own] if axis == "out" else weight[:, own] for weight, _ in made]
    parts = parts_of(config, part[0].shape[1], [weight.shape[0] for weight in part])
    for i, (_, tensors) in enumerate(made):
        for tensor_name, tensor in tensors.items():
            assert tensor_name in parts.scheme.tensors
            parts.take(i, tensor_name, tensor, axis, own.start, own.stop)
    linears = parts.finish()
    assert len(linears) == 1 and isinstance(linears[0], nn.Linear8)
    bias = torch.randn(sum(weight.shape[0] for weight in part)).half()
    layers.set_bias(linears, bias)
    x = torch.randn(3, part[0].shape[1]).half()
    close(layers.product(linears, x), rounded(x, name) @ torch.cat(part).t() + bias.double(), 2e-3)


def test_parts_that_are_not_multiplied_so():
    """Within a block of 128, or of inputs that are no multiple of it: the weights are exact, for 16 bits."""
    torch.manual_seed(0)
    for name, axis, begin, end in (("DeepSeek", "out", 64, 192), ("W8A8", "in", 0, 64)):
        config, make = EIGHT[name]
        weight, tensors = make(256, 256)
        part = weight[begin:end] if axis == "out" else weight[:, begin:end]
        parts = parts_of(config, part.shape[1], [part.shape[0]])
        for tensor_name, tensor in tensors.items():
            parts.take(0, tensor_name, tensor, axis, begin, end)
        (made,) = parts.finish()
        assert isinstance(made, nn.Linear)
        close(made.dequantize(torch.float64), part, 1e-3)


def test_experts_have_16_bits():
    torch.manual_seed(0)
    config, make = EIGHT["DeepSeek"]
    names = {shard: f"a.experts.{{}}.{shard}" for shard in ("w1", "w3", "w2")}
    parts = layers.ExpertParts(
        scheme.Scheme.from_config(config), names, 1, 256, 256, torch.bfloat16, torch.device("cpu")
    )
    made = {shard: make(256, 256) for shard in names}
    for shard, (_, tensors) in made.items():
        for tensor_name, tensor in tensors.items():
            parts.take(0, shard, tensor_name, tensor, 0, 1)
    before, down = parts.finish()
    assert down.experts == 1 and before[0].type == "f8_e4m3"


@pytest.mark.parametrize("type, group, activations", [("u4", 64, "i8"), ("f4_e2m1", 32, "mxfp4")])
def test_plain_weights_for_activations_of_8_bits(type, group, activations):
    config = {"quant_method": "tilusvm", "type": type, "group": group, "activations": activations}
    parts = parts_of(config, 256, [128, 64])
    weights = [torch.randn(size, 256).half() for size in (128, 64)]
    for i, weight in enumerate(weights):
        parts.take(i, "weight", weight, "out", 0, weight.shape[0])
    (made,) = parts.finish()
    assert isinstance(made, nn.Linear8) and made.type == type and made.out_features == 192
    with pytest.raises(ValueError, match="activations must be"):
        scheme.Scheme.from_config({**config, "activations": "f16"})
    with pytest.raises(ValueError, match="multiple of 128"):
        parts_of(config, 96, [64]).take(0, "weight", torch.randn(64, 96).half(), "out", 0, 64)


def test_folders_of_activations_of_8_bits(tmp_path):
    layer = nn.Linear.from_float(torch.nn.Linear(128, 64).half(), "u4", 64, activations="i8")
    storage.save(torch.nn.Sequential(layer), tmp_path)
    with pytest.raises(UnsupportedError, match="layer 0 is packed for activations of i8"):
        scheme.described(str(tmp_path))
