"""What each process of test_parallel.py's test of tp_plan does: a model whose layers transformers' plan splits, against
the whole one.

    torchrun --nproc-per-node 2 tp_worker.py FOLDER
"""

import sys

import torch
import torch.distributed as dist
import transformers
from transformers import AutoModelForCausalLM

from tilusvm import parallel
from tilusvm.transformers import Decoder, TilusConfig, accelerate_

WORDS = {"dtype": torch.float16, "attn_implementation": "eager"}
GREEDY = {"max_new_tokens": 4, "do_sample": False, "eos_token_id": None}


def folders(root):
    """A Llama of random weights, plain and quantized, and one with biases and norms of heads."""
    sizes = {
        "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 64, "max_position_embeddings": 64,
        "initializer_range": 0.1, "tie_word_embeddings": False, "eos_token_id": None,
    }  # fmt: skip
    torch.manual_seed(0)
    for name, config in (
        ("llama", transformers.LlamaConfig(**sizes)), ("qwen3", transformers.Qwen3Config(**sizes, attention_bias=True)),
    ):  # fmt: skip
        model = AutoModelForCausalLM.from_config(config).half()
        model.save_pretrained(f"{root}/{name}")
    quantized = AutoModelForCausalLM.from_pretrained(
        f"{root}/llama", quantization_config=TilusConfig("u4", 64), **WORDS
    )
    quantized.save_pretrained(f"{root}/quantized")


def close(found, wanted, tolerance=1e-2):
    worst = (found.double() - wanted.double()).abs().max() / wanted.double().abs().max()
    assert worst <= tolerance, f"{worst:.2e}"


def check(folder, **words):
    ids = torch.arange(1, 12).view(1, -1)
    whole = AutoModelForCausalLM.from_pretrained(folder, **words, **WORDS)
    model = AutoModelForCausalLM.from_pretrained(folder, tp_plan="auto", **words, **WORDS)
    attention, rank = model.model.layers[1].self_attn, dist.get_rank()
    assert isinstance(attention.q_proj, parallel.ColumnParallelLinear)
    own = whole.model.layers[1].self_attn.q_proj.dequantize().chunk(2)[rank]
    assert torch.equal(attention.q_proj.linear.dequantize(), own)
    assert attention.o_proj.linear.in_features == 128
    exact = whole(ids).logits
    close(model(ids).logits, exact)
    tokens = whole.generate(ids, **GREEDY)
    assert torch.equal(model.generate(ids, **GREEDY)[:, :12], tokens[:, :12])
    try:
        model.save_pretrained(f"{folder}.cut")
    except ValueError:
        pass
    else:
        raise AssertionError("a rank's part was saved as if it were the model")
    decoder = Decoder(model, batch=1, max_tokens=32, page=16)
    assert decoder.blocks[0].kv_heads == 1
    close(decoder.forward(ids), exact[:, -1])
    accelerate_(model)
    close(model(ids).logits, exact)
    cached = model.generate(ids, cache_implementation="tilusvm_u8", **GREEDY)
    assert torch.equal(cached[:, :12], tokens[:, :12])


@torch.no_grad()
def main():
    root = sys.argv[1]
    transformers.logging.set_verbosity_error()
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        folders(root)
    dist.barrier()
    check(f"{root}/llama", quantization_config=TilusConfig("u4", 64))
    check(f"{root}/qwen3", quantization_config=TilusConfig("u3", 32, zeros=True))
    check(f"{root}/quantized")
    try:
        config = TilusConfig("u4", 64, skip=["lm_head", "*.0.self_attn.q_proj"])
        AutoModelForCausalLM.from_pretrained(f"{root}/llama", tp_plan="auto", quantization_config=config, **WORDS)
    except ValueError as error:
        assert "model.layers.0.self_attn.q_proj stays in floats" in str(error), error
    else:
        raise AssertionError("a layer of one rule was whole beside layers that were cut")
    dist.barrier()
    if dist.get_rank() == 0:
        print("tp_plan: all is right", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
