"""Models of many families, taken by what their layers are made of: against transformers' own; what stays is told."""

import pytest
from conftest import torch

transformers = pytest.importorskip("transformers", reason="transformers cannot be imported")
pytest.importorskip("torch", reason="torch cannot be imported")

from decoder_kit import padded, tiny_model, tokens_of  # noqa: E402
from torch_kit import close  # noqa: E402

from tilusvm import quantize_  # noqa: E402
from tilusvm.transformers import Decoder, Report, _versions, accelerate_  # noqa: E402

pytestmark = pytest.mark.transformers
transformers.logging.set_verbosity_error()

PARTIAL = {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
#: Of which all layers are taken: fused products, rotary embeddings of halves of heads and of pairs, norms behind the
#: sums alone, norms of all heads together, sinks, scores for logits.
WHOLE = {
    "phi3": {"rope_parameters": PARTIAL, "sliding_window": 8}, "glm4": {"rope_parameters": PARTIAL},
    "gpt_oss": {**EXPERTS, "sliding_window": 8}, "smollm3": {"no_rope_layers": [1, 1]},
}  # fmt: skip
if transformers.__version__ == _versions.TESTED[-1]:  # 5.4 makes no OLMo of untied embeddings
    WHOLE |= {"olmo2": {}, "olmo3": {"sliding_window": 8}}
LATENT = {
    "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "moe_intermediate_size": 32,
    "first_k_dense_replace": 1, "q_lora_rank": 32, "kv_lora_rank": 32, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
    "v_head_dim": 128, "n_shared_experts": 1, "num_key_value_heads": 2,
}  # fmt: skip
#: Of which some parts stay, and why.
PARTLY = {
    "deepseek_v3": (LATENT, "latent"),
    "llama4_text": ({**EXPERTS, "num_experts_per_tok": 1, "intermediate_size_mlp": 96}, "qk_norm"),
    "granite": ({"residual_multiplier": 0.5}, "it scales what it adds"),
    "smollm3": ({"no_rope_layers": [1, 0]}, "gives something else"),
    "cohere": ({}, "no known arrangement"),
}
GREEDY = {"max_new_tokens": 5, "do_sample": False, "eos_token_id": None}


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.no_grad():
        yield


def exact_of(family, words):
    model = tiny_model(family, **words)
    model.set_attn_implementation("eager")
    return model.float()


@pytest.mark.parametrize("family", WHOLE)
def test_layers_of_known_parts(family, recwarn):
    """accelerate_ and the Decoder give what transformers does, with padding and behind what is cached."""
    words, prompts = WHOLE[family], tokens_of(14, 9)
    ids, mask = padded(prompts)
    exact = exact_of(family, words)
    model = accelerate_(tiny_model(family, **words))
    assert [entry.name for entry in model.tilusvm_report] == ["model.layers.0", "model.layers.1"]
    assert not model.tilusvm_report.stays() and not [w for w in recwarn if "accelerated" in str(w.message)]
    found = model(ids, attention_mask=mask).logits
    for row, keep, prompt in zip(found, mask.bool(), prompts):
        close(row[keep], exact(torch.tensor([prompt])).logits[0], 2e-2)
    wanted = [exact.generate(torch.tensor([prompt]), **GREEDY)[0, -5:].tolist() for prompt in prompts]
    assert model.generate(ids, attention_mask=mask, **GREEDY)[:, -5:].tolist() == wanted
    same = model.generate(torch.tensor(prompts[:1]), cache_implementation="tilusvm", **GREEDY)[0, -5:].tolist()
    assert same == wanted[0]
    for each in (model, tiny_model(family, **words)):
        decoder = Decoder(each, batch=2, max_tokens=32, page=16)
        assert decoder.generate(prompts, 5, eos_token_id=[], pad_token_id=0)[:, -5:].tolist() == wanted


@pytest.mark.parametrize("family", ["phi3", "gpt_oss"])
def test_quantized(family):
    """Fused products and experts of few bits."""
    ids = torch.tensor(tokens_of(14))
    model = quantize_(tiny_model(family, **WHOLE[family]), "u8", 32, skip=["lm_head", "*.router"], progress=False)
    exact = exact_of(family, WHOLE[family])(ids).logits
    close(accelerate_(model)(ids).logits, exact, 8e-2)
    close(Decoder(model, batch=1, max_tokens=32, page=16).forward(ids), exact[:, -1], 8e-2)


@pytest.mark.parametrize("family", PARTLY)
def test_what_stays_is_told(family):
    """What is known of a layer is taken, the rest is transformers', and right."""
    words, why = PARTLY[family]
    ids = torch.tensor(tokens_of(14, 14))
    exact = exact_of(family, words)
    with pytest.warns(UserWarning, match=f"not all of the model is accelerated:(.|\n)*{why}"):
        model = accelerate_(tiny_model(family, **words))
    report = model.tilusvm_report
    assert isinstance(report, Report) and report.stays() and why in str(report)
    if family != "cohere":  # whose norms subtract the mean
        assert "by this package's kernels" in str(report)
    close(model(ids).logits, exact(ids).logits, 2e-2)
    out = model.generate(ids, return_dict_in_generate=True, output_logits=True, **GREEDY)
    close(torch.stack(out.logits, 1), exact(out.sequences).logits[:, 13:-1], 2e-2)
    with pytest.raises(ValueError, match=f"no Decoder for layer .*{why}|no Decoder for the model"):
        Decoder(tiny_model(family, **words), batch=1, max_tokens=32, page=16)


def test_what_is_around_the_layers():
    """Is not the Decoder's, which says so, and accelerate_ leaves it to transformers."""
    words = {"logits_scaling": 3.0, "embedding_multiplier": 2.0}
    ids = torch.tensor(tokens_of(14))
    close(accelerate_(tiny_model("granite", **words))(ids).logits, exact_of("granite", words)(ids).logits, 2e-2)
    with pytest.raises(ValueError, match="something around its layers is not known"):
        Decoder(tiny_model("granite", **words), batch=1, max_tokens=32, page=16)


def test_rotary_embeddings_that_grow():
    factors = [1.0] * 32
    words = {"rope_type": "longrope", "short_factor": factors, "long_factor": [2.0] * 32, "rope_theta": 1e4,
             "original_max_position_embeddings": 32, "factor": 4.0}  # fmt: skip
    model = tiny_model("phi3", hidden_size=128, rope_parameters=words, original_max_position_embeddings=32)
    with pytest.raises(
        ValueError, match="max_tokens must be 32 at most, as the model's rotary embedding .longrope. is"
    ):
        Decoder(model, batch=1, max_tokens=64, page=16)


def test_models_without_such_layers():
    config = transformers.GPT2Config(n_embd=64, n_layer=1, n_head=2, vocab_size=32)
    with pytest.raises(ValueError, match=r"family gpt2, which has no model\.layers"):
        accelerate_(transformers.GPT2LMHeadModel(config).half())
