"""GGUF files: every type of blocks against the dequantizers of the package gguf, bit for bit; and whole models, which
the test converts as llama.cpp's converter does, by the package's names of tensors, against those that they were made
of."""

import importlib.metadata
import json
import struct
import sys

import numpy
import pytest
from conftest import NO_TORCH, torch
from torch_kit import TOOL, close, tvm_pack

import tilusvm

gguf = pytest.importorskip("gguf", reason="the package gguf is not installed")

#: Where in a block of the type numbers of f16 are.
HALVES = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
    "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0], "MXFP4": [],
}  # fmt: skip
EXACT = {"Q4_0", "Q5_0", "Q8_0", "IQ4_NL", "MXFP4"}


def kind(name):
    return gguf.GGMLQuantizationType[name]


def blocks(name, rows, columns):
    """Random blocks, of which no number is infinite or NaN: uint8 [rows, bytes]."""
    draw = numpy.random.default_rng(3)
    weights, size = gguf.GGML_QUANT_SIZES[kind(name)]
    data = draw.integers(0, 256, (rows * columns // weights, size), dtype=numpy.uint8)
    for at in HALVES[name]:
        halves = (draw.standard_normal(len(data)) * 0.02).astype(numpy.float16)
        data[:, at : at + 2] = halves.view(numpy.uint8).reshape(-1, 2)
    if name == "MXFP4":
        data[:, 0] = draw.integers(100, 140, len(data))
    return data.reshape(rows, -1)


def written(path, architecture, tensors, fill=lambda writer: None):
    """The path of a file of tensors, (type, array) where they are blocks."""
    writer = gguf.GGUFWriter(path, architecture)
    fill(writer)
    for name, value in tensors.items():
        raw, data = value if isinstance(value, tuple) else (None, value)
        writer.add_tensor(name, data, raw_dtype=raw)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def tensors_of(path):
    """Of a .safetensors file: arrays by name, and the metadata."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header, data = json.loads(data[8 : 8 + size]), data[8 + size :]
    types = {"F32": numpy.float32, "F16": numpy.float16, "BF16": numpy.uint16, "U8": numpy.uint8}
    metadata = header.pop("__metadata__")
    arrays = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        array = numpy.frombuffer(data[begin:end], types[entry["dtype"]]).reshape(entry["shape"])
        bf16 = entry["dtype"] == "BF16"
        arrays[name] = (array.astype(numpy.uint32) << 16).view(numpy.float32) if bf16 else array
    return arrays, metadata


@pytest.mark.parametrize("name", HALVES)
def test_types(name, tmp_path):
    data = blocks(name, 40, 512)
    path = written(tmp_path / "m.gguf", "qwen3", {"blk.7.ffn_down.weight": (kind(name), data)})
    tvm_pack("--from=gguf", "--type=f32", path, "-o", tmp_path / "m.safetensors")
    arrays, _ = tensors_of(tmp_path / "m.safetensors")
    theirs = gguf.dequantize(data, kind(name)) + numpy.float32(0)  # one zero
    ours = arrays["model.layers.7.mlp.down_proj.weight"] + numpy.float32(0)
    assert (ours.view(numpy.uint32) == theirs.view(numpy.uint32)).all()


@pytest.mark.parametrize("name", HALVES)
def test_errors_told(name, tmp_path):
    data = blocks(name, 40, 512)
    path = written(tmp_path / "m.gguf", "qwen3", {"blk.0.ffn_down.weight": (kind(name), data)})
    tvm_pack("--from=gguf", path, "-o", tmp_path / "m.safetensors")
    arrays, metadata = tensors_of(tmp_path / "m.safetensors")
    layer = json.loads(metadata["model.layers.0.mlp.down_proj.packed"])
    packed, scales = (arrays[f"model.layers.0.mlp.down_proj.{part}"] for part in ("packed", "scales"))
    bits = int(layer["type"][1])
    codes = numpy.unpackbits(packed, axis=1, bitorder="little").reshape(512, 40, bits)
    codes = (codes * (1 << numpy.arange(bits))).sum(-1)
    if layer["zero"] == "per-group":
        numbers = codes - arrays["model.layers.0.mlp.down_proj.zeros"].astype(float).repeat(int(layer["group"]), 0)
    elif layer["type"] == "f4_e2m1":
        numbers = numpy.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])[codes]
    elif layer["type"] == "i8":
        numbers = codes.astype(numpy.int8)
    else:
        numbers = codes - (1 << bits - 1)
    theirs = gguf.dequantize(data, kind(name)).T.astype(float)
    scales = 2.0 ** (scales.astype(float) - 127) if layer["scale"] == "e8m0" else scales
    lost = numpy.linalg.norm(numbers * scales.astype(float).repeat(int(layer["group"]), 0) - theirs)
    error = lost / numpy.linalg.norm(theirs)
    assert (error == 0) == (name in EXACT) and error < 3e-4
    assert float(layer.get("error", 0)) == pytest.approx(error, rel=0.02)


def test_sizes_of_types():
    """A type that the package has is read, or is refused by name."""
    text = TOOL.resolve().read_bytes()
    for each in gguf.GGMLQuantizationType:
        assert each.name.encode() + b"\0" in text or each.name in ("Q8_1", "Q8_K")  # which files do not have


def test_needs_packages(tmp_path, monkeypatch):
    from tilusvm.gguf import from_gguf

    monkeypatch.setitem(sys.modules, "gguf", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "gguf" else True)
    with pytest.raises(tilusvm.UnsupportedError, match="from_gguf needs .*: pip install gguf"):
        from_gguf(tmp_path / "m.gguf", tmp_path / "out")


# ---- whole models ----

SIZES = {
    "vocab_size": 260, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 512, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
MODELS = {
    "llama": {},
    "mistral": {"sliding_window": None},
    "qwen2": {},
    "qwen3": {"head_dim": 32},
    "phi3": {},
    "gemma2": {"head_dim": 32, "query_pre_attn_scalar": 32, "sliding_window": 4},
    "gemma3_text": {"head_dim": 32, "query_pre_attn_scalar": 32, "sliding_window": 4},
    "olmo2": {},
    "glm4": {"head_dim": 32},
    "qwen2_moe": {
        "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 64,
    },
    "qwen3_moe": {
        "head_dim": 32, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "norm_topk_prob": True,
    },
}
#: Of these transformers makes no configuration of a file's metadata.
UNCONFIGURED = ("olmo2", "glm4")
#: In llama.cpp Mistral's models are of llama.
ARCHITECTURES = {"mistral": "llama", "gemma3_text": "gemma3", "qwen2_moe": "qwen2moe", "qwen3_moe": "qwen3moe"}


def tokens(writer, sentencepiece):
    texts = ["<pad>", "<s>", "</s>", "<unk>", *map(chr, range(33, 127)), "he", "ll", "hell"]
    texts += [f"<w{i}>" for i in range(SIZES["vocab_size"] - len(texts))]
    writer.add_tokenizer_model("llama" if sentencepiece else "gpt2")
    writer.add_token_list(texts)
    writer.add_token_types([3] * 3 + [2] + [1] * (len(texts) - 4))
    if sentencepiece:
        writer.add_token_scores([-float(i) for i in range(len(texts))])
    else:
        writer.add_token_merges(["h e", "l l", "he ll"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(3)
    writer.add_pad_token_id(0)


def metadata(config):
    def fill(writer):
        writer.add_context_length(config.max_position_embeddings)
        writer.add_embedding_length(config.hidden_size)
        writer.add_block_count(config.num_hidden_layers)
        writer.add_feed_forward_length(config.intermediate_size)
        writer.add_head_count(config.num_attention_heads)
        writer.add_head_count_kv(config.num_key_value_heads)
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
        writer.add_vocab_size(config.vocab_size)
        rope = config.rope_parameters
        writer.add_rope_freq_base(rope.get("full_attention", rope)["rope_theta"])
        head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        writer.add_rope_dimension_count(head)
        if "moe" in config.model_type:
            writer.add_expert_count(config.num_experts)
            writer.add_expert_used_count(config.num_experts_per_tok)
            writer.add_expert_feed_forward_length(config.moe_intermediate_size)
            if config.model_type == "qwen2_moe":
                writer.add_expert_shared_feed_forward_length(config.shared_expert_intermediate_size)
        if config.model_type in ("qwen3", "qwen3_moe", "gemma2", "gemma3_text"):
            writer.add_key_length(head)
            writer.add_value_length(head)
        if "gemma" in config.model_type:
            writer.add_sliding_window(config.sliding_window)
        if config.model_type == "gemma2":
            writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
            writer.add_final_logit_softcapping(config.final_logit_softcapping)
        tokens(writer, config.model_type in ("gemma2", "gemma3_text", "phi3"))

    return fill


def converted(model, architecture, type):
    """The tensors of the file, matrices in blocks; the model gets the weights that they stand for."""
    config, tensors = model.config, {}
    arch = next(a for a, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    names = gguf.get_tensor_name_map(arch, config.num_hidden_layers)
    for name, parameter in model.named_parameters():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        theirs, data = names.get_name(name, try_suffixes=(".weight", ".bias")), parameter.detach().numpy()
        if data.ndim >= 2 and "mlp.gate." not in name and "shared_expert_gate" not in name:
            blocks_ = gguf.quantize(data, kind(type))
            parameter.data = torch.from_numpy(gguf.dequantize(blocks_, kind(type)).copy())
            data = blocks_
        if name.endswith("shared_expert_gate.weight"):
            data = data.reshape(-1)  # as the converter squeezes it
        if name.endswith(".experts.gate_up_proj"):
            for i, part in enumerate(("gate", "up")):
                half = data[:, i * config.moe_intermediate_size : (i + 1) * config.moe_intermediate_size]
                theirs = names.get_name(name.replace("gate_up_proj", f"{part}_proj")) + ".weight"
                tensors[theirs] = (kind(type), numpy.ascontiguousarray(half))
            continue
        theirs = theirs if name.endswith((".weight", ".bias")) else f"{theirs}.weight"
        if architecture == "llama" and name.split(".")[-2] in ("q_proj", "k_proj"):
            heads = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
            size = data.shape[0] // heads
            data = data.reshape(heads, 2, size // 2, -1).swapaxes(1, 2).reshape(data.shape)
        if architecture.startswith("gemma") and name.endswith("norm.weight"):
            data = data + 1
        tensors[theirs] = (kind(type), data) if data.dtype == numpy.uint8 else data
    return tensors


def made(name, folder, *, type="Q8_0", rope=None, more=None):
    """A small random model, the file that is converted from it, and the configuration."""
    import transformers

    torch.manual_seed(4)
    words = {**SIZES, **MODELS[name], **({"rope_parameters": rope} if rope else {})}
    config = transformers.AutoConfig.for_model(name, **words)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    for parameter in model.parameters():  # norms, too
        parameter.data = torch.randn_like(parameter) * 0.2 + (parameter.dim() == 1)
    architecture = ARCHITECTURES.get(name, name)
    tensors = {**converted(model, architecture, type), **(more or {})}
    return model, written(folder / "m.gguf", architecture, tensors, metadata(config))


def loaded(folder):
    import transformers

    import tilusvm.transformers

    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float16).eval()


@pytest.mark.transformers
@pytest.mark.skipif(torch is None, reason=NO_TORCH)
@pytest.mark.parametrize("name", MODELS)
@torch.no_grad() if torch else (lambda test: test)
def test_models(name, tmp_path):
    from tilusvm import nn
    from tilusvm.gguf import from_gguf
    from tilusvm.transformers import _versions

    if name == "olmo2" and importlib.metadata.version("transformers") == _versions.TESTED[0]:
        pytest.skip("transformers 5.4 makes no OLMo of untied embeddings")
    theirs, path = made(name, tmp_path)
    words = {}
    if name in UNCONFIGURED:
        theirs.config.save_pretrained(tmp_path / "theirs")
        _, other = made("qwen2", tmp_path / "theirs")
        from_gguf(other, tmp_path / "tokens")
        for each in (tmp_path / "tokens").glob("tokenizer*"):
            each.rename(tmp_path / "theirs" / each.name)
        words["model"] = tmp_path / "theirs"
    assert from_gguf(path, tmp_path / "ours", **words) == tmp_path / "ours"
    ours = loaded(tmp_path / "ours")
    plain = [each for each, module in ours.named_modules() if type(module) is torch.nn.Linear]
    plain = [each for each in plain if not each.endswith("shared_expert_gate")]  # a vector
    assert plain == (["lm_head"] if theirs.config.tie_word_embeddings else [])  # one with the embedding
    assert sum(isinstance(each, nn.Linear) for each in ours.modules()) >= 8
    ids = torch.tensor([[5, 7, 11, 100, 6, 17]])
    close(ours(ids).logits.float(), theirs(ids).logits, 2e-2)
    with pytest.raises(FileExistsError):
        from_gguf(path, tmp_path / "ours")


@pytest.mark.transformers
@pytest.mark.skipif(torch is None, reason=NO_TORCH)
@pytest.mark.parametrize("type", ["Q4_0", "Q4_1", "Q5_1"])
@torch.no_grad() if torch else (lambda test: test)
def test_types_of_models(type, tmp_path):
    """Zero points with fractions, in kernels."""
    from tilusvm.gguf import from_gguf

    theirs, path = made("llama", tmp_path, type=type)
    ours = loaded(from_gguf(path, tmp_path / "ours"))
    layer = ours.model.layers[0].mlp.up_proj
    assert (layer.type, layer.group, layer.zeros is not None) == (f"u{type[1]}", 32, type[3] == "1")
    if type[3] == "1":
        assert (layer.zeros != layer.zeros.round()).any()
    ids = torch.tensor([[5, 7, 11, 100, 6, 17]])
    close(ours(ids).logits.float(), theirs(ids).logits, 2e-2)


@pytest.mark.transformers
@pytest.mark.skipif(torch is None, reason=NO_TORCH)
def test_tokenizer(tmp_path):
    import transformers

    from tilusvm.gguf import from_gguf

    _, path = made("qwen2", tmp_path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(from_gguf(path, tmp_path / "ours"))
    assert tokenizer.convert_ids_to_tokens(tokenizer("hello", add_special_tokens=False).input_ids) == ["hell", "o"]
    assert (tokenizer.bos_token, tokenizer.eos_token) == ("<s>", "</s>")


@pytest.mark.transformers
@pytest.mark.skipif(torch is None, reason=NO_TORCH)
def test_rotation_of_llama3(tmp_path):
    """The file has a factor for each frequency; the configuration has the parameters that make them."""
    import transformers

    from tilusvm.gguf import from_gguf

    rope = {
        "rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }  # fmt: skip
    model, _ = made("llama", tmp_path, rope=rope)
    plain = (5e5 ** (-torch.arange(0, 16, 2).double() / 16)).float()
    factors = (plain / model.model.rotary_emb.inv_freq).numpy()
    assert factors.max() == pytest.approx(8) and factors.min() == pytest.approx(1)
    _, path = made("llama", tmp_path, rope=rope, more={"rope_freqs.weight": factors})
    config = transformers.AutoConfig.from_pretrained(from_gguf(path, tmp_path / "ours"))
    assert {key: config.rope_parameters[key] for key in rope} == rope
    _, path = made("llama", tmp_path, rope=rope, more={"rope_freqs.weight": factors * 2})
    with pytest.raises(tilusvm.UnsupportedError, match="rope_freqs are not those of Llama 3.1"):
        from_gguf(path, tmp_path / "other")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["m.gguf", "ours"]  # nothing half made


@pytest.mark.transformers
@pytest.mark.skipif(torch is None, reason=NO_TORCH)
def test_refused(tmp_path):
    from tilusvm.gguf import from_gguf

    path = written(tmp_path / "m.gguf", "mamba", {"output.weight": numpy.zeros((4, 4), numpy.float32)})
    with pytest.raises(ValueError, match="architecture mamba"):
        from_gguf(path, tmp_path / "ours")
    path = written(tmp_path / "m.gguf", "gemma", {"output_norm.weight": numpy.zeros(4, numpy.float32)})
    with pytest.raises(tilusvm.UnsupportedError, match="model=FOLDER"):
        from_gguf(path, tmp_path / "ours")
    with pytest.raises(ValueError, match="scale must be f16 or bf16, not 'f32'"):
        from_gguf(path, tmp_path / "ours", scale="f32")
    assert [each.name for each in tmp_path.iterdir()] == ["m.gguf"]
