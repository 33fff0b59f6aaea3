"""Tiny language models of transformers, whose weights depend on nothing but their names and a seed."""

import zlib

import torch
import transformers

WINDOW = dict(sliding_window=8)
GEMMA = dict(WINDOW, query_pre_attn_scalar=64)
FAMILIES = {"llama": {}, "qwen2": {}, "qwen3": {}, "mistral": WINDOW, "gemma2": GEMMA, "gemma3_text": GEMMA}
VOCABULARY = 120


def tiny_model(family="llama", device="cpu", dtype=torch.float16, seed=0, **words):
    """Of which the norms and the head's logits say something."""
    config = transformers.AutoConfig.for_model(
        family, **{
            **dict(
                hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
                head_dim=64, vocab_size=VOCABULARY, max_position_embeddings=128, pad_token_id=0, bos_token_id=1,
                eos_token_id=None, tie_word_embeddings=False,
            ),
            **FAMILIES.get(family, {}),
            **words,
        },
    )  # fmt: skip
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype).eval()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(False)
        generator = torch.Generator().manual_seed(zlib.crc32(name.encode()) + seed)
        numbers = torch.randn(parameter.shape, generator=generator)
        if "norm" in name:
            numbers = numbers * 0.2 + (0.0 if "gemma" in family else 1.0)
        elif parameter.dim() == 2:
            numbers *= 1.0 if "embed" in name else 0.2
        else:
            numbers *= 0.2
        parameter.copy_(numbers)
    return model.to(device)


def tokens_of(*lengths, device="cpu", seed=0):
    """Prompts of these lengths, no two alike: lists of tokens that are no pad token."""
    generator = torch.Generator().manual_seed(100 + seed)
    return [torch.randint(2, VOCABULARY, (length,), generator=generator).tolist() for length in lengths]


def padded(prompts, device="cpu", pad=0):
    """ids and attention_mask as a tokenizer pads at the left."""
    most = max(map(len, prompts))
    ids = torch.tensor([[pad] * (most - len(row)) + row for row in prompts], device=device)
    mask = torch.tensor([[0] * (most - len(row)) + [1] * len(row) for row in prompts], device=device)
    return ids, mask
