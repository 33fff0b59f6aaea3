"""Speculative decoding: several tokens of each sequence are drafted, and one step of the model says which are kept.

Leviathan et al., "Fast Inference from Transformers via Speculative Decoding", ICML 2023: the kernel accept keeps and
draws tokens so that they are distributed as without a draft; the greatest logits give the same tokens.
"""

from __future__ import annotations

import collections

import torch

from ..ops import accept, argmax, probabilities, sample

__all__ = ["DraftModel", "PromptLookup", "check_draft", "steps"]

#: Random numbers 2^32 apart that a round may take: one of the model, one of each token that is drafted.
NUMBERS = 16


def _check_tokens(tokens):
    if not isinstance(tokens, int) or isinstance(tokens, bool) or not 1 <= tokens <= 7:
        raise ValueError(f"tokens must be from 1 to 7, not {tokens!r}")


class PromptLookup:
    """Drafts what stood behind the newest tokens where these stood last, in the prompt or what was generated: for text
    that repeats itself. tokens: of a round, 1 to 7; longest: so many of the newest tokens at most are looked for, then
    fewer."""

    def __init__(self, tokens=4, longest=3):
        _check_tokens(tokens)
        if not isinstance(longest, int) or isinstance(longest, bool) or longest < 1:
            raise ValueError(f"longest must be a number of tokens from 1, not {longest!r}")
        self.tokens, self.longest = tokens, longest

    def begin(self, decoder, request):
        return _Lookup(self, decoder.device)


class DraftModel:
    """Drafts by a smaller model of the same vocabulary: decoder, a Decoder for the same batch and as many tokens.
    tokens: of a round, 1 to 7."""

    def __init__(self, decoder, tokens=4):
        _check_tokens(tokens)
        self.decoder, self.tokens = decoder, tokens

    def begin(self, decoder, request):
        return _Model(self, request)


def check_draft(decoder, draft):
    """TypeError or ValueError where the Decoder cannot be drafted for so."""
    if draft is None or isinstance(draft, PromptLookup):
        return
    if not isinstance(draft, DraftModel):
        raise TypeError(f"draft must be a PromptLookup or a DraftModel, not {type(draft).__name__}")
    if not hasattr(draft.decoder, "several"):
        raise TypeError(f"draft must be the DraftModel of a Decoder, not of {type(draft.decoder).__name__}")
    if draft.decoder is decoder:
        raise ValueError("draft must be another Decoder: this one has the tokens of its own in its cache")
    for name, one, other in (
        ("batch", draft.decoder.cache.batch, decoder.cache.batch),
        ("vocabulary", draft.decoder.head.out_features, decoder.head.out_features),
    ):
        if one != other:
            raise ValueError(f"draft has a {name} of {one}, and the Decoder one of {other}: they must be the same")
    if draft.decoder.cache.max_tokens < decoder.cache.max_tokens:
        raise ValueError(
            f"draft has room for {draft.decoder.cache.max_tokens} tokens of a sequence, and the Decoder for "
            f"{decoder.cache.max_tokens}: max_tokens of the draft's Decoder"
        )


class _Row:
    """A sequence: its tokens, the newest of which is in no cache, and what of them has not been given yet."""

    def __init__(self, prompt, token):
        self.ids, self.prompt = [*prompt, token], len(prompt)
        self.queue = collections.deque([token])

    @property
    def made(self):
        return len(self.ids) - self.prompt

    @property
    def cached(self):
        return len(self.ids) - 1

    def put(self, tokens):
        self.ids += tokens
        self.queue.extend(tokens)

    def window(self, start, count):
        """So many of its tokens from one on; behind the newest one any token."""
        found = self.ids[start : start + count]
        return found + [0] * (count - len(found))


class _Lookup:
    """Of each row where each run of up to `longest` tokens ended last."""

    def __init__(self, draft, device):
        self.longest, self.device, self.places = draft.longest, device, None

    def _read(self, at, row):
        """The runs that end before a token that is known."""
        places, known = self.places[at]
        for end in range(known, len(row.ids)):
            for size in range(1, min(self.longest, end) + 1):
                places[tuple(row.ids[end - size : end])] = end
        self.places[at] = places, len(row.ids)

    def _find(self, at, row, count):
        self._read(at, row)
        places, _ = self.places[at]
        for size in range(min(self.longest, len(row.ids)), 0, -1):
            end = places.get(tuple(row.ids[-size:]))
            if end is not None:
                found = row.ids[end : end + count]
                return found + [-1] * (count - len(found))
        return [-1] * count

    def propose(self, rows, going, count, sampling, numbers):
        if self.places is None:
            self.places = [({}, 1) for _ in rows]
        found = [
            self._find(at, row, count) if goes else [-1] * count for at, (row, goes) in enumerate(zip(rows, going))
        ]
        return torch.tensor(found, dtype=torch.int32, device=self.device).view(len(rows), count), None


class _Model:
    """Its cache may lack the newest token but one, which it reads again with the newest."""

    def __init__(self, draft, request):
        self.decoder = draft.decoder
        self.decoder.begin(request)

    def propose(self, rows, going, count, sampling, numbers):
        decoder, cache = self.decoder, self.decoder.cache
        starts = [min(row.cached - 1, cache.max_tokens - count - 1) for row in rows]
        ids = torch.tensor([row.window(start, 2) for row, start in zip(rows, starts)], device=decoder.device)
        cache.rewind(starts)
        drafted, chances = [], []
        for place in range(count):
            logits = decoder.several(ids)[:, -1].contiguous()
            if sampling is None:
                token = argmax(logits)
            else:
                token = sample(
                    logits, sampling.temperature, sampling.top_k, sampling.top_p, sampling.seed,
                    numbers + (place + 1 << 32),
                )  # fmt: skip
                chances.append(probabilities(logits, sampling.temperature, sampling.top_k, sampling.top_p))
            drafted.append(token.to(torch.int32))
            ids = token[:, None].to(torch.int64)
        return torch.stack(drafted, 1), torch.stack(chances, 1) if chances else None


@torch.no_grad()
def steps(decoder, request, ends):
    """The tokens of each step, int64 [batch], on the host; ends: the Rows that are told of them, which say which rows
    have ended. A round gives each row one token more than it keeps; a step is given when all rows have it."""
    cache, sampling = decoder.cache, request.sampling
    first = decoder.first(request).tolist()
    rows = [_Row(prompt.tolist(), token) for prompt, token in zip(request.flat.split(request.lengths), first)]
    drafts = request.draft.begin(decoder, request)
    given = rounds = 0
    while True:
        ended = ends.ended.tolist()
        going = [not end and row.made < request.most for row, end in zip(rows, ended)]
        if all(row.queue or end for row, end in zip(rows, ended)):
            yield torch.tensor([row.queue.popleft() if row.queue else request.pad for row in rows])
            given += 1
            if given == request.most:
                return
            continue
        rounds += 1
        room = cache.max_tokens - max(row.cached for row, goes in zip(rows, going) if goes)
        count, numbers = min(request.draft.tokens, room - 1), rounds * NUMBERS << 32
        drafted, q = torch.empty(len(rows), 0, dtype=torch.int32, device=decoder.device), None
        if count:
            drafted, q = drafts.propose(rows, going, count, sampling, numbers)
        tokens, kept = _judged(decoder, rows, going, drafted, q, sampling, numbers)
        for row, goes, new, keeps in zip(rows, going, tokens, kept):
            if goes:
                row.put(new[: min(keeps + 1, request.most - row.made)])
        cache.rewind([row.cached for row in rows])
        decoder.check_turn(request)


def _judged(decoder, rows, going, drafted, q, sampling, numbers):
    """The tokens of each row, and how many of its draft the model keeps, on the host. Rows that are done read their
    newest tokens again, so that no cache is written behind its end."""
    new = drafted.shape[1] + 1
    starts = [row.cached if goes else max(row.cached - new, 0) for row, goes in zip(rows, going)]
    windows = torch.tensor([row.window(start, new) for row, start in zip(rows, starts)])
    ids = windows.to(decoder.device)
    alive = torch.tensor(going, device=decoder.device)[:, None]
    ids[:, 1:] = torch.where(alive, drafted.clamp(min=0).to(torch.int64), ids[:, 1:])
    decoder.cache.rewind(starts)
    logits = decoder.several(ids)
    how = (0.0, 0, 1.0) if sampling is None else (sampling.temperature, sampling.top_k, sampling.top_p)
    p = probabilities(logits.contiguous(), *how)
    tokens, kept = accept(p, drafted, q, 0 if sampling is None else sampling.seed, numbers)
    both = torch.cat([tokens, kept[:, None]], 1).tolist()
    return [row[:-1] for row in both], [row[-1] for row in both]
