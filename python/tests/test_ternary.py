"""Ternary weights: layers and models of BitNet against torch's own arithmetic in f64, and transformers' layers."""

import copy
import json

import pytest
from conftest import NO_TORCH, torch

if torch is None:
    pytest.skip(NO_TORCH, allow_module_level=True)

from torch_kit import DEVICES, close, tvm_pack  # noqa: E402

from tilusvm import nn, ops, storage, ternary  # noqa: E402

HALF, BFLOAT, FLOAT = torch.float16, torch.bfloat16, torch.float32
ROUNDING = {HALF: 1e-3, BFLOAT: 8e-3, FLOAT: 1e-6}


@pytest.fixture(params=DEVICES)
def device(request):
    torch.manual_seed(34)
    return request.param


def signs(device, n, k):
    return torch.randint(-1, 2, (n, k), dtype=torch.int8, device=device)


def rounded(x):
    """As BitNet's own code rounds activations, in f64."""
    scale = 127 / x.double().abs().amax(-1, keepdim=True)
    return (x.double() * scale).round() / scale


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("n, k, rows", [(16, 160, 1), (72, 168, 3), (136, 488, 40), (24, 336, 140), (24, 328, 140)])
def test_layer(device, dtype, n, k, rows):
    w, bias = signs(device, n, k), torch.randn(n, device=device)
    layer = ternary.BitLinear.from_ternary(w, 0.25, bias)
    assert torch.equal(ops.unpack_ternary(layer.packed, n=n, k=k), w)
    assert layer.packed.numel() == -(-n // 16) * -(-k // 160) * 512
    assert torch.equal(layer.dequantize(), w.float() * 0.25)
    # a scale of 32 exactly, so that no other computation of it rounds an element the other way
    x = torch.randint(-126, 127, (2, rows, k), device=device) + torch.randint(-1, 2, (2, rows, k), device=device) / 4
    x[..., 0] = 127
    x = (x / 32).to(dtype)
    y = layer(x)
    assert y.dtype == dtype and y.shape == (2, rows, n)
    close(y, rounded(x) @ w.double().T * 0.25 + bias.double(), ROUNDING[dtype])
    assert torch.equal(copy.deepcopy(layer).to(HALF)(x), y)


def test_operators_say_what_is_wrong(device):
    layer = ternary.BitLinear.from_ternary(signs(device, 16, 64), 1.0)
    x, factors = ops.quantize_rows(torch.randn(3, 64, device=device))
    good = {"n": 16}
    ops.matmul_ternary(x, layer.packed, factors, layer.scales, **good)
    with pytest.raises(ValueError, match="n, 40, must be a multiple of 8 whose weights are"):
        ops.matmul_ternary(x, layer.packed, factors, layer.scales, n=40)
    with pytest.raises(TypeError, match="x must be torch.int8"):
        ops.matmul_ternary(x.float(), layer.packed, factors, layer.scales, **good)
    with pytest.raises(ValueError, match="scales must have the shape"):
        ops.matmul_ternary(x, layer.packed, factors, layer.scales[:8], **good)
    with pytest.raises(ValueError, match="a matrix of -1, 0 and 1"):
        ternary.BitLinear.from_ternary(torch.full((8, 8), 2.0), 1.0)
    with pytest.raises(ValueError, match="x must have 64 columns"):
        layer(torch.randn(3, 72, device=device))
    with pytest.raises(NotImplementedError, match="no gradient"):
        layer(torch.randn(3, 64, device=device, requires_grad=True))


def test_from_float_is_absmean(device):
    linear = torch.nn.Linear(48, 24, device=device)
    layer = ternary.BitLinear.from_float(linear)
    w = linear.weight.detach().double()
    mean = w.abs().mean()
    close(layer.dequantize(torch.float64), (w / mean).round().clamp(-1, 1) * mean, 1e-6)
    assert torch.equal(layer.bias, linear.bias)


def test_cat(device):
    layers = [ternary.BitLinear.from_ternary(signs(device, n, 64), s) for n, s in ((32, 0.5), (16, 2.0), (8, 1.0))]
    layers[1].bias = torch.randn(16, device=device)
    x = torch.randn(5, 64, device=device)
    assert torch.equal(ternary.BitLinear.cat(layers)(x), torch.cat([layer(x) for layer in layers], -1))
    with pytest.raises(ValueError, match="a multiple of 16 outputs"):
        ternary.BitLinear.cat(layers[::-1])


# ---- models of transformers ----


@pytest.mark.parametrize("linear_class", ["bitlinear", "autobitlinear"])
def test_imported_layers(device, linear_class, tmp_path):
    """By tvm-pack and storage.load as weights of u2, and then as BitLinear."""
    w, scale = signs("cpu", 64, 128), torch.tensor([1.5]).bfloat16()
    rows = (w + 1).view(torch.uint8).view(4, 16, 128)
    packed = rows[0] | rows[1] << 2 | rows[2] << 4 | rows[3] << 6
    folder = tmp_path / "theirs"
    folder.mkdir()
    tensors = {"x.weight": packed, "x.weight_scale": scale, "x.bias": torch.arange(64).bfloat16()}
    storage._write(str(folder / "model.safetensors"), tensors, {"format": "pt"})
    text = {"quantization_config": {"quant_method": "bitnet", "linear_class": linear_class}}
    (folder / "config.json").write_text(json.dumps(text))
    tvm_pack("--from=auto", folder, "-o", tmp_path / "ours")
    model = torch.nn.Module()
    model.x = torch.nn.Linear(128, 64, device="meta")
    storage.load(model, tmp_path / "ours", device=device)
    assert type(model.x) is nn.Linear and model.x.type == "u2"
    factor = 1.5 if linear_class == "autobitlinear" else 1 / 1.5
    close(model.x.dequantize(), w.double().to(device) * factor, 1e-6)
    assert ternary.replace_(model) == ["x"]
    close(model.x.dequantize(), w.double().to(device) * factor, 1e-6)
    assert torch.equal(model.x.bias, torch.arange(64, device=device).float())


@pytest.mark.transformers
def test_rows_as_transformers_packs_them(device):
    bitnet = pytest.importorskip("transformers.integrations.bitnet")
    w = signs(device, 32, 40)
    assert torch.equal(ternary.unpack_rows(bitnet.pack_weights(w.float())), w)


def bitnet_model(device, linear_class, mode="offline", **words):
    """A tiny one with layers of BitNet, whose weights are those of a file: packed or not, with their scales."""
    import transformers
    from transformers.integrations import bitnet

    config = transformers.BitNetConfig(
        vocab_size=96, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, bos_token_id=1, eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=FLOAT).eval()
    asked = transformers.BitNetQuantConfig(
        modules_to_not_convert=["lm_head"], linear_class=linear_class, quantization_mode=mode, **words
    )
    bitnet.replace_with_bitnet_linear(model, modules_to_not_convert=["lm_head"], quantization_config=asked)
    for module in model.modules():
        if isinstance(module, (bitnet.BitLinear, bitnet.AutoBitLinear)):
            w, scale = signs("cpu", module.out_features, module.in_features), torch.rand(1) + 0.5
            module.to_empty(device="cpu")
            if module.rms_norm is not None:
                module.rms_norm.weight.data = 1 + 0.2 * torch.randn(module.in_features)
            if linear_class == "bitlinear":
                module.weight, module.weight_scale = bitnet.pack_weights(w.float()), scale * 20
            elif mode == "offline":
                module.weight.data, module.weight_scale = w.float(), scale / 20
            else:
                module.weight.data = torch.randn(module.out_features, module.in_features) / 20
    return model.requires_grad_(False).to(device)


@pytest.mark.transformers
@pytest.mark.parametrize("words", [
    {"linear_class": "bitlinear"}, {"linear_class": "autobitlinear"},
    {"linear_class": "bitlinear", "use_rms_norm": True}, {"linear_class": "autobitlinear", "mode": "online"},
])  # fmt: skip
def test_model(device, words, monkeypatch):
    bitnet = pytest.importorskip("transformers.integrations.bitnet")
    for owner, name in ((bitnet, "unpack_weights"), (bitnet.BitLinear, "activation_quant"),
                        (bitnet.BitLinear, "post_quant_process"), (bitnet.WeightQuant, "forward"),
                        (bitnet.ActQuant, "forward")):  # fmt: skip
        plain = getattr(owner, name)
        plain = getattr(plain, "_torchdynamo_orig_callable", plain)  # what torch.compile would compile
        monkeypatch.setattr(owner, name, staticmethod(plain) if owner.__name__.endswith("Quant") else plain)
    model = bitnet_model(device, **words)
    mine = copy.deepcopy(model)
    done = ternary.replace_(mine)
    assert len(done) == 14 and "model.layers.1.mlp.down_proj" in done
    assert sum(isinstance(m, ternary.BitLinear) for m in mine.modules()) == 14
    ids = torch.randint(2, 96, (2, 9), generator=torch.Generator().manual_seed(5)).to(device)
    with torch.no_grad():
        expected, found = model(ids).logits, mine(ids).logits
        # a number that lies between two roundings may go either way, by the last bit of f32
        assert (found - expected).abs().mean() <= 1e-2 * expected.abs().mean()
        made = mine.generate(ids, max_new_tokens=6, do_sample=False, eos_token_id=None)
        logits = model(made).logits[:, 8:-1]
        chosen = logits.gather(-1, made[:, 9:, None])[..., 0]
        assert made.shape == (2, 15) and (logits.amax(-1) - chosen).max() <= 0.1 * logits.std()
    with pytest.raises(ValueError, match="no layers of BitNet"):
        ternary.replace_(mine)
