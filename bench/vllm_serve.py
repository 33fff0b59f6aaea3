#!/usr/bin/env python3
"""What vLLM serves with this package's weights and caches: steps and tokens a second of a Llama of random weights.

    python bench/vllm_serve.py --quantization tilusvm [--type u4] [--cache u8,u4] [--layers 32 --hidden 4096]

A folder with a config.json alone is made; vLLM fills the model with random weights (load_format dummy), which are
quantized as a checkpoint's would be. The line of a batch has the time to the first token of all, and the time of a step
behind it, by the difference of generations of two lengths. Without --quantization vLLM's own layers run, and without
--cache its own attention. --eager launches without CUDA graphs.

--native is for a vLLM of which only the Python files are there, without its compiled extension: custom operators run as
torch's, and nothing is compiled or captured.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quantization", choices=["tilusvm"], help="whose linear layers; vLLM's own without it")
    parser.add_argument("--type", default="u4", help="of weights")
    parser.add_argument("--group", type=int, default=128)
    parser.add_argument("--cache", help="TILUSVM_KV_CACHE, and this package's attention; auto: 16 bits")
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--hidden", type=int, default=4096)
    parser.add_argument("--width", type=int, default=14336)
    parser.add_argument("--heads", type=int, default=32)
    parser.add_argument("--kv-heads", type=int, default=8)
    parser.add_argument("--vocabulary", type=int, default=128256)
    parser.add_argument("--dtype", default="bfloat16", choices=["float16", "bfloat16"])
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--batches", type=int, nargs="*", default=[1, 16, 64])
    parser.add_argument("--eager", action="store_true", help="no CUDA graphs")
    parser.add_argument("--native", action="store_true", help="vLLM without its compiled extension")
    return parser.parse_args()


def folder_of(options):
    """A folder of a model without weights."""
    folder = tempfile.mkdtemp(prefix="vllm_serve")
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": options.hidden,
        "intermediate_size": options.width, "num_hidden_layers": options.layers,
        "num_attention_heads": options.heads, "num_key_value_heads": options.kv_heads,
        "head_dim": options.hidden // options.heads, "vocab_size": options.vocabulary, "rms_norm_eps": 1e-5,
        "max_position_embeddings": 8192, "rope_theta": 500000.0, "hidden_act": "silu", "tie_word_embeddings": False,
        "torch_dtype": options.dtype, "bos_token_id": 1, "eos_token_id": 2,
    }  # fmt: skip
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(config, file)
    return folder


def engine_of(options):
    if options.cache:
        os.environ["TILUSVM_KV_CACHE"] = options.cache
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from vllm import LLM

    words = {"enforce_eager": options.eager or options.native}
    if options.quantization:
        config = {"quant_method": "tilusvm", "type": options.type, "group": options.group, "scales": "absmax"}
        words |= {"quantization": "tilusvm", "hf_overrides": {"quantization_config": config}}
    if options.cache:
        words["attention_backend"] = "CUSTOM"
    elif options.native:
        words["attention_backend"] = "TRITON_ATTN"
    if options.native:
        words["compilation_config"] = {"custom_ops": ["none"], "mode": 0}
    return LLM(
        folder_of(options), load_format="dummy", skip_tokenizer_init=True, dtype=options.dtype, max_model_len=4096,
        max_num_seqs=max(options.batches), enable_prefix_caching=False, gpu_memory_utilization=0.8, **words,
    )  # fmt: skip


def generated(engine, options, batch, tokens):
    """Seconds, and the tokens of the first request."""
    from vllm import SamplingParams

    prompts = [
        {"prompt_token_ids": [(7919 * (i + 1) + 31 * j) % (options.vocabulary - 8) + 8 for j in range(options.prompt)]}
        for i in range(batch)
    ]
    params = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True, detokenize=False)
    begin = time.perf_counter()
    outputs = engine.generate(prompts, params, use_tqdm=False)
    seconds = time.perf_counter() - begin
    assert all(len(output.outputs[0].token_ids) == tokens for output in outputs)
    return seconds, list(outputs[0].outputs[0].token_ids)


def main():
    options = arguments()
    begin = time.perf_counter()
    engine = engine_of(options)
    print(f"loaded in {time.perf_counter() - begin:.1f} s", flush=True)
    name = f"{options.quantization or 'vLLM'} {options.type if options.quantization else options.dtype}"
    print(f"{'weights':16} {'cache':12} {'batch':>5} {'first ms':>9} {'step ms':>8} {'tokens/s':>9}")
    for batch in options.batches:
        generated(engine, options, batch, 2)
        first = statistics.median(generated(engine, options, batch, 1)[0] for _ in range(3))
        whole, tokens = min(generated(engine, options, batch, options.tokens) for _ in range(3))
        step = (whole - first) / (options.tokens - 1)
        print(
            f"{name:16} {options.cache or 'vLLM':12} {batch:5} {1e3 * first:9.1f} {1e3 * step:8.3f} "
            f"{batch / step:9.0f}   {tokens[:4]}", flush=True,
        )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
