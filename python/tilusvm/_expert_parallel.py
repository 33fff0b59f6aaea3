"""Experts over the ranks of a process group: see parallel."""

from __future__ import annotations

import copy
from typing import NamedTuple

from ._torch import torch

import torch.distributed as dist

from ._route import Routes
from ._stack import Stack
from .experts import MixtureOfExperts


def shard_experts(mixture: MixtureOfExperts, rank: int, world: int) -> MixtureOfExperts:
    """What a rank of `world` has of a mixture: experts from rank * num_experts / world on, whose memory it shares."""
    if not isinstance(mixture, MixtureOfExperts):
        raise TypeError(f"mixture must be a MixtureOfExperts, not {type(mixture).__name__}: quantize it first")
    if world < 1 or not 0 <= rank < world:
        raise ValueError(f"rank must be one of the {world} ranks of world, not {rank}")
    if mixture.num_experts % world:
        raise ValueError(f"the experts, {mixture.num_experts}, must be a multiple of the ranks, {world}")
    share = mixture.num_experts // world
    own = slice(rank * share, (rank + 1) * share)
    made = copy.copy(mixture)
    made.num_experts = share
    made._parameters = {n: torch.nn.Parameter(p.detach()[own], False) for n, p in mixture._parameters.items()}
    made._modules = {name: _part(stack, own) for name, stack in mixture._modules.items()}
    return made


def _part(stack: Stack, own: slice) -> Stack:
    made = copy.copy(stack)
    made.experts = own.stop - own.start
    made._buffers = {name: None if b is None else b[own] for name, b in stack._buffers.items()}
    return made


class Dispatched(NamedTuple):
    """What a rank has of all ranks' tokens, in the layout of DeepEP's dispatch: by rank, and by token of each."""

    x: torch.Tensor  #: [received, hidden]: recv_x, each token once
    ids: torch.Tensor  #: [received, k]: recv_topk_idx, numbers of this rank's experts, -1 for those of others
    weights: torch.Tensor  #: [received, k]: recv_topk_weights, 0 where ids is -1
    tokens: torch.Tensor  #: [sent]: which of its own tokens the rank has sent, by rank that they went to
    sent: list[int]  #: how many to each rank
    received: list[int]  #: how many from each rank

    def counts(self, experts: int) -> list[int]:
        """num_recv_tokens_per_expert_list: how many of the tokens go to each of so many experts."""
        return torch.bincount(self.ids.flatten().long() + 1, minlength=experts + 1)[1:].tolist()


class ExpertParallel(torch.nn.Module):
    """In the place of a MixtureOfExperts of which each rank has a share of the experts: tokens are sent to the ranks of
    their experts, once to each, and what these make of them comes back and is added up, in the order of ranks.

    How many tokens go where is known to the device alone, so that dispatch waits for it. Every rank must call it, with
    any number of tokens.
    """

    def __init__(self, experts: MixtureOfExperts, process_group: dist.ProcessGroup | None = None) -> None:
        """experts: this rank's, as shard_experts makes them; process_group: None for all processes."""
        super().__init__()
        self.experts, self.process_group = experts, process_group

    @classmethod
    def from_mixture(cls, mixture: MixtureOfExperts, process_group: dist.ProcessGroup | None = None) -> ExpertParallel:
        """Cuts a whole mixture, of which only this rank's share is kept."""
        rank, world = dist.get_rank(process_group), dist.get_world_size(process_group)
        part = shard_experts(mixture, rank, world)
        if world > 1:  # the others' memory is not held
            part = copy.deepcopy(part)
        return cls(part, process_group)

    def __deepcopy__(self, memo):
        memo[id(self.process_group)] = self.process_group  # a process group has no copies
        memo[id(self)] = made = self.__class__.__new__(self.__class__)
        made.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return made

    def _exchange(self, x, sent, received):
        out = x.new_empty(sum(received), *x.shape[1:])
        dist.all_to_all_single(out, x.contiguous(), received, sent, group=self.process_group)
        return out

    def dispatch(self, x: torch.Tensor, index: torch.Tensor | Routes, weights: torch.Tensor) -> Dispatched:
        """Of tokens x [tokens, hidden], experts of all ranks index [tokens, k] (of which those that are none go
        nowhere), or what ops.route gave, and weights [tokens, k]."""
        ids = (index.ids if isinstance(index, Routes) else index).long()
        if x.dim() != 2 or ids.shape != weights.shape or ids.dim() != 2 or ids.shape[0] != x.shape[0]:
            raise ValueError(
                f"dispatch: x must be [tokens, hidden], index and weights [tokens, k], not {list(x.shape)}, "
                f"{list(ids.shape)} and {list(weights.shape)}"
            )
        world, share = dist.get_world_size(self.process_group), self.experts.num_experts
        rank_of = torch.where((ids >= 0) & (ids < world * share), ids // share, world)
        goes = torch.zeros(len(x), world + 1, dtype=torch.bool, device=x.device).scatter_(1, rank_of, True)[:, :world]
        to, tokens = goes.t().nonzero(as_tuple=True)
        counts = goes.sum(0)
        told = torch.empty_like(counts)
        dist.all_to_all_single(told, counts, group=self.process_group)
        sent, received = torch.stack([counts, told]).tolist()
        own = rank_of[tokens] == to[:, None]
        ids = torch.where(own, ids[tokens] - to[:, None] * share, -1)
        weights = torch.where(own, weights[tokens], 0)
        parts = (self._exchange(each, sent, received) for each in (x[tokens], ids, weights))
        return Dispatched(*parts, tokens, sent, received)

    def combine(self, y: torch.Tensor, given: Dispatched, count: int) -> torch.Tensor:
        """The way back: of what this rank's experts made of the tokens that it received, [received, hidden], the sum
        over the ranks for its own `count` tokens."""
        back = self._exchange(y, given.received, given.sent).float()
        total = torch.zeros(count, y.shape[1], dtype=torch.float32, device=y.device)
        for tokens, part in zip(given.tokens.split(given.sent), back.split(given.sent)):
            total.index_add_(0, tokens, part)  # a token once: no order among them
        return total.to(y.dtype)

    def forward(
        self, hidden_states: torch.Tensor, top_k_index: torch.Tensor | Routes, top_k_weights: torch.Tensor,
    ) -> torch.Tensor:  # fmt: skip
        """As MixtureOfExperts, of the numbers of all ranks' experts."""
        x = hidden_states.reshape(-1, hidden_states.shape[-1])
        given = self.dispatch(x, top_k_index, top_k_weights)
        y = self.experts(given.x, given.ids, given.weights) if len(given.x) else given.x
        return self.combine(y, given, len(x)).view(hidden_states.shape)
