"""GGUF files of llama.cpp as folders that AutoModelForCausalLM.from_pretrained reads.

The weights are imported by tvm-pack --from gguf, with their codes; configuration and tokenizer are made from the file's
metadata by transformers, which needs the package gguf for it.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from . import UnsupportedError

__all__ = ["from_gguf"]

_TOOL = Path(__file__).parent / "bin" / "tvm-pack"
_DTYPES = {"f16": "float16", "bf16": "bfloat16"}


def from_gguf(
    path: str | os.PathLike[str], folder: str | os.PathLike[str], *, scale: str = "f16",
    model: str | os.PathLike[str] | None = None,
) -> Path:  # fmt: skip
    """Makes the folder of a model from a GGUF file, and returns its path: model.safetensors, config.json, tokenizer.

    scale: the type of scales, and so of the model, f16 or bf16, which rounds most scales. model: a folder, or the name
    of a repository, whose configuration and tokenizer are taken in place of those made from the file; that of the model
    that the file was made of. The folder must not be there yet; it appears when all of it is written.

    UnsupportedError where a package is missing, or transformers knows no configuration for the file; ValueError for
    what tvm-pack refuses; FileExistsError.
    """
    path, folder = Path(path), Path(folder)
    if scale not in _DTYPES:
        raise ValueError(f"scale must be f16 or bf16, not {scale!r}")
    _need_packages()
    if folder.exists():
        raise FileExistsError(f"{folder} is there already")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as work:
        made = Path(work) / "made"
        made.mkdir(mode=0o777)
        _import_weights(path, made / "model.safetensors", scale)
        _save_config(path, made, _DTYPES[scale], model)
        os.rename(made, folder)
    return folder


def _need_packages():
    missing = [name for name in ("torch", "transformers", "gguf") if importlib.util.find_spec(name) is None]
    if missing:
        raise UnsupportedError(
            f"from_gguf needs the packages torch, transformers and gguf: pip install {' '.join(missing)}; without them "
            f"tvm-pack --from gguf makes model.safetensors, beside which the model's own config.json and tokenizer go"
        )


def _import_weights(path, output, scale):
    command = [os.fspath(_TOOL), "--quiet", "--from=gguf", *(["--scale=bf16"] if scale == "bf16" else [])]
    done = subprocess.run([*command, os.fspath(path), "-o", os.fspath(output)], capture_output=True, text=True)
    if done.returncode:
        raise ValueError(done.stderr.strip().removeprefix("tvm-pack: ") or f"tvm-pack has failed: {done.returncode}")


def _save_config(path, folder, dtype, model):
    from transformers import AutoConfig, AutoTokenizer

    if model is not None:
        config, tokenizer = AutoConfig.from_pretrained(model), AutoTokenizer.from_pretrained(model)
    else:
        here = {"pretrained_model_name_or_path": os.fspath(path.parent), "gguf_file": path.name}
        try:
            config, tokenizer = AutoConfig.from_pretrained(**here), AutoTokenizer.from_pretrained(**here)
        except Exception as error:  # of any kind: a key that is missing, an architecture, a model of tokens
            raise UnsupportedError(
                f"{path}: transformers makes no configuration and tokenizer of its metadata ({error!r}); give "
                f"from_gguf the model that the file was made of, model=FOLDER or a repository's name"
            ) from error
        _complete(config, tokenizer, path)
    config.architectures = config.architectures or _architectures(config)
    config.dtype = dtype
    config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    if _has_codes(folder / "model.safetensors"):
        text = json.loads((folder / "config.json").read_text())
        text["quantization_config"] = {"quant_method": "tilusvm", "version": 1}
        (folder / "config.json").write_text(json.dumps(text, indent=2) + "\n")


def _architectures(config):
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as names

    name = names.get(config.model_type)
    return [name] if isinstance(name, str) else None


def _has_codes(path):
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        return json.loads(file.read(size)).get("__metadata__", {}).get("format") == "tilusvm-model"


# ---- what transformers does not take from the metadata


def _complete(config, tokenizer, path):
    """The size of a head, caps of logits, how positions beyond those of the training are rotated; special tokens."""
    from gguf import GGUFReader, GGUFValueType

    reader = GGUFReader(path)
    fields = {
        name: field.contents() for name, field in reader.fields.items() if field.types[:1] != [GGUFValueType.ARRAY]
    }
    for key, name in _TOKENS.items():
        if f"tokenizer.ggml.{key}" in fields:
            setattr(tokenizer, name, tokenizer.convert_ids_to_tokens(fields[f"tokenizer.ggml.{key}"]))
    architecture = fields["general.architecture"]
    said = {k.removeprefix(f"{architecture}."): v for k, v in fields.items() if k.startswith(f"{architecture}.")}
    for key, name in _ATTRIBUTES.items():
        if key in said and hasattr(config, name):
            setattr(config, name, said[key])
    vectors = {t.name: t.data.tolist() for t in reader.tensors if t.name.startswith("rope_f")}
    if hasattr(config, "query_pre_attn_scalar"):
        wide = (config.model_type, config.num_hidden_layers) in _SCALED_BY_ALL_HEADS
        config.query_pre_attn_scalar = config.hidden_size // config.num_attention_heads if wide else config.head_dim
    rotation = _rotation(config, said, vectors, path)
    if rotation:
        whole = config.rope_parameters
        config.rope_parameters = (
            {**whole, "full_attention": {**whole["full_attention"], **rotation}}
            if "full_attention" in whole
            else {**whole, **rotation}
        )


_TOKENS = {
    "bos_token_id": "bos_token",
    "eos_token_id": "eos_token",
    "unknown_token_id": "unk_token",
    "padding_token_id": "pad_token",
}
_ATTRIBUTES = {
    "attention.key_length": "head_dim",
    "expert_feed_forward_length": "moe_intermediate_size",
    "expert_shared_feed_forward_length": "shared_expert_intermediate_size",
    "attention.sliding_window": "sliding_window",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
}

#: Gemma 2 and 3 of 27 billion parameters, of which the file does not say it (llama.cpp, src/models).
_SCALED_BY_ALL_HEADS = {("gemma2", 46), ("gemma3_text", 62)}


def _rotation(config, said, vectors, path) -> dict[str, Any]:
    """What goes into config.rope_parameters: by the keys rope.scaling.*, or by the factors that the file has as tensors
    (rope_freqs of Llama 3, rope_factors_* of Phi 3)."""
    kind, factor = said.get("rope.scaling.type", "none"), said.get("rope.scaling.factor", 1.0)
    before = said.get("rope.scaling.original_context_length")
    if "rope_freqs.weight" in vectors:
        return _llama3(config, vectors["rope_freqs.weight"], said, path)
    if "rope_factors_long.weight" in vectors:
        config.original_max_position_embeddings = before
        return {
            "rope_type": "longrope", "long_factor": vectors["rope_factors_long.weight"],
            "short_factor": vectors["rope_factors_short.weight"], "original_max_position_embeddings": before,
            "factor": config.max_position_embeddings / before,
        }  # fmt: skip
    if kind == "linear" and factor != 1:
        return {"rope_type": "linear", "factor": factor}
    if kind == "yarn":
        return {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": before}
    if kind not in ("none", "linear"):
        raise UnsupportedError(f"{path}: rope.scaling.type {kind!r} is not known; give from_gguf model=FOLDER")
    return {}


def _llama3(config, factors, said, path):
    """The parameters of Llama 3.1's rotation: those that make the factors of frequencies, which the file has."""
    theta, size = config.rope_parameters["rope_theta"], said.get("rope.dimension_count", config.head_dim)
    for before in (8192, said.get("rope.scaling.original_context_length", 8192)):
        found = {
            "rope_type": "llama3", "factor": max(factors), "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": before,
        }  # fmt: skip
        made = [_llama3_factor(theta ** (-2 * i / size), found) for i in range(size // 2)]
        if len(made) == len(factors) and all(math.isclose(a, b, rel_tol=1e-4) for a, b in zip(made, factors)):
            return found
    raise UnsupportedError(
        f"{path}: the factors rope_freqs are not those of Llama 3.1; give from_gguf the model that the file was made "
        f"of, model=FOLDER"
    )


def _llama3_factor(frequency, p):
    """By how much Llama 3.1 lowers a frequency: high ones not, low ones by the factor, those between by a mixture
    (transformers, modeling_rope_utils)."""
    waves = p["original_max_position_embeddings"] * frequency / (2 * math.pi)
    smooth = (waves - p["low_freq_factor"]) / (p["high_freq_factor"] - p["low_freq_factor"])
    if smooth <= 0:
        return p["factor"]
    return 1.0 if smooth >= 1 else 1 / ((1 - smooth) / p["factor"] + smooth)
