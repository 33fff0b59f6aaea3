"""TilusConfig and what from_pretrained makes of it, with models of all kinds, against the model that was quantized."""

import importlib.util
import re
import subprocess
import sys
import tomllib
import warnings
from pathlib import Path

import pytest
from conftest import NO_TORCH, torch

if torch is None:
    pytest.skip(NO_TORCH, allow_module_level=True)
transformers = pytest.importorskip("transformers", reason="transformers cannot be imported")

import tilusvm.transformers  # noqa: E402
from tilusvm import nn, quantize_  # noqa: E402
from tilusvm.transformers import TilusConfig, _versions  # noqa: E402

pytestmark = pytest.mark.transformers
transformers.logging.set_verbosity_error()
SMALL = dict(hidden_size=64, intermediate_size=100, num_hidden_layers=1, num_attention_heads=2, vocab_size=90)
CONFIGS = {
    "gpt2": (transformers.GPT2Config(n_embd=64, n_layer=1, n_head=2, vocab_size=96), {}),
    "mamba2": (
        transformers.Mamba2Config(
            hidden_size=64, num_heads=8, head_dim=16, state_size=16, num_hidden_layers=1, vocab_size=96, n_groups=1,
            chunk_size=8,
        ),
        {},
    ),
    "odd sizes": (transformers.LlamaConfig(**SMALL, mlp_bias=True, tie_word_embeddings=False), {"skip": ()}),
    "tied": (transformers.LlamaConfig(**SMALL, tie_word_embeddings=True), {"skip": ()}),
}  # fmt: skip


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.no_grad():
        yield


def saved(config, folder):
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float16).eval()
    model.save_pretrained(folder)
    return model


def load(folder, **words):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, **{"dtype": torch.float16, **words})


@pytest.mark.parametrize("name", CONFIGS)
def test_models_are_saved_and_loaded(name, tmp_path):
    """Every linear layer is quantized but those to skip, counts as many parameters, and is the same when it is back."""
    config, words = CONFIGS[name]
    plain = saved(config, tmp_path / "plain")
    count = plain.num_parameters()
    if name == "tied":
        count += config.hidden_size * config.vocab_size  # the head has weights of its own now
    quantized = load(tmp_path / "plain", quantization_config=TilusConfig("u8", 32, **words))
    layers = {n: m for n, m in quantized.named_modules() if isinstance(m, nn.Linear)}
    linear = [n for n, m in plain.named_modules() if type(m).__name__ in ("Linear", "Conv1D")]
    assert sorted(layers) == [n for n in sorted(linear) if "skip" in words or n != "lm_head"] and layers
    ids = torch.arange(1, 9)[None]
    expected = plain(ids).logits
    logits = quantized(ids).logits
    assert (logits - expected).abs().max() < 0.03 * expected.abs().max()
    quantized.save_pretrained(tmp_path / "quantized")
    again = load(tmp_path / "quantized")
    assert torch.equal(again(ids).logits, logits)
    assert [type(m) for m in again.modules()] == [type(m) for m in quantized.modules()]
    for model in (quantized, again):
        assert model.num_parameters() == count
        held = sum(p.numel() for p in model.parameters())
        assert model.num_parameters(only_trainable=True) <= held < count
        for layer in (m for m in model.modules() if isinstance(m, nn.Linear)):
            assert not layer._parameters and not layer.waiting
            assert layer.bias is None or layer.bias.shape == (layer.out_features,)


def test_biases_that_were_filled_up(tmp_path):
    """Folders of before have biases of as many elements as the packed weights have columns."""
    config, words = CONFIGS["odd sizes"]
    saved(config, tmp_path / "plain")
    model = load(tmp_path / "plain", quantization_config=TilusConfig("u8", 32, **words))
    model.save_pretrained(tmp_path / "now")
    for layer in (m for m in model.modules() if isinstance(m, nn.Linear) and m.bias is not None):
        layer.bias = nn.filled(layer.bias + 0.5, layer._whole[0])
    ids = torch.arange(1, 9)[None]
    expected = model(ids).logits
    model.save_pretrained(tmp_path / "before")
    again = load(tmp_path / "before")
    assert torch.equal(again(ids).logits, expected)
    up = again.model.layers[0].mlp.up_proj
    assert up._whole[0] == 104 and up.bias.shape == (100,) and up.bias.is_contiguous()


def test_routers_stay():
    """Llama 4's router is derived from torch.nn.Linear, and gives scores and logits."""
    config = transformers.Llama4TextConfig(
        hidden_size=64, intermediate_size=64, intermediate_size_mlp=64, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, head_dim=32, vocab_size=96, num_local_experts=2, moe_layers=[0], pad_token_id=0,
    )  # fmt: skip
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float16).eval()
    router = model.model.layers[0].feed_forward.router
    x = torch.randn(3, 64, dtype=torch.float16)
    expected = router(x)
    with pytest.warns(UserWarning, match=r"feed_forward\.router \(Llama4Router\) are not called as linear layers are"):
        quantize_(model, "u4", 32, skip=["lm_head"], progress=False)
    assert model.model.layers[0].feed_forward.router is router
    assert all(torch.equal(a, b) for a, b in zip(router(x), expected))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        quantize_(model, "u4", 32, skip=["lm_head", "*.router"], progress=False)


@pytest.mark.parametrize(
    "words, message", [
        ({"gruop": 32}, "no 'gruop': did you mean group?"), ({"bits": 3}, "no 'bits': did you mean type='u3'?"),
        ({"group_size": 64}, "did you mean group?"), ({"dtype": torch.float32}, "is from_pretrained's dtype"),
        ({"xyz": 1}, "no 'xyz': it has type, group, zeros, scales, skip, version"),
        ({"modules_to_not_convert": []}, "did you mean skip?"),
    ],
)  # fmt: skip
def test_unknown_keywords(words, message):
    with pytest.raises(TypeError, match=re.escape(message)):
        TilusConfig(**words)


def test_configurations_come_back():
    config = TilusConfig("u3", 64, zeros=True, skip=["head"])
    assert TilusConfig.from_dict(config.to_dict()).to_dict() == config.to_dict()
    with pytest.raises(ValueError, match="tilusvm"):
        TilusConfig(quant_method="gptq")


def test_types_of_activations(tmp_path):
    saved(CONFIGS["gpt2"][0], tmp_path)
    with pytest.warns(UserWarning, match=r"the model is loaded in torch\.float16, not in torch\.float32"):
        model = load(tmp_path, dtype=torch.float32, quantization_config=TilusConfig("u4", 32))
    assert model.dtype == torch.float16
    assert load(tmp_path, dtype=torch.bfloat16, quantization_config=TilusConfig("u4", 32)).dtype == torch.bfloat16


@pytest.mark.skipif(importlib.util.find_spec("accelerate") is None, reason="device_map needs accelerate")
def test_offloading_is_refused(tmp_path):
    saved(CONFIGS["gpt2"][0], tmp_path / "plain")
    where = {"transformer": "cpu", "lm_head": "cpu"}
    words = {"quantization_config": TilusConfig("u4", 32), "offload_folder": tmp_path / "off"}
    model = load(tmp_path / "plain", device_map=where, **words)
    model.save_pretrained(tmp_path / "quantized")
    away = {"transformer.wte": "cpu", "transformer.wpe": "cpu", "transformer.h": "disk", "transformer.ln_f": "cpu",
            "lm_head": "cpu"}  # fmt: skip
    for folder, more in ((tmp_path / "plain", words), (tmp_path / "quantized", {"offload_folder": tmp_path / "off"})):
        with pytest.raises(ValueError, match=r"device_map leaves transformer\.h on the disk: .* cannot be offloaded"):
            load(folder, device_map=away, **more)
        with pytest.raises(ValueError, match="device_map leaves transformer on the cpu"):
            load(folder, device_map={"transformer": "cpu", "lm_head": "cuda:0"}, **more)


def test_the_range_that_is_tested():
    """Is said once, and outside of it there is a warning that names it."""
    first, last = _versions.TESTED
    extras = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
    (wanted,) = [w for w in extras["optional-dependencies"]["transformers"] if w.startswith("transformers")]
    major, minor, _ = last.split(".")
    assert wanted == f"transformers>={first},<{major}.{int(minor) + 1}"
    for name, version in (("first", first), ("last", last)):  # what the tests are run with
        text = (Path(__file__).parent / f"requirements-{name}.txt").read_text()
        assert f"transformers=={version}\n" in text
    text = " ".join((Path(__file__).parent.parent / "README.md").read_text().split())
    assert "tested with transformers {}.{} to {}.{}, and warns".format(*first.split(".")[:2], major, minor) in text
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for version in (first, last, f"{major}.{minor}.99", "5.10.1"):
            _versions.check(version)
    for version in ("4.57.6", "5.0.0", f"{major}.{int(minor) + 1}.0.dev0", "6.0.0"):
        with pytest.warns(UserWarning, match=f"tested with transformers {first} to {last}, not with {version}"):
            _versions.check(version)


def test_the_version_is_looked_at():
    code = "import transformers; transformers.__version__ = '6.1.0'; import tilusvm.transformers"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=3600, check=True)
    assert "not with 6.1.0" in done.stderr
    assert tilusvm.transformers.TilusConfig is TilusConfig
