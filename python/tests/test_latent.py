"""Latent attention on a cache of latents (absorb_, LatentCache) against transformers' own in float32."""

import copy

import pytest
from conftest import torch

transformers = pytest.importorskip("transformers", reason="transformers cannot be imported")
pytest.importorskip("torch", reason="torch cannot be imported")

from decoder_kit import tiny_model, tokens_of  # noqa: E402
from torch_kit import DEVICES, close  # noqa: E402

import tilusvm  # noqa: E402
from tilusvm.transformers import Decoder, LatentCache, absorb_  # noqa: E402
from tilusvm.transformers._cache import ARGUMENT  # noqa: E402

pytestmark = pytest.mark.transformers
transformers.logging.set_verbosity_error()

SIZES = {
    "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "moe_intermediate_size": 32,
    "first_k_dense_replace": 2, "q_lora_rank": 32, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
    "v_head_dim": 128, "n_shared_experts": 1, "num_attention_heads": 2, "num_key_value_heads": 2,
}  # fmt: skip
TOLERANCE = {None: 5e-3, "f8_e4m3": 0.15, "i8": 4e-2, "u4": 0.5}


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.no_grad():
        yield


def model_of(device="cpu", **words):
    return tiny_model("deepseek_v3", device, torch.float16, **{**SIZES, **words})


def logits_of(model, cache, ids, steps):
    """Of ids in so many steps: prompts, then what follows."""
    parts, begin = [], 0
    for count in steps:
        words = {ARGUMENT: cache, "use_cache": True}
        parts.append(model(ids[:, begin : begin + count], **words).logits)
        begin += count
    return torch.cat(parts, 1)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("type", TOLERANCE)
@pytest.mark.parametrize("words", [{}, {"q_lora_rank": None, "rope_interleave": False}, {"v_head_dim": 64}])
def test_logits(device, type, words):
    """Of a prompt, of one token, and of several behind it; prompts of more than 64 tokens, too."""
    model = model_of(device, **words)
    exact = copy.deepcopy(model).float()
    exact.set_attn_implementation("eager")
    absorb_(model)
    for steps in ((9, 1, 3, 1), (70, 1, 66)):
        ids = torch.tensor([tokens_of(sum(steps), seed=i)[0] for i in range(2)], device=device)
        cache = LatentCache(model, 2, 160, type=type, page=16)
        found = logits_of(model, cache, ids, steps)
        assert cache.tokens == sum(steps) and cache.data[0].shape[0] == 2 * 10
        expected = exact(ids).logits
        error = (found.double() - expected.double()).norm() / expected.double().norm()
        assert error <= TOLERANCE[type]


@pytest.mark.parametrize("device", DEVICES)
def test_generate(device):
    """As with transformers' own cache, of the same model, which goes on to work without a LatentCache."""
    model = model_of(device)
    ids = torch.tensor(tokens_of(11, 11), device=device)
    words = {"max_new_tokens": 8, "do_sample": False, "eos_token_id": None}
    exact = copy.deepcopy(model).float()
    absorb_(model)
    cache = LatentCache(model, 2, 64)
    made = model.generate(ids, **{ARGUMENT: cache}, **words)
    assert made.shape == (2, 19) and cache.tokens == 18
    logits = exact(made).logits[:, 10:-1]
    chosen = logits.gather(-1, made[:, 11:, None])[..., 0]
    assert (logits.amax(-1) - chosen).max() <= 0.1 * logits.std()
    close(model(ids).logits, exact(ids).logits, 3e-2)
    assert torch.equal(model.generate(ids, cache_implementation="tilusvm", **words), made)
    assert model.generate(ids, cache_implementation="tilusvm_f8_e4m3", **words).shape == made.shape
    with pytest.raises(ValueError, match='type must be None, "f8_e4m3", "i8" or "u4", not'):
        model.generate(ids, cache_implementation="tilusvm_u3", **words)


def test_weights_may_be_quantized():
    model = absorb_(model_of())
    exact = copy.deepcopy(model)
    tilusvm.quantize_(model, "u8", group=64, skip=["lm_head"], progress=False)
    absorb_(model)
    ids = torch.tensor(tokens_of(5, seed=3))
    found, expected = (logits_of(m, LatentCache(m, 1, 32), ids, (4, 1)) for m in (model, exact))
    assert (found - expected).float().norm() <= 0.05 * expected.float().norm()


def test_what_cannot_be_is_said():
    with pytest.raises(ValueError, match="the model has no latent attention"):
        absorb_(tiny_model("llama"))
    with pytest.raises(ValueError, match="it has 32 latents and 64 turned elements"):
        absorb_(model_of(kv_lora_rank=32))
    model = model_of()
    with pytest.raises(ValueError, match="that absorb_ was given"):
        LatentCache(model, 1, 32)
    absorb_(model)
    ids = torch.tensor(tokens_of(5))
    with pytest.raises(ValueError, match="the cache holds 4 tokens"):
        logits_of(model, LatentCache(model, 1, 4), ids, (5,))
    with pytest.raises(ValueError, match="for a batch of 2, not 1"):
        logits_of(model, LatentCache(model, 2, 32), ids, (5,))
    with pytest.raises(ValueError, match="no padding"):
        model(ids, attention_mask=torch.tensor([[0, 1, 1, 1, 1]]), **{ARGUMENT: LatentCache(model, 1, 32)})


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("type, tolerance", [(None, 1e-2), ("f8_e4m3", 0.2)])
def test_decoder(device, type, tolerance):
    """Prompts, of one length and of several, and steps behind them."""
    model = model_of(device)
    exact = copy.deepcopy(model).float()
    decoder = Decoder(model, 2, 64, cache=type, page=16)
    assert isinstance(decoder.cache, LatentCache) and decoder.cache.format.type == type
    ids = torch.tensor(tokens_of(12, 12), device=device)
    for begin, end in ((0, 10), (10, 11), (11, 12)):
        logits = decoder.forward(ids[:, begin:end])
        wanted = exact(ids[:, :end]).logits[:, -1]
        assert (logits.double() - wanted).norm() <= tolerance * wanted.double().norm()
    prompts = tokens_of(9, 4)
    decoder.serve(2, 64, cache=type)
    made = decoder.generate(prompts, 5, eos_token_id=None)
    for prompt, tokens in zip(prompts, made.tolist() if isinstance(made, torch.Tensor) else made):
        whole = torch.tensor([[token for token in tokens if token != -1]], device=device)[:, -(len(prompt) + 5) :]
        logits = exact(whole).logits[0, len(prompt) - 1 : -1]
        chosen = logits.gather(-1, whole[0, len(prompt) :, None])[:, 0]
        assert whole[0, : len(prompt)].tolist() == prompt
        assert (logits.amax(-1) - chosen).max() <= tolerance * 10 * logits.std()


def test_decoder_says_what_it_has_not():
    with pytest.raises(ValueError, match="no zero points"):
        Decoder(model_of(), 1, 32, zeros=True)
    with pytest.raises(ValueError, match="no Decoder for layer 0 of the model: it has 32 latents"):
        Decoder(model_of(kv_lora_rank=32), 1, 32)
