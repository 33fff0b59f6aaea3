"""How well a quantized language model predicts a text, and how far its predictions are from those of the original.

    ids = quality.tokens_of(tokenizer, text)
    print(quality.measure(model, ids, reference=original))

The text's tokens x are cut into windows of `window` tokens, one every `stride` tokens. In each window the tokens behind
the last window's end are scored, but for the very first, each given those before it in its window: the measure of the
GPTQ paper with stride = window, that of transformers' guide "Perplexity of fixed-length models" with a smaller one.

    perplexity        exp(-mean of log q(x_i | those before))
    KL divergence     sum over the vocabulary of p (log p - log q), in nats, for each scored token, with p the
                      distribution of the reference and q that of the model: its mean, 99th percentile and largest
                      (llama.cpp's llama-perplexity --kl-divergence has the same)
    top-1 agreement   how often both have the same likeliest token

Logits are taken as the models give them, and their softmax is computed in f64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ._torch import torch

__all__ = ["Quality", "measure", "tokens_of"]

_ROWS = 64  # of logits at a time, in f64


class Quality(NamedTuple):
    """What measure found; the last five are None without a reference."""

    tokens: int  #: that were scored
    perplexity: float
    reference_perplexity: float | None = None
    kl_mean: float | None = None
    kl_p99: float | None = None
    kl_max: float | None = None
    top1_agreement: float | None = None


def tokens_of(tokenizer: Callable[[str], Any], text: str) -> torch.Tensor:
    """The tokens of a text, int64 [tokens], with the special tokens that the tokenizer begins it with."""
    return torch.as_tensor(tokenizer(text)["input_ids"], dtype=torch.int64)


def _windows(count: int, window: int, stride: int) -> Iterator[tuple[int, int, int]]:
    """Of each window where it begins and ends, and the first token in it that is scored."""
    scored = 1
    for begin in range(0, count, stride):
        end, first = min(begin + window, count), max(scored, begin + 1)
        if first < end:
            yield begin, end, first
        scored = end
        if end == count:
            return


def _logits(model, ids, first):
    """The logits [tokens, vocabulary] that a window ids has for its tokens from `first` on."""
    device = model.get_input_embeddings().weight.device
    result = model(input_ids=ids[None].to(device), use_cache=False)
    return result.logits[0, first - 1 : -1]


class _Sums:
    """What is summed up over the tokens."""

    def __init__(self):
        self.tokens, self.loss, self.reference_loss, self.same, self.divergences = 0, 0.0, 0.0, 0, []

    def add(self, logits, reference, targets):
        for begin in range(0, len(targets), _ROWS):
            part = slice(begin, begin + _ROWS)
            target = targets[part, None].to(logits.device)
            q = logits[part].double().log_softmax(-1)
            self.tokens += len(target)
            self.loss -= float(q.gather(1, target).sum())
            if reference is None:
                continue
            p = reference[part].to(q.device).double().log_softmax(-1)
            self.reference_loss -= float(p.gather(1, target).sum())
            terms = torch.where(p == -torch.inf, torch.zeros_like(p), p.exp() * (p - q))
            self.divergences.append(terms.sum(-1).clamp_(min=0).cpu())
            self.same += int((p.argmax(-1) == q.argmax(-1)).sum())

    def result(self, compared):
        perplexity = _exp(self.loss / self.tokens)
        if not compared:
            return Quality(self.tokens, perplexity)
        divergence = torch.cat(self.divergences)
        return Quality(
            self.tokens, perplexity, _exp(self.reference_loss / self.tokens), float(divergence.mean()),
            float(divergence.kthvalue(math.ceil(0.99 * len(divergence))).values), float(divergence.max()),
            self.same / self.tokens,
        )  # fmt: skip


def _exp(x):
    return math.exp(x) if x < 709 else math.inf


@torch.no_grad()
def measure(
    model: torch.nn.Module, ids: torch.Tensor, window: int = 2048, stride: int | None = None, *,
    reference: torch.nn.Module | None = None, progress: Callable[[int, int, str], None] | None = None,
) -> Quality:  # fmt: skip
    """Of a causal language model of transformers, for the tokens ids, int64 [tokens].

    window: tokens that the model sees at once; stride: how far windows are apart, None for window. reference: the model
    to compare with, of the same vocabulary. progress: a function of (done, total, "windows"). ValueError for fewer than
    two tokens, for windows that a model does not take, and for vocabularies that differ.
    """
    stride = window if stride is None else stride
    if window < 2 or not 1 <= stride <= window:
        raise ValueError(f"window must be 2 at least, stride from 1 to window, not {window} and {stride}")
    if len(ids) < 2:
        raise ValueError(f"the text has {len(ids)} tokens: two at least are needed")
    pieces, sums = list(_windows(len(ids), window, stride)), _Sums()
    for done, (begin, end, first) in enumerate(pieces):
        if progress:
            progress(done, len(pieces), "windows")
        own = ids[begin:end]
        logits = _logits(model, own, first - begin)
        other = None if reference is None else _logits(reference, own, first - begin)
        if other is not None and other.shape != logits.shape:
            raise ValueError(f"the vocabularies differ: {logits.shape[-1]} tokens, of the reference {other.shape[-1]}")
        sums.add(logits, other, ids[first:end])
    if progress:
        progress(len(pieces), len(pieces), "windows")
    return sums.result(reference is not None)
