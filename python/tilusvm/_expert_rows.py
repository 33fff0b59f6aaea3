"""Rows of activations, sorted by the expert that each goes to."""

from __future__ import annotations

from typing import NamedTuple

from ._registry import FLOATS, need, need_tensor
from ._route import Routes, bucket
from ._torch import torch
from .ops import embedding

__all__ = ["MOST_EXPERTS", "ExpertRows", "check_offsets", "rows_of"]

MOST_EXPERTS = 512  #: as the programs have room for their offsets


class ExpertRows(NamedTuple):
    """Rows sorted by expert: those of expert e are offsets[e] to offsets[e + 1] - 1. Behind them are those of none."""

    rows: torch.Tensor  #: i32 [count]: which row stands at each place
    offsets: torch.Tensor  #: i32 [experts + 1]
    places: torch.Tensor  #: i32 [count]: the place of each row; count of one of none

    def spread(self, x: torch.Tensor, each: int = 1) -> torch.Tensor:
        """x [count / each, k] as sorted rows [count, k]; each: rows that share one of x."""
        if x.dtype in FLOATS and x.dim() == 2:
            return embedding(self.rows, x.contiguous(), each)
        if x.dim() == 2 and x.element_size() == 1 and x.shape[1] % 4 == 0 and x.is_contiguous():
            return embedding(self.rows, x.view(torch.float32), each).view(x.dtype)  # four at a time, as they are
        return x.index_select(0, self.rows if each == 1 else self.rows // each)

    def owners(self, count: int) -> torch.Tensor:
        """The expert of each of `count` sorted rows, i64; the last one of those of none."""
        place = torch.arange(count, dtype=torch.int32, device=self.offsets.device)
        last = self.offsets.shape[0] - 2
        return torch.searchsorted(self.offsets[1:], place, right=True).clamp(max=last)

    def gather(self, y: torch.Tensor) -> torch.Tensor:
        """The way back; rows without an expert are zeros."""
        count = self.places.shape[0]
        return torch.where((self.places < count)[:, None], y.index_select(0, self.places.clamp(max=count - 1)), 0)


def rows_of(index: torch.Tensor | Routes, experts: int) -> ExpertRows:
    """The rows of each expert for an integer tensor that names the expert of each row, of any shape; without a copy to
    the host. A number that is not 0 to experts - 1 is that of no expert. Routes, of ops.route, are sorted already."""
    if isinstance(index, Routes):
        need("rows_of", "offsets", index.offsets, shape=(experts + 1,))
        return ExpertRows(index.rows, index.offsets, index.places.reshape(-1))
    need_tensor("rows_of", "index", index)
    if index.dtype.is_floating_point or index.dtype == torch.bool:
        raise TypeError(f"rows_of: index must be of integers, not {index.dtype}")
    offsets, rows, places = bucket(index.reshape(-1).int(), buckets=experts)
    return ExpertRows(rows, offsets, places)


def check_offsets(op: str, name: str, stack: torch.Tensor, offsets: torch.Tensor):
    """TypeError or ValueError where the offsets are not those of a stack's matrices, or these are too many."""
    if not 1 <= stack.shape[0] <= MOST_EXPERTS:
        raise ValueError(f"{op}: {name} must be of 1 to {MOST_EXPERTS} experts, not {stack.shape[0]}")
    need(op, "offsets", offsets, dtype=torch.int32, shape=(stack.shape[0] + 1,))
