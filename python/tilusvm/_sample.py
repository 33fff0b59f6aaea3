"""The operator that draws tokens: see ops."""

from __future__ import annotations

import functools
import math

from . import program
from ._registry import FLOATS, Operator, need, type_name
from ._torch import torch


@functools.lru_cache(maxsize=64)  # a program for each top_k, which callers choose
def _sample_kernel(dtype, top_k):
    return program("sample", T=type_name("sample", "logits", dtype, FLOATS), TOPK=top_k)["sample"]


def _sample(logits, temperature, top_k, top_p, seed, offset):
    out = torch.empty(logits.shape[:-1], dtype=torch.int32, device=logits.device)
    m, n = math.prod(logits.shape[:-1]), logits.shape[-1]
    kernel = _sample_kernel(logits.dtype, top_k if top_k < n else 0)
    kernel(m, n, seed, offset, temperature, top_p, logits.view(m, n), out.view(m))
    return out


def _is_integer(value):
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def check_sampling(op: str, temperature, top_k, top_p, seed):
    """TypeError or ValueError where tokens cannot be drawn so."""
    if not _is_number(temperature) or not _is_number(top_p):
        name, value = ("top_p", top_p) if _is_number(temperature) else ("temperature", temperature)
        raise TypeError(f"{op}: {name} must be a number, not {value!r}")
    if not 0 <= temperature < math.inf:
        raise ValueError(f"{op}: temperature must be a finite number from 0, not {temperature!r}")
    if not 0 < top_p <= 1:
        raise ValueError(f"{op}: top_p must be above 0 and at most 1, which leaves all, not {top_p!r}")
    if not _is_integer(top_k) or not _is_integer(seed):
        name, value = ("seed", seed) if _is_integer(top_k) else ("top_k", top_k)
        raise TypeError(f"{op}: {name} must be an integer, not {value!r}")
    if top_k < 0:
        raise ValueError(f"{op}: top_k must be a number of tokens from 1, or 0 for all, not {top_k!r}")
    if not 0 <= seed < 1 << 63:
        raise ValueError(f"{op}: seed must be from 0 to 2^63 - 1, not {seed!r}")


def _check_sample(logits, temperature, top_k, top_p, seed, offset):
    need("sample", "logits", logits, dtype=FLOATS)
    if logits.dim() < 1 or not 1 <= logits.shape[-1] <= 1 << 20:
        raise ValueError(f"sample: logits must have 1 to 2^20 columns, not the shape {list(logits.shape)}")
    check_sampling("sample", temperature, top_k, top_p, seed)
    if not _is_integer(offset) or not 0 <= offset < 1 << 63:
        raise ValueError(f"sample: offset must be an integer from 0 to 2^63 - 1, not {offset!r}")


_sample_op = Operator(
    "sample(Tensor logits, float temperature=1.0, int top_k=0, float top_p=1.0, int seed=0, int offset=0) -> Tensor",
    _sample,
    _check_sample,
    lambda logits, *rest: logits.new_empty(logits.shape[:-1], dtype=torch.int32),
)


def sample(
    logits: torch.Tensor, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0, seed: int = 0, offset: int = 0,
) -> torch.Tensor:  # fmt: skip
    """A token for each row of logits, a float [..., n], n up to 2^20: i32 [...].

    Of softmax(logits / temperature) top_k leaves the tokens of the top_k greatest logits, 0: all; top_p, above 0 and at
    most 1, of these the fewest whose probabilities add up to top_p of theirs; tokens that are as likely as the last of
    them are left, too. temperature 0 takes the greatest logit. Row i is drawn by the random number offset + i of the
    seed, whatever the other rows are: the next call's offset is offset + rows, or beyond. A top_k is a program of its
    own, which is compiled when it is first used. A CUDA graph replays the seed and the offset that it was captured
    with: draw behind it.
    """
    check_sampling("sample", temperature, top_k, top_p, seed)
    return _sample_op(logits, temperature, top_k, top_p, seed, offset)
