"""The attention `tilusvm` of transformers, by name: padding, windows, sinks, pages of continuous batching and caches by
name, against transformers' own attention in float64, one sequence at a time."""

import copy
import warnings

import pytest
from conftest import torch

transformers = pytest.importorskip("transformers", reason="transformers cannot be imported")
pytest.importorskip("torch", reason="torch cannot be imported")

from decoder_kit import padded, tiny_model, tokens_of  # noqa: E402
from torch_kit import close  # noqa: E402

from tilusvm.transformers import PagedCache, _versions, accelerate_  # noqa: E402
from tilusvm.transformers._cache import ARGUMENT  # noqa: E402

pytestmark = pytest.mark.transformers
transformers.logging.set_verbosity_error()

FAMILIES = ["llama", "gemma2", "gemma3_text", "mistral", "gpt_oss"]  # of them caps, windows and sinks
LATENT = {
    "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "moe_intermediate_size": 32,
    "first_k_dense_replace": 1, "q_lora_rank": 32, "kv_lora_rank": 32, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
    "v_head_dim": 128, "n_shared_experts": 1, "num_key_value_heads": 2,
}  # fmt: skip
OPTIONS = {
    "gpt_oss": {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 8},
    "deepseek_v3": LATENT,  # keys of 192 elements, values of 128
}
#: Before, transformers' pages lose a token of a window that has wrapped around.
NEWEST = transformers.__version__ == _versions.TESTED[-1]
GREEDY = {"max_new_tokens": 6, "do_sample": False, "eos_token_id": None}


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # nothing is left to torch
        yield


def model_of(family, attention="tilusvm", **words):
    model = tiny_model(family, **{**OPTIONS.get(family, {}), **words})
    model.set_attn_implementation(attention)
    return model


def exact_of(family):
    model = model_of(family, "eager")
    return model.float() if family in OPTIONS else model.double()  # torch groups no products of float64


def generated(model, prompts):
    """What transformers generates behind each prompt alone, as lists."""
    found = [model.generate(torch.tensor([prompt]), **GREEDY)[0].tolist() for prompt in prompts]
    return [tokens[len(prompt) :] for tokens, prompt in zip(found, prompts)]


@pytest.mark.parametrize("side", ["left", "right", "none"])
@pytest.mark.parametrize("family", [*FAMILIES, "deepseek_v3"])
def test_logits(family, side):
    """Of a padded batch as of each sequence alone; windows of 8 tokens are shorter than the prompts."""
    prompts = tokens_of(*((11, 19, 4) if side != "none" else (12, 12)))
    ids, mask = padded(prompts)
    if side == "right":
        ids, mask = (torch.stack([row.roll(int(keep.sum())) for row, keep in zip(t, mask)]) for t in (ids, mask))
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    logits = model_of(family)(ids, attention_mask=mask, position_ids=positions).logits
    exact = exact_of(family)
    for row, keep, prompt in zip(logits, mask.bool(), prompts):
        close(row[keep], exact(torch.tensor([prompt])).logits[0], 2e-2)


@pytest.mark.parametrize("family", [*FAMILIES, "deepseek_v3"])
def test_generate(family):
    """Steps behind a padded prompt, by transformers' own cache."""
    prompts = tokens_of(11, 4)
    ids, mask = padded(prompts)
    found = model_of(family).generate(ids, attention_mask=mask, **GREEDY)[:, ids.shape[1] :].tolist()
    assert found == generated(exact_of(family), prompts)


def batching(**words):
    config = transformers.ContinuousBatchingConfig
    page = "page_size" if "page_size" in config.__dataclass_fields__ else "block_size"
    return config(num_blocks=16, **{page: 32, "max_batch_tokens": 64, **words})


def batched(model, prompts, **words):
    config = transformers.GenerationConfig(max_new_tokens=6, do_sample=False, eos_token_id=-1, pad_token_id=0)
    found = model.generate_batch(prompts, generation_config=config, continuous_batching_config=batching(**words))
    assert len(found) == len(prompts)
    by_prompt = {tuple(each.prompt_ids): list(each.generated_tokens) for each in found.values()}
    return [by_prompt[tuple(prompt)] for prompt in prompts]


@pytest.mark.parametrize("tokens", [64, 16])
@pytest.mark.parametrize("family", FAMILIES if NEWEST else ["llama"])
def test_continuous_batching(family, tokens):
    """Prompts of any lengths at once, and with 16 tokens a batch in pieces beside steps of others."""
    prompts = tokens_of(5, 40, 13)
    found = batched(model_of(family), prompts, max_batch_tokens=tokens)
    assert found == generated(exact_of(family), prompts)


@pytest.mark.parametrize("attention", ["sdpa", "tilusvm"])
@pytest.mark.parametrize("family", ["llama", "mistral"] if NEWEST else ["llama"])
def test_continuous_batching_of_an_accelerated_model(family, attention):
    prompts = tokens_of(5, 40, 13)
    model = accelerate_(model_of(family, attention))
    assert batched(model, prompts, max_batch_tokens=16) == generated(exact_of(family), prompts)


@pytest.mark.skipif(not NEWEST, reason="needs the last version of transformers that is tested")
@pytest.mark.parametrize("accelerated", [False, True])
def test_pages_are_read_where_they_lie(monkeypatch, accelerated):
    """Behind the first tokens of a prompt no keys are gathered from continuous batching's cache."""
    read, model = [], model_of("llama")
    allocator = transformers.generation.continuous_batching.cache.FullAttentionCacheAllocator
    update = allocator.update

    def watched(self, key_states, value_states, layer_idx, read_index, write_index):
        read.append(read_index.numel())
        return update(self, key_states, value_states, layer_idx, read_index, write_index)

    monkeypatch.setattr(allocator, "update", watched)
    batched(accelerate_(model) if accelerated else model, tokens_of(5, 40, 13), max_batch_tokens=16)
    assert read and not any(read)


@pytest.mark.parametrize("accelerated", [False, True])
@pytest.mark.parametrize("name", ["tilusvm", "tilusvm_u8", "tilusvm_k8v4", "tilusvm_u4"])
def test_caches_by_name(name, accelerated):
    prompts = tokens_of(70, 70)
    ids, model = torch.tensor(prompts), model_of("llama", "sdpa" if accelerated else "tilusvm")
    model = accelerate_(model) if accelerated else model
    out = model.generate(ids, cache_implementation=name, return_dict_in_generate=True, output_logits=True, **GREEDY)
    cache = out[ARGUMENT]
    assert isinstance(cache, PagedCache) and cache.tokens == 75
    kinds = {"tilusvm_k8v4": ("u8", "u4"), "tilusvm_u8": ("u8", "u8"), "tilusvm_u4": ("u4", "u4")}
    assert (cache.format.k_type, cache.format.v_type) == kinds.get(name, (None, None))
    forced = exact_of("llama")(out.sequences).logits[:, 69:-1]
    close(torch.stack(out.logits, 1), forced, {"tilusvm": 1e-2, "tilusvm_u8": 4e-2}.get(name, 0.4))


def test_a_cache_takes_prompts_in_pieces():
    """Behind what it holds, however many tokens; and goes back."""
    ids = torch.tensor(tokens_of(90))
    exact = exact_of("gemma2")(ids).logits
    for accelerated in (False, True):
        model = model_of("gemma2")
        model = accelerate_(model) if accelerated else model
        cache = PagedCache(model, batch=1, max_tokens=128)
        close(model(ids[:, :10], **{ARGUMENT: cache}).logits, exact[:, :10], 2e-2)
        close(model(ids[:, 10:], **{ARGUMENT: cache}).logits, exact[:, 10:], 2e-2)
        for removed in (torch.tensor(30), 0):  # as assisted generation of transformers 5.17 counts
            cache.crop(-removed)
            assert type(cache.tokens) is int and cache.tokens == 60 and cache.lengths.tolist() == [60]
        close(model(ids[:, 60:70], **{ARGUMENT: cache}).logits, exact[:, 60:70], 2e-2)


@pytest.mark.parametrize("accelerated", [False, True])
def test_generate_goes_on(accelerated):
    """Behind what the cache holds, which are the first of the ids."""
    prompts, model = tokens_of(20), model_of("llama")
    ids, model = torch.tensor(prompts), accelerate_(model) if accelerated else model
    cache = PagedCache(model, batch=1, max_tokens=64)
    model(ids[:, :12], **{ARGUMENT: cache})
    found = model.generate(ids, **{ARGUMENT: cache}, **GREEDY)
    assert found[:, 20:].tolist() == generated(exact_of("llama"), prompts) and cache.tokens == 25


def test_assisted_generation():
    """What the prompt drafts is taken back where the model does not choose it."""
    prompts = [tokens_of(6)[0] * 3]
    words, model = {**GREEDY, "eos_token_id": -1, "prompt_lookup_num_tokens": 3}, model_of("llama")
    cache = PagedCache(model, batch=1, max_tokens=64)
    found = model.generate(torch.tensor(prompts), **{ARGUMENT: cache}, **words)
    assert found[:, 18:].tolist() == generated(exact_of("llama"), prompts) and cache.tokens == 23


def test_what_a_cache_refuses():
    ids, mask = padded(tokens_of(5, 9))
    model = model_of("llama")
    with pytest.raises(ValueError, match="follows no beams"):
        model.generate(ids[1:], cache_implementation="tilusvm_u4", num_beams=2, **GREEDY)
    with pytest.raises(ValueError, match="no padding"):
        model.generate(ids, attention_mask=mask, cache_implementation="tilusvm_u4", **GREEDY)
    with pytest.raises(TypeError, match="attn_implementation='tilusvm'"):
        model_of("llama", "sdpa").generate(ids[1:], cache_implementation="tilusvm_u4", **GREEDY)
    with pytest.raises(ValueError, match="tilusvm_u4"):  # the list of names
        model.generate(ids[1:], cache_implementation="tilusvm_u12", **GREEDY)
    with pytest.raises(NotImplementedError, match="beams"):
        PagedCache(model, 1, 16).reorder_cache(torch.zeros(1, dtype=torch.int64))


def test_what_is_left_to_torch():
    """Is told, once a reason, and right."""
    ids = torch.tensor(tokens_of(12, 12))
    for model, why in (
        (model_of("llama", head_dim=32), "heads have 32 and 32 elements"), (model_of("mistral").float(), "float32"),
        (model_of("gemma2", head_dim=32), "heads have 32"),
    ):  # fmt: skip
        exact = transformers.AutoModelForCausalLM.from_config(copy.deepcopy(model.config)).double().eval()
        exact.load_state_dict(model.state_dict())
        exact.set_attn_implementation("eager")
        with pytest.warns(UserWarning, match=f"attention is left to torch: .*{why}"):
            logits = model(ids).logits
        close(logits, exact(ids).logits, 2e-2)


def test_sequences_packed_by_positions():
    """Without padding, as a collator lays them: none sees another."""
    prompts = tokens_of(7, 12)
    ids = torch.tensor([prompts[0] + prompts[1]])
    positions = torch.tensor([[*range(7), *range(12)]])
    starts = torch.tensor([0, 7, 19], dtype=torch.int32)
    model, exact = model_of("llama"), exact_of("llama")
    wanted = torch.cat([exact(torch.tensor([prompt])).logits[0] for prompt in prompts])
    words = {"cu_seq_lens_q": starts, "cu_seq_lens_k": starts, "max_length_q": 12, "max_length_k": 12}
    close(model(ids, position_ids=positions, use_cache=False, **words).logits[0], wanted, 2e-2)
    with pytest.warns(UserWarning, match="neither causal nor a window"):
        logits = model(ids, position_ids=positions, use_cache=False).logits[0]
    close(logits, wanted, 2e-2)
