#!/usr/bin/env python3
"""What vLLM serves with this package's weights and caches: steps and tokens a second of a Llama of random weights.

    python bench/vllm_serve.py --quantization tilusvm [--type u4] [--cache u8,u4] [--layers 32 --hidden 4096]
    python bench/vllm_serve.py --quantization gptq        vLLM's own kernels (Marlin, Machete) on u4 in groups
    python bench/vllm_serve.py --check --quantization tilusvm [--cache u8,u4]

A folder with a config.json alone is made; vLLM fills the model with random weights (load_format dummy), which are
quantized as a checkpoint's would be. The line of a batch has the time to the first token of all, and the time of a step
behind it, by the difference of generations of two lengths. Without --quantization vLLM's own layers run, and without
--cache its own attention. --eager launches without CUDA graphs.

--check serves a small model instead, from a checkpoint, and compares the probabilities of what is generated with those
that transformers computes in float64 with the weights as they are quantized.

--native is for a vLLM of which only the Python files are there, without its compiled extension: custom operators run as
torch's, and nothing is compiled or captured.
"""

import argparse
import json
import os
import statistics
import tempfile
import time


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quantization", choices=["tilusvm", "gptq"], help="the linear layers; of 16 bits without it")
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
    parser.add_argument("--check", action="store_true", help="a small model's probabilities against transformers'")
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


def quantization_of(options):
    """What a config.json says of quantization."""
    if options.quantization == "gptq":
        return {"quant_method": "gptq", "bits": 4, "group_size": options.group, "desc_act": False, "sym": True}
    return {"quant_method": "tilusvm", "type": options.type, "group": options.group, "scales": "absmax"}


def engine_of(options, folder, load="dummy", length=4096):
    """vLLM with a model; a length is of a prompt and what is generated behind it, in tokens."""
    if options.cache:
        os.environ["TILUSVM_KV_CACHE"] = options.cache
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from vllm import LLM

    words = {"enforce_eager": options.eager or options.native}
    if options.quantization:
        words |= {"hf_overrides": {"quantization_config": quantization_of(options)}}
    if options.quantization == "tilusvm":
        words |= {"quantization": "tilusvm"}
    if options.cache:
        words["attention_backend"] = "CUSTOM"
    elif options.native:
        words["attention_backend"] = "TRITON_ATTN"
    if options.native:
        words["compilation_config"] = {"custom_ops": ["none"], "mode": 0}
    return LLM(
        folder, load_format=load, skip_tokenizer_init=True, dtype=options.dtype, max_model_len=length,
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


def small_model(options, folder):
    """A Llama of random weights, in a folder; returned in float64 with the weights as they are quantized."""
    import torch
    import transformers

    from tilusvm import nn

    config = transformers.LlamaConfig(
        hidden_size=1024, intermediate_size=2816, num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=2,
        head_dim=128, vocab_size=2048, max_position_embeddings=1024, tie_word_embeddings=False, initializer_range=0.04,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config).to(getattr(torch, options.dtype))
    model.save_pretrained(folder)
    for name, module in model.named_modules():
        if options.quantization == "tilusvm" and type(module) is torch.nn.Linear and name != "lm_head":
            module.weight.data = nn.Linear.from_float(module, options.type, options.group, scales="absmax").dequantize()
    return model.double().cuda()


def check(options):
    """Serves prompts of several lengths, and prints how far the logarithms of the probabilities are apart."""
    import torch
    from vllm import SamplingParams

    folder = tempfile.mkdtemp(prefix="vllm_serve")
    exact = small_model(options, folder)
    engine = engine_of(options, folder, "auto", 1024)
    prompts = [[(131 * i + 17 * j * j + j) % 2040 + 4 for j in range(size)] for i, size in enumerate((1, 15, 64, 333))]
    params = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True, detokenize=False, logprobs=1)
    outputs = engine.generate([{"prompt_token_ids": prompt} for prompt in prompts], params, use_tqdm=False)
    apart, same = [], 0
    for prompt, output in zip(prompts, outputs):
        ids = list(output.outputs[0].token_ids)
        with torch.inference_mode():
            wanted = exact(torch.tensor([prompt + ids], device="cuda")).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
        for row, token, found in zip(wanted, ids, output.outputs[0].logprobs):
            apart.append(abs(found[token].logprob - row[token].item()))
            same += row.argmax().item() == token
    print(
        f"{same} of {len(apart)} tokens are the most probable ones; difference of log p: mean "
        f"{statistics.mean(apart):.4f}, largest {max(apart):.4f}", flush=True,
    )  # fmt: skip


def main():
    options = arguments()
    if options.check:
        check(options)
        return
    begin = time.perf_counter()
    engine = engine_of(options, folder_of(options))
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
    main()
