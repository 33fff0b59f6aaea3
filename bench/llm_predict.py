"""What a decode step takes on an H100 by bytes and by costs that were found before bench/llm_table.py measured it.

A step is the read of weights and of keys and values, and what a layer's launches take beside: some microseconds each,
and some that grow with the rows and with the size of the products. The constants are those of one model, llama-8b (an
H100's steps with u4, u8 and f16; the peers' from an H200, as differences from ours), in FIGURES under "Beside peers";
of the other models and widths these are predictions."""
from llm_shapes import cache_bytes, layers_of, products_of

RATE = 3.3e12  # bytes a second: llama-8b u8 less u4
LLAMA_8B = 218.1e6  # weights of a layer

#: us a layer of so many rows, of products as large as llama-8b's, beside what reading takes
ROWS = {1: 0.0, 4: 2.2, 16: 10.8, 64: 61.0}
ROWS_F16 = {1: 0.0, 4: 4.0, 16: 12.6, 64: 43.0}
PLAIN = {1: 3.1, 4: 1.9, 16: 6.7, 64: 0.0}  # us a layer that launches of norms, sums, activation, append add
FIVE_LAUNCHES = 19.3  # us a layer that five launches take beside what they read
TEN_LAUNCHES_F16, RATE_F16 = 26.0, 2.87e12


def predicted_us(shape, type, linear, batch, context=2048):
    """Of the ways of bench/llm_peers.py, and torch.compile's; None for others and other numbers of rows."""
    if batch not in ROWS:
        return None
    *of_layer, head = (n * k for n, k in products_of(shape))
    layers, size = layers_of(shape), sum(of_layer) / LLAMA_8B
    cache = cache_bytes(shape, batch * context) / RATE * 1e6
    weights = sum(of_layer) * layers + head
    if linear in ("cublas", "torch.compile"):
        us = weights * 2 / RATE_F16 * 1e6 + cache + layers * (TEN_LAUNCHES_F16 + size * ROWS_F16[batch])
        # compiled: norms and attention of torch, and keys and values that are written once more for each group's heads
        return us + (60 * layers + 8 * cache if linear == "torch.compile" else 0)
    us = weights * (int(type[1]) / 8 + 2 / 128) / RATE * 1e6 + cache + layers * (FIVE_LAUNCHES + size * ROWS[batch])
    beside = {"tilusvm": 0, "plain": PLAIN[batch], "humming": 16 + 10 * size}
    beside["marlin"] = 70 * size if batch > 16 else 17 + 20 * size
    beside["vllm"] = 88 * size if batch > 16 else 11 + 20 * size  # what vLLM made of Marlin
    return us + layers * beside[linear] if linear in beside else None
