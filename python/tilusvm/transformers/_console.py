"""python -m tilusvm chat, bench and serve: the language model of a folder. Their arguments are __main__'s."""

from __future__ import annotations

import json
import statistics
import sys
import time

import safetensors
import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, TextStreamer

from .._registry import HALVES
from ._attention import NAME
from ._decoder import Decoder
from ._layers import accelerate_
from ._quantizer import TilusConfig

__all__ = ["bench", "chat", "serve"]


# ---- what a folder has ----


def _need_folder(folder, tokenizer):
    """FileNotFoundError or NotADirectoryError, in a line, where it cannot have a model, and a tokenizer."""
    if not folder.is_dir():
        raise NotADirectoryError(f"{folder} is {'no folder' if folder.exists() else 'not there'}")
    if not (folder / "config.json").is_file():
        raise FileNotFoundError(f"{folder} has no config.json, which folders of transformers and save_pretrained have")
    if not any(folder.glob("*.safetensors")):
        raise FileNotFoundError(f"{folder} has no weights: there is no file .safetensors")
    names = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model")
    if tokenizer and not any((folder / name).is_file() for name in names):
        raise FileNotFoundError(f"{folder} has no tokenizer: there is none of {', '.join(names)}")


def _loaded(folder, words):
    """The model, all of it: transformers makes up weights that no file has, and says so in its log alone."""
    try:
        model, found = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True, **words)
    except safetensors.SafetensorError as error:
        raise ValueError(f"{folder} has weights that cannot be read: {error}") from error
    if found["missing_keys"]:
        raise ValueError(f"{folder} lacks weights of the model: {min(found['missing_keys'])}")
    return model


def _device(given):
    return given.device or ("cuda" if torch.cuda.is_available() else "cpu")


def _words(given):
    """How from_pretrained loads the model. A configuration in f32 is run in f16."""
    config = AutoConfig.from_pretrained(given.folder)
    dtype = config.get_text_config().dtype
    words = {"dtype": dtype if dtype in HALVES else torch.float16}
    if given.type is not None:
        if hasattr(config, "quantization_config"):
            raise ValueError(f"{given.folder} is quantized: it goes without --type")
        words["quantization_config"] = TilusConfig(given.type, given.group)
    return words


def _decoder(given, batch, tokens):
    """The model on its device."""
    model = _loaded(given.folder, _words(given)).to(_device(given)).eval()
    longest = getattr(model.config.get_text_config(), "max_position_embeddings", tokens)
    return Decoder(model, batch, min(tokens, longest), cache=given.cache, consume=True)


def _quiet():
    transformers.logging.set_verbosity_error()
    if not sys.stderr.isatty():
        transformers.logging.disable_progress_bar()


# ---- chat ----


class _Answer:
    """The tokens of an answer, printed as words as they come."""

    def __init__(self, tokenizer):
        self.streamer = TextStreamer(tokenizer, skip_special_tokens=True)
        self.tokens, self.begin, self.first = [], time.perf_counter(), 0.0

    def put(self, tokens):
        self.first = self.first or time.perf_counter() - self.begin
        self.tokens += tokens.tolist()
        self.streamer.put(tokens)

    def end(self):
        """Says how quick it was, on standard error."""
        self.streamer.end()
        count, behind = len(self.tokens), time.perf_counter() - self.begin - self.first
        speed = f"{(count - 1) / behind:.1f} tokens a second" if count > 1 and behind > 0 else "1 token"
        print(f"[{count} tokens: {speed}, the first after {self.first:.2f} s]", file=sys.stderr)


def _lines():
    """What a user types, or standard input has, line by line."""
    while True:
        try:
            line = input("> ") if sys.stdin.isatty() else next(sys.stdin).rstrip("\n")
        except (EOFError, StopIteration):
            return
        except KeyboardInterrupt:
            print()
            return
        if line.strip():
            yield line


class _Conversation:
    """What has been said, as tokens: by the tokenizer's template, or, of a model without one, as plain text."""

    def __init__(self, tokenizer, system):
        self.tokenizer, self.messages, self.ids = tokenizer, [], []
        if system and tokenizer.chat_template is None:
            self.ids = tokenizer(system)["input_ids"]
        elif system:
            self.messages.append({"role": "system", "content": system})

    def ask(self, line):
        if self.tokenizer.chat_template is None:
            self.ids += self.tokenizer(line, add_special_tokens=not self.ids)["input_ids"]
            return self.ids
        self.messages.append({"role": "user", "content": line})
        words = {"add_generation_prompt": True, "return_dict": True}
        return self.tokenizer.apply_chat_template(self.messages, **words)["input_ids"]

    def answered(self, tokens):
        self.ids = [*self.ids, *tokens]
        text = self.tokenizer.decode(tokens, skip_special_tokens=True)
        self.messages.append({"role": "assistant", "content": text})


def chat(given):
    """Answers each line, by the tokenizer's template where it has one. Ctrl-C ends an answer, Ctrl-D the chat."""
    _quiet()
    _need_folder(given.folder, True)
    tokenizer = AutoTokenizer.from_pretrained(given.folder)
    decoder = _decoder(given, 1, given.context)
    words = {"temperature": given.temperature, "seed": given.seed}
    if getattr(decoder.generation_config, "eos_token_id", None) is None and tokenizer.eos_token_id is not None:
        words["eos_token_id"] = tokenizer.eos_token_id
    if getattr(decoder.generation_config, "do_sample", None) and given.temperature is None:
        words["do_sample"] = True
    conversation = _Conversation(tokenizer, given.system)
    for line in _lines():
        ids = conversation.ask(line)
        room = decoder.cache.max_tokens - len(ids) + 1
        if room < 1:
            raise ValueError(f"the conversation has {len(ids)} tokens, more than --context, {decoder.cache.max_tokens}")
        answer = _Answer(tokenizer)
        try:
            for tokens in decoder.stream([ids], min(given.new or room, room), **words):
                answer.put(tokens)
        except KeyboardInterrupt:
            pass
        answer.end()
        conversation.answered(answer.tokens)


# ---- bench ----


def _run(decoder, prompts, new):
    """Seconds to the first tokens, and from there to the last ones."""
    begin = time.perf_counter()
    first = None
    for _ in decoder.stream(prompts, new, eos_token_id=[], pad_token_id=0, do_sample=False):
        first = first or time.perf_counter()
    return first - begin, time.perf_counter() - first


def bench(given):
    """Tokens a second, of prompts and behind them, of so many sequences at a time; prompts are of random tokens."""
    _quiet()
    _need_folder(given.folder, False)
    for name, least in (("prompt", given.prompt), ("repeat", given.repeat), ("batch", min(given.batch))):
        if least < 1:
            raise ValueError(f"--{name} must be 1 at least")
    if given.new < 2:
        raise ValueError("--new must be 2 at least: the first token comes with the prompt")
    decoder, rows = None, []
    for batch in given.batch:
        if decoder is None:
            decoder = _decoder(given, batch, given.prompt + given.new)
        else:
            decoder.serve(batch, decoder.cache.max_tokens, cache=given.cache)
        prompts = torch.randint(decoder.embed.weight.shape[0], (batch, given.prompt))
        _run(decoder, prompts, 2)  # compiles, and captures
        times = [_run(decoder, prompts, given.new) for _ in range(given.repeat)]
        prefill, decode = (statistics.median(each) for each in zip(*times))
        rows.append({
            "batch": batch, "prefill": batch * given.prompt / prefill, "decode": batch * (given.new - 1) / decode,
            "first_token_seconds": prefill,
        })  # fmt: skip
    if given.json:
        device = str(decoder.device) if decoder.device.type == "cpu" else torch.cuda.get_device_name(decoder.device)
        of = {"folder": str(given.folder), "device": device, "prompt": given.prompt, "new": given.new}
        print(json.dumps({**of, "tokens_per_second": rows}))
        return
    print(f"{'batch':>5} {'prefill tokens/s':>17} {'decode tokens/s':>16} {'first token s':>14}")
    for row in rows:
        print(f"{row['batch']:5} {row['prefill']:17.1f} {row['decode']:16.1f} {row['first_token_seconds']:14.3f}")


# ---- serve ----


def _accelerating(load, words):
    """PreTrainedModel.from_pretrained, whose models have this package's kernels."""

    def from_pretrained(cls, *args, **given):
        model = load(cls, *args, **{**given, **words})
        model.set_attn_implementation(NAME)
        return accelerate_(model.eval())

    return classmethod(from_pretrained)


def serve(given) -> None:
    """transformers' server, whose process this is from now on."""
    _need_folder(given.folder, True)
    try:
        import uvicorn as _  # noqa: F401
        from transformers.cli.serve import Serve
    except ImportError as error:
        raise ImportError(f"the server needs more packages: pip install 'transformers[serving]' ({error})") from None
    words = _words(given)
    PreTrainedModel.from_pretrained = _accelerating(PreTrainedModel.from_pretrained.__func__, words)
    Serve(
        force_model=str(given.folder.absolute()), continuous_batching=not given.one_by_one, device=_device(given),
        host=given.host, port=given.port,
    )  # fmt: skip
