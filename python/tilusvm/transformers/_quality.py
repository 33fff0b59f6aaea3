"""python -m tilusvm quality and quantize: a language model in a folder, measured and made. Their arguments are
__main__'s."""

from __future__ import annotations

import fnmatch
import json
import os
import tempfile
from pathlib import Path

import torch
from transformers import AutoConfig, AutoTokenizer

from .. import quality as measures
from .._progress import Bar
from .._registry import HALVES
from .._stack import Stack
from ..calibrate import Calibration, windows
from ..nn import Linear
from ..quantize import quantize_
from ._console import _loaded, _need_folder, _quiet
from ._quantizer import TilusConfig, TilusQuantizer, _keep_stacks, _untie

__all__ = ["quality", "quantize"]


def _text(path):
    try:
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is no text in UTF-8: {error.reason} at byte {error.start}") from error


def _model(folder, quantization=None):
    """A folder's model, on the CPU, in the half that its configuration names, or f16."""
    config = AutoConfig.from_pretrained(folder)
    dtype = config.get_text_config().dtype
    words = {"dtype": dtype if dtype in HALVES else torch.float16}
    if quantization is not None:
        if hasattr(config, "quantization_config"):
            raise ValueError(f"{folder} is quantized: it goes without --type")
        words["quantization_config"] = quantization
    return _loaded(folder, words).eval()


def _how(given):
    """As from_pretrained would be told to quantize."""
    return TilusConfig(given.type, given.group, given.zeros, skip=given.skip or ["lm_head"])


def _device(given):
    return given.device or ("cuda" if torch.cuda.is_available() else "cpu")


# ---- quality ----


def _run_on(model, device, interpreter):
    """The model on its device. On the CPU torch multiplies, in f32, by the weights that codes stand for, which is much
    quicker than the interpreter; mixtures of experts and --interpreter go by it."""
    if torch.device(device).type != "cpu" or interpreter or any(isinstance(m, Stack) for m in model.modules()):
        return model.to(device)
    for name, layer in list(model.named_modules()):
        if isinstance(layer, Linear):
            plain = torch.nn.Linear(layer.in_features, layer.out_features, layer.bias is not None, device="meta")
            plain.weight = torch.nn.Parameter(layer.dequantize(), requires_grad=False)
            if layer.bias is not None:
                plain.bias = torch.nn.Parameter(layer.bias.float(), requires_grad=False)
            parent, _, last = name.rpartition(".")
            setattr(model.get_submodule(parent), last, plain)
    return torch.nn.Module.float(model)  # transformers refuses it for what was loaded quantized


def _window(given, config, count):
    longest = getattr(config.get_text_config(), "max_position_embeddings", given.window)
    return max(min(given.window, longest, count), 2)


def quality(given):
    """Perplexity, and how far the predictions are from those of the reference."""
    _quiet()
    for folder in (given.folder, given.against):
        if folder is not None:
            _need_folder(folder, folder == given.folder)
    text = _text(given.text)
    tokenizer = AutoTokenizer.from_pretrained(given.folder)
    ids = measures.tokens_of(tokenizer, text)[: given.tokens]
    how = None if given.type is None else _how(given)
    against = given.against or (given.folder if how else None)
    device = _device(given)
    model = _run_on(_model(given.folder, how), device, given.interpreter)
    reference = None if against is None else _run_on(_model(against), device, given.interpreter)
    window = _window(given, model.config, len(ids))
    stride = window if given.stride is None else min(given.stride, window)
    found = measures.measure(model, ids, window, stride, reference=reference, progress=Bar())
    shown = {
        "folder": str(given.folder), "type": given.type, "against": against and str(against), "text": str(given.text),
        "device": device if device == "cpu" else torch.cuda.get_device_name(device), "window": window,
        "stride": stride, **found._asdict(),
    }  # fmt: skip
    print(json.dumps(shown) if given.json else _table(shown))


def _table(shown):
    rows = [("tokens", f"{shown['tokens']} in windows of {shown['window']}, one every {shown['stride']}")]
    rows.append(("perplexity", f"{shown['perplexity']:.4f}"))
    if shown["against"] is not None:
        ratio = shown["perplexity"] / shown["reference_perplexity"] - 1
        rows += [
            ("of the reference", f"{shown['reference_perplexity']:.4f} ({ratio:+.2%})"),
            ("KL divergence", f"{shown['kl_mean']:.6f} mean, {shown['kl_p99']:.6f} p99, {shown['kl_max']:.6f} max"),
            ("top-1 agreement", f"{shown['top1_agreement']:.2%}"),
        ]
    return "\n".join(f"{name:17} {value}" for name, value in rows)


# ---- quantize ----


def _calibration(given, tokenizer, config):
    if given.method is None:
        return None
    ids = measures.tokens_of(tokenizer, _text(given.text))
    length = _window(given, config, len(ids))
    data = windows(tokenizer, _text(given.text), length, given.samples)
    return Calibration([data], given.method)


def _save(model, how, tokenizer, folder):
    """As from_pretrained with the TilusConfig would have been saved: whole, or not at all."""
    quantizer = TilusQuantizer(how)
    model.hf_quantizer, model.config.quantization_config = quantizer, how
    _untie(model)
    _keep_stacks(model)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as work:
        made = Path(work) / "made"
        made.mkdir(mode=0o777)
        model.save_pretrained(made)
        tokenizer.save_pretrained(made)
        os.rename(made, folder)


def quantize(given):
    """Quantizes the linear layers of a folder's model, by calibration or without, into another folder."""
    _quiet()
    _need_folder(given.folder, True)
    if given.to.exists():
        raise FileExistsError(f"{given.to} is there already")
    if (given.method is None) != (given.text is None):
        raise ValueError("--method and --text go together: the text is what the weights are calibrated for")
    how = _how(given)
    tokenizer = AutoTokenizer.from_pretrained(given.folder)
    config = AutoConfig.from_pretrained(given.folder)
    if hasattr(config, "quantization_config"):
        raise ValueError(f"{given.folder} is quantized already")
    calibration = _calibration(given, tokenizer, config)
    model = _model(given.folder)
    names = [name for name, _ in model.named_modules()]
    skip = [pattern for pattern in how.skip if fnmatch.filter(names, pattern)]
    device = _device(given)
    quantize_(
        model, given.type, given.group, skip=skip, zeros=given.zeros, calibrate=calibration,
        device=None if device == "cpu" else device,
    )  # fmt: skip
    _save(model.to("cpu"), how, tokenizer, given.to)
    print(f"{given.to}: {given.type} in groups of {given.group}")
