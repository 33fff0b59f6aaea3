"""A model in vLLM without its engine, on the CPU: what test_vllm.py runs in one process, and vllm_worker.py in two."""

import torch
import transformers
from vllm.config import AttentionConfig, CompilationConfig, ModelConfig, ParallelConfig, VllmConfig
from vllm.forward_context import set_forward_context
from vllm.model_executor.model_loader import get_model
from vllm.platforms import current_platform
from vllm.v1.attention.backend import CommonAttentionMetadata
from vllm.v1.kv_cache_interface import compute_layer_kv_cache_shape_bytes

from tilusvm import nn
from tilusvm.vllm.attention import TilusAttentionBackend

HIDDEN, LAYERS, VOCABULARY = 256, 2, 128
PLAIN = {"quantization_config": {"quant_method": "tilusvm", "group": 64, "skip": []}}  # of a plain checkpoint


def tiny_model():
    """A Llama of random weights, in f16."""
    sizes = {"hidden_size": HIDDEN, "intermediate_size": 512, "num_hidden_layers": LAYERS, "num_attention_heads": 4}
    words = {"num_key_value_heads": 2, "head_dim": 64, "vocab_size": VOCABULARY, "max_position_embeddings": 256}
    config = transformers.LlamaConfig(**sizes, **words, tie_word_embeddings=False, initializer_range=0.1)
    return transformers.LlamaForCausalLM(config).half()


def plain_model(folder=None):
    """One that is written to a folder, if any; and in float64 what its layers are when they are quantized."""
    model = tiny_model()
    if folder is not None:
        model.save_pretrained(folder)
    for module in model.modules():
        if type(module) is torch.nn.Linear:
            module.weight.data = nn.Linear.from_float(module, "u4", 64).dequantize()
    return model.double()


def take_backend():
    """Lets the platform take the attention that it is told: without a GPU it would refuse it."""
    type(current_platform).get_attn_backend_cls = classmethod(lambda cls, selected, *rest, **words: selected.get_path())


def config_of(folder, overrides, ranks=1):
    """vLLM's configuration of a folder's model; overrides: of its config.json."""
    model = ModelConfig(
        model=str(folder), tokenizer=str(folder), skip_tokenizer_init=True, dtype="float16", max_model_len=128,
        quantization="tilusvm", hf_overrides=overrides, enforce_eager=True,
    )  # fmt: skip
    return VllmConfig(
        model_config=model, compilation_config=CompilationConfig(custom_ops=["none"], mode=0),
        attention_config=AttentionConfig(backend="CUSTOM"), parallel_config=ParallelConfig(tensor_parallel_size=ranks),
    )  # fmt: skip


def logits(config, ids, prompt):
    """Of ids [tokens]: those of the first `prompt` tokens at once, then of each token behind them by itself. A rank other
    than the first may have None in the place of logits."""
    model = get_model(vllm_config=config)
    names = [f"model.layers.{i}.self_attn.attn" for i in range(LAYERS)]
    attention = config.compilation_config.static_forward_context
    specs = {}
    for name in names:
        specs[name] = TilusAttentionBackend.customize_spec(attention[name].get_kv_cache_spec(config))
        shape = compute_layer_kv_cache_shape_bytes(specs[name], 8)
        attention[name].kv_cache = torch.zeros(shape, dtype=torch.int8).view(torch.float16)
    builder = TilusAttentionBackend.get_builder_cls()(specs[names[0]], names, config, torch.device("cpu"))
    table = torch.arange(1, 8, dtype=torch.int32)[None]
    for begin, end in [(0, prompt), *((at, at + 1) for at in range(prompt, len(ids)))]:
        starts = torch.tensor([0, end - begin], dtype=torch.int32)
        lengths = torch.tensor([end], dtype=torch.int32)
        common = CommonAttentionMetadata(
            query_start_loc=starts, query_start_loc_cpu=starts, seq_lens=lengths, num_reqs=1,
            num_actual_tokens=end - begin, max_query_len=end - begin, max_seq_len=end, block_table_tensor=table,
            slot_mapping=torch.zeros(end - begin, dtype=torch.int64), seq_lens_cpu_upper_bound=lengths,
        )  # fmt: skip
        meta = dict.fromkeys(names, builder.build(0, common))
        slots = dict.fromkeys(names, common.slot_mapping)
        with set_forward_context(meta, config, num_tokens=end - begin, slot_mapping=slots):
            hidden = model(ids[begin:end], torch.arange(begin, end))
        yield begin, end, model.compute_logits(hidden)
