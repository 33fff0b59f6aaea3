"""Sums over the ranks of one host by programs/all_reduce.vasm: each rank writes into the memory of the others."""

from __future__ import annotations

import os
import socket
import tempfile

from ._torch import torch

import torch.distributed as dist

from . import program
from ._registry import FLOATS, library
from ._signature import TYPES

__all__ = ["AllReduce"]

MOST_RANKS = 8
BLOCKS, TILE = 64, 1024  # of the program: tensors of other shapes are refused
#: Bytes of a tensor beyond which NCCL is asked: it moves halves, the program floats of 32 bits.
MOST_BYTES = 256 << 10


# What it does to turns and inboxes is not told: nothing but this operator reads them, and none may be another's copy.
library.define("all_reduce(Tensor x, Tensor turns, Tensor[] inboxes, int rank) -> Tensor")


def _all_reduce(x, turns, inboxes, rank):
    out = torch.empty_like(x)
    entry = program("all_reduce", T=TYPES[x.dtype], RANKS=len(inboxes))["all_reduce"]
    entry(x.numel(), rank, x.view(-1), turns, inboxes[rank], *inboxes, out.view(-1))
    return out


for _key in ("CPU", "CUDA"):
    library.impl("all_reduce", _all_reduce, _key)


@torch.library.register_fake("tilusvm::all_reduce", lib=library)
def _(x, turns, inboxes, rank):
    return torch.empty_like(x)


class AllReduce:
    """The sum of a tensor over the ranks of a process group, in float32 and in the order of the ranks: the same bits on
    all of them. For tensors of a few tokens on ranks of one host.

    On GPUs the ranks' memory is torch's symmetric memory, which needs peer access; on the CPU a file that the processes
    share. All ranks must call alike, on one stream each. Works in CUDA graphs.
    """

    def __init__(
        self, process_group: dist.ProcessGroup | None = None, device: torch.device | str | None = None
    ) -> None:
        """Collective: all ranks of the group make one. RuntimeError, on all of them, where they cannot share memory."""
        self._begin(process_group)
        if reason := self._connect(torch.device(device if device is not None else "cpu")):
            raise RuntimeError(f"the ranks cannot share memory: {reason}")

    @classmethod
    def later(cls, process_group: dist.ProcessGroup | None = None) -> AllReduce:
        """One that shares memory at the first call of `takes`, on the tensor's device; where the ranks cannot, it takes
        no tensor."""
        made = cls.__new__(cls)
        made._begin(process_group)
        return made

    def _begin(self, group):
        self.process_group, self.rank, self.world = group, dist.get_rank(group), dist.get_world_size(group)
        self.device, self.inboxes = None, []

    def _connect(self, device):
        """"" or the reason why not, the same on all ranks."""
        self.device = torch.device("cuda", torch.cuda.current_device()) if device.type == "cuda" else device
        reason, inboxes = "", []
        if self.world > MOST_RANKS:
            reason = f"{self.world} ranks are more than {MOST_RANKS}"
        elif len(set(_gather(socket.gethostname(), self.process_group))) > 1:
            reason = "the ranks are on several hosts"
        else:
            shape = (2, 2, self.world, BLOCKS, TILE)
            share = _peers_of_gpus if device.type == "cuda" else _peers_of_processes
            try:
                self._keep, inboxes = share(shape, self.process_group, self.device)
            except (RuntimeError, OSError, ImportError) as error:
                reason = str(error).splitlines()[0]
        reasons = [r for r in _gather(reason, self.process_group) if r]
        self.turns = torch.zeros(BLOCKS, dtype=torch.int32, device=self.device)
        self.inboxes = [] if reasons else inboxes
        return reasons[0] if reasons else ""

    def takes(self, x: torch.Tensor) -> bool:
        """Is it for such a tensor? What is longer than MOST_BYTES is left to torch.distributed."""
        if self.device is None and not torch.compiler.is_compiling():
            self._connect(x.device)
        return (
            bool(self.inboxes) and x.device == self.device and x.dtype in FLOATS and x.is_contiguous()
            and x.numel() * x.element_size() <= MOST_BYTES
        )  # fmt: skip

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """The sum, a tensor of its own."""
        if x.dtype not in FLOATS:
            raise TypeError(f"x must be a tensor of float16, bfloat16 or float32, not {x.dtype}")
        if x.device != self.device:
            raise ValueError(f"x must be on {self.device}, not on {x.device}")
        return torch.ops.tilusvm.all_reduce(x.contiguous(), self.turns, self.inboxes, self.rank)


def _gather(value, group):
    values = [None] * dist.get_world_size(group)
    dist.all_gather_object(values, value, group)
    return values


def _peers_of_gpus(shape, group, device):
    """What keeps the memory alive, and each rank's inbox, zeroed."""
    import torch.distributed._symmetric_memory as symmetric

    group = group if group is not None else dist.group.WORLD
    own = symmetric.empty(shape, dtype=torch.float32, device=device).zero_()
    handle = symmetric.rendezvous(own, group.group_name)
    torch.cuda.synchronize(device)
    dist.barrier(group)
    return (own, handle), [handle.get_buffer(r, shape, torch.float32) for r in range(handle.world_size)]


def _peers_of_processes(shape, group, device):
    folder = "/dev/shm" if os.path.isdir("/dev/shm") else None
    count = torch.Size(shape).numel()
    file, path = tempfile.mkstemp(prefix="tilusvm-", dir=folder)
    try:
        os.ftruncate(file, 4 * count)
        paths = _gather(path, group)
        inboxes = [torch.from_file(p, shared=True, size=count, dtype=torch.float32).view(shape) for p in paths]
        dist.barrier(group)
    finally:
        os.close(file)
        os.unlink(path)
    return None, inboxes
