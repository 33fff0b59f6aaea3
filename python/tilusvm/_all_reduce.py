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
#: Of the program: tensors of other shapes are refused. A place has WORDS words of 32 bits.
BLOCKS, WORDS = 128, 1024


def depth_of(ranks):
    """The places of a block in a launch, of each rank."""
    return 16 // ranks


# What it does to turns and inboxes is not told: nothing but this operator reads them, and none may be another's copy.
library.define("all_reduce(Tensor x, Tensor turns, Tensor[] inboxes, int rank) -> Tensor")
library.define(
    "all_reduce_add(Tensor x, Tensor(a!) residual, Tensor gain, Tensor turns, Tensor[] inboxes, int rank)"
    " -> (Tensor, Tensor)"
)


def _all_reduce(x, turns, inboxes, rank):
    out = torch.empty_like(x)
    entry = program("all_reduce", T=TYPES[x.dtype], RANKS=len(inboxes))["all_reduce"]
    entry(x.numel(), rank, x.view(-1), turns, inboxes[rank], *inboxes, out.view(-1))
    return out


def _all_reduce_add(x, residual, gain, turns, inboxes, rank):
    moments, gained = _fake_add(x)
    entry = program("all_reduce", T=TYPES[x.dtype], RANKS=len(inboxes))["all_reduce_add"]
    entry(*x.shape, rank, x, turns, inboxes[rank], *inboxes, residual, gain, moments, gained)
    return moments, gained


def _fake_add(x, *_):
    return x.new_empty((x.shape[0], -(-x.shape[1] // 64)), dtype=torch.float32), torch.empty_like(x)


for _key in ("CPU", "CUDA"):
    library.impl("all_reduce", _all_reduce, _key)
    library.impl("all_reduce_add", _all_reduce_add, _key)
torch.library.register_fake("tilusvm::all_reduce", lambda x, *_: torch.empty_like(x), lib=library)
torch.library.register_fake("tilusvm::all_reduce_add", _fake_add, lib=library)


class AllReduce:
    """The sum of a tensor over the ranks of a process group, in float32 and in the order of the ranks: the same bits on
    all of them. For tensors of up to 8 MB on ranks of one host.

    On GPUs the ranks' memory is torch's symmetric memory, 32 MB of each, which needs peer access; on the CPU a file
    that the processes share. All ranks must call alike, on one stream each. Works in CUDA graphs.
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
            shape = (2, 2, self.world, BLOCKS, depth_of(self.world), WORDS)
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
        """Is it for such a tensor? What is longer than its memory is left to torch.distributed."""
        tiles = -(-x.numel() * x.element_size() // (4 * WORDS))
        return self._shares(x) and tiles <= self.world * BLOCKS * depth_of(self.world)

    def adds(self, x: torch.Tensor) -> bool:
        """Does add_to take such a tensor?"""
        if x.dim() != 2 or x.shape[1] % 8:
            return False
        tiles = x.shape[0] * -(-x.shape[1] * x.element_size() // (4 * WORDS))
        return self._shares(x) and tiles <= BLOCKS * depth_of(self.world)

    def _shares(self, x):
        if self.device is None and not torch.compiler.is_compiling():
            self._connect(x.device)
        return len(self.inboxes) > 0 and x.device == self.device and x.dtype in FLOATS and x.is_contiguous()

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """The sum, a tensor of its own."""
        if x.dtype not in FLOATS:
            raise TypeError(f"x must be a tensor of float16, bfloat16 or float32, not {x.dtype}")
        if x.device != self.device:
            raise ValueError(f"x must be on {self.device}, not on {x.device}")
        return torch.ops.tilusvm.all_reduce(x.contiguous(), self.turns, self.inboxes, self.rank)

    def add_to(
        self, residual: torch.Tensor, x: torch.Tensor, gain: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Adds the sum of x [m, n] to the residual [m, n], in place, rounded once; what ops.matmul_lowbit_add gives:
        (moments, gained) for the RMS norm of the new residual, as ops.matmul_lowbit_normed takes them. x, residual and
        gain [n] are of one type and contiguous, n is a multiple of 8."""
        return torch.ops.tilusvm.all_reduce_add(x, residual, gain, self.turns, self.inboxes, self.rank)


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
