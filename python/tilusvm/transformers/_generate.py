"""What Decoder.generate is asked for, checked; what rows have when they end; tokens on their way to the host."""

from __future__ import annotations

import collections.abc
import dataclasses
import difflib

import torch

from .._sample import check_sampling
from ..ops import sample
from ._speculate import check_draft

__all__ = ["Request", "Rows", "Sent", "request_of"]


@dataclasses.dataclass(frozen=True)
class Sampling:
    """How tokens are drawn. Step s takes the random numbers from s 2^32 on, one a row, so that what a row draws depends
    on its place in the batch and on the step, and not on how many rows there are."""

    temperature: float
    top_k: int
    top_p: float
    seed: int

    def draw(self, logits, step):
        return sample(logits, self.temperature, self.top_k, self.top_p, self.seed, step << 32)


@dataclasses.dataclass(frozen=True)
class Request:
    """A call of generate, whose arguments are right."""

    ids: torch.Tensor  #: int64 [batch, tokens], on the host, as they stand before the new ones in the result
    flat: torch.Tensor  #: int64, the prompts one behind the other, on the host
    lengths: list[int]  #: of the prompts
    most: int  #: new tokens of a row
    sampling: Sampling | None  #: None: the greatest logit
    eos: tuple[int, ...]
    stops: object  #: a criterion of transformers, of ids [batch, tokens] so far: which rows end; or None
    pad: int  #: what a row has behind its end
    streamer: object
    draft: object = None  #: what drafts tokens, of _speculate; or None

    @property
    def is_watched(self):
        """Does the host look at the tokens before the last one is there?"""
        return bool(self.eos) or any(one is not None for one in (self.stops, self.streamer, self.draft))


# ---- checks ----


def _is_integer(value):
    return isinstance(value, int) and not isinstance(value, bool)


def _tokens(name, value, vocabulary):
    """A tuple of tokens: one, or several, or none for an empty list."""
    if isinstance(value, torch.Tensor):
        value = value.tolist()
    values = tuple(value) if isinstance(value, (list, tuple, set)) else (value,)
    for token in values:
        if not _is_integer(token):
            raise TypeError(f"{name} must be a token or a list of tokens, not {value!r}")
        if not 0 <= token < vocabulary:
            raise ValueError(f"{name} must be from 0 to {vocabulary - 1}, as the vocabulary, not {token}: [] for none")
    return values


def check_ids(ids, batch):
    """TypeError or ValueError where they are no tensor [batch, tokens] of tokens."""
    if not isinstance(ids, torch.Tensor):
        raise TypeError(f"ids must be a tensor of tokens, not {type(ids).__name__}")
    if ids.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"ids must be torch.int64 or torch.int32, not {ids.dtype}")
    if ids.dim() != 2 or ids.shape[0] != batch or not ids.shape[1]:
        raise ValueError(f"ids must have the shape [{batch}, tokens], not {list(ids.shape)}")


def _padded(prompts, batch, pad):
    """ids and mask [batch, tokens] of prompts of any lengths, each a list or a tensor: padded at their left."""
    rows = []
    for i, prompt in enumerate(prompts):
        row = prompt.tolist() if isinstance(prompt, torch.Tensor) else prompt
        if not isinstance(row, (list, tuple)) or not all(map(_is_integer, row)):
            raise TypeError(f"ids must be a tensor of tokens or a list of prompts, and prompt {i} is no list of tokens")
        rows.append(list(row))
    if len(rows) != batch:
        raise ValueError(f"ids must have {batch} prompts, as the batch of the Decoder, not {len(rows)}")
    most = max(map(len, rows))
    if pad is None and any(len(row) < most for row in rows):
        raise ValueError("pad_token_id is needed for prompts of different lengths: the model's configuration has none")
    ids = torch.tensor([[pad or 0] * (most - len(row)) + row for row in rows], dtype=torch.int64).view(batch, most)
    mask = torch.tensor([[False] * (most - len(row)) + [True] * len(row) for row in rows]).view(batch, most)
    return ids, mask


def _prompts(ids, mask, batch, pad, eos, vocabulary):
    """ids, int64, and what of them are prompts, bool [batch, tokens], both on the host."""
    if isinstance(ids, collections.abc.Mapping) and "input_ids" in ids:  # what a tokenizer gives
        given, ids = ids, ids["input_ids"]
        mask = given.get("attention_mask") if mask is None else mask
        if isinstance(ids, list) and isinstance(mask, list):
            ids, mask = [[token for token, keep in zip(*row) if keep] for row in zip(ids, mask)], None
    if isinstance(ids, (list, tuple)):
        if mask is not None:
            raise TypeError("attention_mask goes with ids as a tensor: prompts of a list are as long as they are")
        ids, mask = _padded(ids, batch, pad)
    check_ids(ids, batch)
    ids = ids.to("cpu", torch.int64)
    if mask is None:  # as transformers: a pad token that is nothing else is padding
        mask = ids != pad if pad is not None and pad not in eos else torch.ones_like(ids, dtype=torch.bool)
    elif not isinstance(mask, torch.Tensor) or mask.shape != ids.shape:
        found = list(mask.shape) if isinstance(mask, torch.Tensor) else type(mask).__name__
        raise ValueError(f"attention_mask must be a tensor of the shape of ids, {list(ids.shape)}, not {found}")
    else:
        mask = mask.to("cpu")
        if ((mask != 0) & (mask != 1)).any():
            raise ValueError("attention_mask must be of 0, for what is left out, and 1")
        mask = mask != 0
    for row, count in enumerate(mask.sum(1).tolist()):
        if not count:
            raise ValueError(f"prompt {row} has no tokens")
    wrong = ids[mask & ((ids < 0) | (ids >= vocabulary))]
    if len(wrong):
        raise ValueError(f"ids must be from 0 to {vocabulary - 1}, as the vocabulary, not {wrong[0].item()}")
    return ids, mask


def _stops(stop_strings, tokenizer):
    if stop_strings is None:
        return None
    from transformers.generation.stopping_criteria import StopStringCriteria

    strings = [stop_strings] if isinstance(stop_strings, str) else stop_strings
    if not isinstance(strings, (list, tuple)) or not all(isinstance(text, str) and text for text in strings):
        raise TypeError(f"stop_strings must be a string or a list of strings, none of them empty, not {stop_strings!r}")
    if tokenizer is None:
        raise ValueError("stop_strings needs tokenizer, the model's, which says what tokens read as")
    return StopStringCriteria(tokenizer, list(strings)) if strings else None


def _sampling(do_sample, words, config, device, ranks):
    """The Sampling of arguments, and where they say nothing of the model's; None for the greatest logit."""
    given = {name: value for name, value in words.items() if value is not None}
    if do_sample not in (None, True, False):
        raise TypeError(f"do_sample must be True or False, not {do_sample!r}")
    for name in given:
        if do_sample is False:
            raise ValueError(f"{name} goes with sampling, not with do_sample=False")
    if not do_sample and not given:
        return None
    found = {"temperature": 1.0, "top_k": 0, "top_p": 1.0}
    for name, value in found.items():
        usual = getattr(config, name, None)
        found[name] = given.get(name, value if usual is None else usual)
    seed = given.get("seed")
    check_sampling("generate", *found.values(), 0 if seed is None else seed)
    if found["temperature"] == 0:
        return None
    return Sampling(**found, seed=_random_seed(device, ranks) if seed is None else seed)


def _random_seed(device, ranks):
    """Of torch's generator; the first rank's on all, where a model is split, as (group,)."""
    seed = torch.randint(1 << 62, ())
    if ranks is not None:
        group = ranks[0]
        first = 0 if group is None else torch.distributed.get_global_rank(group, 0)
        seed = seed.to(device)
        torch.distributed.broadcast(seed, first, group=group)
    return int(seed)


def _most(asked, config, longest, cache):
    """New tokens of a row: as asked, or as the model's configuration says, or as many as there is room for."""
    room = cache.max_tokens - longest + 1  # the last one does not go into the cache
    if room < 1:
        raise ValueError(
            f"the cache holds {cache.max_tokens} tokens of a sequence, not {longest}, as the longest prompt has: "
            "max_tokens of the Decoder"
        )
    if asked is None:
        usual = getattr(config, "max_new_tokens", None)
        return min(usual or room, room)
    if not _is_integer(asked):
        raise TypeError(f"max_new_tokens must be an integer, not {asked!r}")
    if asked < 1:
        raise ValueError(f"max_new_tokens must be 1 at least, not {asked}")
    if asked > room:
        raise ValueError(
            f"the cache holds {cache.max_tokens} tokens of a sequence, not {longest + asked - 1}: max_tokens of the "
            "Decoder"
        )
    return asked


#: What generate takes, by name, and what stands for what is not given.
WORDS = {
    name: None
    for name in (
        "attention_mask", "do_sample", "temperature", "top_k", "top_p", "seed", "eos_token_id", "pad_token_id",
        "stop_strings", "tokenizer", "streamer", "draft",
    )  # fmt: skip
}


def request_of(decoder, ids, max_new_tokens, words):
    """The Request of a call's arguments; TypeError or ValueError for what is wrong with them."""
    for name in words:
        if name not in WORDS:
            near = difflib.get_close_matches(name, ["max_new_tokens", *WORDS], 1)
            hint = f"did you mean {near[0]}?" if near else f"known are max_new_tokens, {', '.join(WORDS)}"
            raise TypeError(f"generate takes no argument {name!r}: {hint}")
    given = {**WORDS, **words}
    config, vocabulary = decoder.generation_config, decoder.embed.weight.shape[0]
    eos, pad = given["eos_token_id"], given["pad_token_id"]
    if eos is None:
        usual = getattr(config, "eos_token_id", None)
        eos = () if usual is None else tuple(usual) if isinstance(usual, (list, tuple)) else (usual,)
    else:
        eos = _tokens("eos_token_id", eos, vocabulary)
    if pad is None:
        pad = getattr(config, "pad_token_id", None)
        pad = eos[0] if pad is None and eos else pad
    elif not _is_integer(pad):
        raise TypeError(f"pad_token_id must be a token, not {pad!r}")
    ids, mask = _prompts(ids, given["attention_mask"], decoder.cache.batch, pad, eos, vocabulary)
    lengths = mask.sum(1).tolist()
    stops = _stops(given["stop_strings"], given["tokenizer"])
    if stops is not None and pad is None and len(lengths) > 1:
        raise ValueError("pad_token_id is needed behind rows that end: the model's configuration has none")
    streamer = given["streamer"]
    if streamer is not None and not (hasattr(streamer, "put") and hasattr(streamer, "end")):
        raise TypeError(f"streamer must have put and end, as those of transformers, not {type(streamer).__name__}")
    check_draft(decoder, given["draft"])
    return Request(
        ids=ids, flat=ids[mask], lengths=lengths, most=_most(max_new_tokens, config, max(lengths), decoder.cache),
        sampling=_sampling(
            given["do_sample"], {name: given[name] for name in ("temperature", "top_k", "top_p", "seed")}, config,
            decoder.device, decoder.ranks,
        ),
        eos=eos, stops=stops, pad=0 if pad is None else pad, streamer=streamer, draft=given["draft"],
    )  # fmt: skip


# ---- tokens on the host ----


class Sent:
    """Tokens of steps on their way to the host, of a GPU behind the step and without a wait: at most `ahead` of them
    when another is sent."""

    def __init__(self, like, ahead):
        pinned = like.is_cuda
        self.stream = torch.cuda.current_stream(like.device) if pinned else None
        self.slots = [
            (torch.empty(like.shape, dtype=like.dtype, pin_memory=pinned), torch.cuda.Event() if pinned else None)
            for _ in range(ahead + 1)
        ]
        self.sent = self.taken = 0

    def __len__(self):
        return self.sent - self.taken

    def send(self, tokens):
        host, event = self.slots[self.sent % len(self.slots)]
        host.copy_(tokens, non_blocking=True)
        if event is not None:
            event.record(self.stream)
        self.sent += 1

    def take(self):
        """The oldest ones, once they are there."""
        host, event = self.slots[self.taken % len(self.slots)]
        if event is not None:
            event.synchronize()
        self.taken += 1
        return host.clone()


class Rows:
    """Which rows of a request have ended, by the tokens so far."""

    def __init__(self, request):
        self.request = request
        batch, prompt = request.ids.shape
        self.steps, self.kept = 0, torch.zeros(batch, dtype=torch.int64)
        self.ended = torch.zeros(batch, dtype=torch.bool)
        self.eos = torch.tensor(request.eos, dtype=torch.int64)
        self.ids = None
        if request.stops is not None:
            self.ids = torch.cat([request.ids, request.ids.new_empty(batch, request.most)], 1)
        self.prompt = prompt

    def put(self, tokens):
        """A step's tokens [batch], of the rows that ended before the pad token."""
        request, before = self.request, self.ended
        tokens = torch.where(before, request.pad, tokens)
        self.steps += 1
        self.kept += ~before
        self.ended = before | torch.isin(tokens, self.eos)
        if self.ids is not None:
            behind = self.prompt + self.steps
            self.ids[:, behind - 1] = tokens
            self.ended = self.ended | request.stops(self.ids[:, :behind], None).to(torch.bool)
        return tokens
