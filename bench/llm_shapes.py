"""The language models whose steps bench/llm*.py measure: their sizes, in the words of transformers' configurations."""

_LLAMA = dict(max_position_embeddings=16384, rms_norm_eps=1e-5)
SHAPES = {
    "llama-8b": ("llama", dict(_LLAMA, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32,
                               num_attention_heads=32, num_key_value_heads=8, vocab_size=128256, head_dim=128)),
    "qwen-32b": ("qwen2", dict(_LLAMA, hidden_size=5120, intermediate_size=27648, num_hidden_layers=64,
                               num_attention_heads=40, num_key_value_heads=8, vocab_size=152064, head_dim=128)),
    "qwen3-8b": ("qwen3", dict(_LLAMA, hidden_size=4096, intermediate_size=12288, num_hidden_layers=36,
                               num_attention_heads=32, num_key_value_heads=8, vocab_size=151936, head_dim=128)),
    "gemma-9b": ("gemma2", dict(_LLAMA, hidden_size=3584, intermediate_size=14336, num_hidden_layers=42,
                                num_attention_heads=16, num_key_value_heads=8, vocab_size=256000, head_dim=256,
                                query_pre_attn_scalar=256)),
    "llama-70b": ("llama", dict(_LLAMA, hidden_size=8192, intermediate_size=28672, num_hidden_layers=80,
                                num_attention_heads=64, num_key_value_heads=8, vocab_size=128256, head_dim=128)),
}  # fmt: skip


def layers_of(shape):
    return SHAPES[shape][1]["num_hidden_layers"]


def products_of(shape):
    """(outputs, inputs) of a layer's products, with q, k, v and gate, up merged, and of the head behind them."""
    words = SHAPES[shape][1]
    hidden, inner, head = words["hidden_size"], words["intermediate_size"], words["head_dim"]
    heads, merged = words["num_attention_heads"] * head, 2 * words["num_key_value_heads"] * head
    of_layer = [(heads + merged, hidden), (hidden, heads), (2 * inner, hidden), (hidden, inner)]
    return [*of_layer, (words["vocab_size"], hidden)]


def cache_bytes(shape, tokens):
    """Of keys and values of 16 bits, in all layers."""
    words = SHAPES[shape][1]
    return tokens * layers_of(shape) * 2 * words["num_key_value_heads"] * words["head_dim"] * 2
