"""Linear layers over several GPUs: the columns, or the rows, of packed weights on the ranks of a process group; and the
experts of mixtures, of which each rank has a share.

A pair of linear layers needs one sum over the ranks: ColumnParallelLinear has a part of the outputs, which what is done
element by element leaves where it is, RowParallelLinear takes them as its part of the inputs and adds up over the
ranks.

    torchrun --nproc-per-node 2 script.py
"""

from __future__ import annotations

import copy
import fnmatch
from collections.abc import Mapping

from ._torch import torch

import torch.distributed as dist

from . import ops, quantize
from ._all_reduce import AllReduce
from ._narrow import bytes_of
from ._expert_parallel import Dispatched, ExpertParallel, shard_experts
from .experts import MixtureOfExperts
from .nn import Linear, Linear8

__all__ = [
    "AllReduce",
    "ColumnParallelLinear",
    "Dispatched",
    "ExpertParallel",
    "RowParallelLinear",
    "parallelize_",
    "shard",
    "shard_experts",
]


def _part(size, rank, world, name):
    if size % world:
        raise ValueError(f"{name} must be a multiple of the number of ranks, {world}, not {size}")
    return size // world * rank, size // world * (rank + 1)


@torch.no_grad()
def shard(linear: Linear, rank: int, world: int, axis: str) -> Linear:
    """What a rank of `world` has of a Linear: axis "out", a part of the outputs; "in", of the inputs.

    Packed weights are cut as they are where the part is whole granules: multiples of 64 outputs, and of
    ops.group_rows inputs; other parts of outputs are packed anew, from the same codes. A part of the inputs must be
    whole granules without an order (ValueError); the bias is then that of rank 0. Parts of mapped tensors are read
    alone.
    """
    if not isinstance(linear, Linear):
        raise TypeError(f"linear must be a tilusvm.nn.Linear, not {type(linear).__name__}: quantize it first")
    if world < 1 or not 0 <= rank < world:
        raise ValueError(f"rank must be one of the {world} ranks of world, not {rank}")
    if axis not in ("out", "in"):
        raise ValueError(f'axis must be "out" or "in", not {axis!r}')
    if world == 1:
        return linear
    outputs, inputs = linear.out_features, linear.in_features
    bias, zeros = linear.bias, linear.zeros
    made = {"type": linear.type, "group": linear.group, "batch_invariant": linear.batch_invariant}
    if axis == "in" and linear.order is not None:
        raise ValueError("inputs that have an order (act-order) cannot be cut: a part of the rows reads all of them")
    if axis == "in":
        rows = ops.group_rows(linear.group)
        begin, end = _part(inputs, rank, world, "in_features")
        if begin % rows or end % rows:
            raise ValueError(f"a part of in_features, {end - begin}, must be a multiple of {rows}")
        granules = slice(None), slice(begin // rows, end // rows)
        groups = slice(begin // linear.group, end // linear.group) if linear.group else slice(None)
        own = slice(None)
        inputs = end - begin
        bias = bias if rank == 0 else None
    else:
        begin, end = _part(outputs, rank, world, "out_features")
        own, groups = slice(begin, end), slice(None)
        granules = slice(begin // 64, end // 64), slice(None)
        outputs = end - begin
        if outputs % 64:
            codes = quantize.unpack(linear.packed, linear.type, linear.group, linear.scales.shape[1])
            parts = [_filled(t, begin, end) for t in (codes, linear.scales, zeros, bias)]
            made["dtype"] = linear.dtype
            part = Linear.from_codes(*parts, in_features=inputs, out_features=outputs, **made)
            part.order, part.multiplier = linear.order, linear.multiplier
            return part
    made |= {"zeros": zeros is not None, "dtype": linear.dtype, "scale_dtype": linear.scale_dtype, "device": "meta"}
    part = Linear(inputs, outputs, bias is not None, **made)
    part.packed = linear.packed[granules].contiguous()
    part.scales = linear.scales[groups, own].contiguous()
    part.zeros = None if zeros is None else zeros[groups, own].contiguous()
    part.bias = None if bias is None else bias[own].contiguous()
    part.order, part.multiplier = linear.order, linear.multiplier
    return part


def _filled(tensor, begin, end):
    """Columns from begin to end, filled up to a multiple of 8 with zeros."""
    if tensor is None:
        return None
    part = bytes_of(tensor)[..., begin:end].contiguous()
    return torch.nn.functional.pad(part, (0, -(end - begin) % 8)).view(tensor.dtype)


class _Parallel(torch.nn.Module):
    axis: str

    def __init__(self, linear: Linear, process_group=None, **options):
        """linear: this rank's part, as shard makes it; process_group: None for all processes."""
        super().__init__()
        self.linear, self.process_group = linear, process_group
        self._options(**options)

    @classmethod
    def from_linear(cls, linear, process_group=None, **options):
        """Cuts a whole Linear, of which only this rank's part is kept."""
        rank, world = dist.get_rank(process_group), dist.get_world_size(process_group)
        return cls(shard(linear, rank, world, cls.axis), process_group, **options)

    @classmethod
    @torch.no_grad()
    def from_float(cls, linear, process_group=None, *, options=None, **quantization):
        """Quantizes this rank's part of a torch.nn.Linear; quantization: the arguments of nn.Linear.from_float.

        options: those of the class. The codes are those of the whole layer's.
        """
        rank, world = dist.get_rank(process_group), dist.get_world_size(process_group)
        along = 0 if cls.axis == "out" else 1
        begin, end = _part(linear.weight.shape[along], rank, world, f"{cls.axis}_features")
        part = torch.nn.Linear(1, 1, bias=False, device="meta")
        part.weight = torch.nn.Parameter(linear.weight.narrow(along, begin, end - begin), requires_grad=False)
        if linear.bias is not None and along == 0:
            part.bias = torch.nn.Parameter(linear.bias[begin:end], requires_grad=False)
        elif linear.bias is not None and rank == 0:
            part.bias = torch.nn.Parameter(linear.bias.detach(), requires_grad=False)
        size = quantization.get("group", 128)
        if along == 1 and ((end - begin) % ops.group_rows(size) or not size):
            rows = f"a multiple of {ops.group_rows(size)}" if size else "of more than one group"
            raise ValueError(f"a part of in_features, {end - begin}, must be {rows}")
        return cls(Linear.from_float(part, **quantization), process_group, **(options or {}))

    def __deepcopy__(self, memo):
        memo[id(self.process_group)] = self.process_group  # a process group has no copies
        memo[id(self)] = made = self.__class__.__new__(self.__class__)
        if (shared := getattr(self, "all_reduce", None)) is not None:
            memo[id(shared)] = shared  # nor has memory that other ranks write to
        made.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return made


class ColumnParallelLinear(_Parallel):
    """y = x W^T + bias with a part of the outputs on each rank; x is whole on every rank.

    gather_output: whether every rank gets the whole y; else its own part.
    """

    axis = "out"

    def _options(self, gather_output=False):
        self.gather_output = gather_output

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        if not self.gather_output:
            return y
        world = dist.get_world_size(self.process_group)
        parts = torch.empty((world * y.shape[0], *y.shape[1:]), dtype=y.dtype, device=y.device)
        dist.all_gather_into_tensor(parts, y.contiguous(), group=self.process_group)
        return parts.view(world, *y.shape).movedim(0, -2).flatten(-2)

    def extra_repr(self) -> str:
        return f"gather_output={self.gather_output}"


class RowParallelLinear(_Parallel):
    """y = x W^T + bias with a part of the inputs on each rank; every rank gets the whole y.

    scatter_input: whether x is whole, and each rank takes its part; else x is the rank's part already. reduce_dtype:
    the type in which the ranks' sums are added up, torch.float32, or None for that of x, which is half the traffic.
    all_reduce: an AllReduce of the process group, for the sums that it takes; None: torch.distributed has all of them.
    """

    axis = "in"

    def _options(self, scatter_input=False, reduce_dtype=None, all_reduce=None):
        if reduce_dtype not in (None, torch.float32):
            raise TypeError(f"reduce_dtype must be None or torch.float32, not {reduce_dtype}")
        if not isinstance(all_reduce, AllReduce | None):
            raise TypeError(f"all_reduce must be an AllReduce or None, not {type(all_reduce).__name__}")
        self.scatter_input, self.reduce_dtype, self.all_reduce = scatter_input, reduce_dtype, all_reduce

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.scatter_input:
            part = self.linear.in_features
            x = x.narrow(-1, part * dist.get_rank(self.process_group), part)
        y = self.linear(x, out_dtype=self.reduce_dtype).contiguous()
        if self.all_reduce is not None and self.all_reduce.takes(y):
            y = self.all_reduce(y)
        else:
            dist.all_reduce(y, group=self.process_group)
        return y if self.reduce_dtype is None else y.to(x.dtype)

    @property
    def fuses(self) -> bool:
        """Does it take add_to?"""
        plain = not self.scatter_input and self.reduce_dtype is None
        return plain and type(self.linear) is Linear and self.linear.fuses

    def add_to(
        self, residual: torch.Tensor, x: torch.Tensor, gain: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """ops.matmul_lowbit_add with the whole layer: residual [m, out_features] becomes the sum with y, in place, on
        every rank; (moments, gained) for the norm of it. An AllReduce is one launch behind the product."""
        y = self.linear(x)
        if self.all_reduce is not None and self.all_reduce.adds(y):
            return self.all_reduce.add_to(residual, y, gain)
        dist.all_reduce(y, group=self.process_group)
        residual += y
        squares = torch.nn.functional.pad(residual.float().square(), (0, -residual.shape[1] % 64))
        return squares.view(*squares.shape[:-1], -1, 64).sum(-1), residual * gain

    def extra_repr(self) -> str:
        return f"scatter_input={self.scatter_input}, reduce_dtype={self.reduce_dtype}"


_KINDS = {
    "column": (ColumnParallelLinear.from_linear, {}),
    "column, gathered": (ColumnParallelLinear.from_linear, {"gather_output": True}),
    "row": (RowParallelLinear.from_linear, {}),
    "row, scattered": (RowParallelLinear.from_linear, {"scatter_input": True}),
    "experts": (ExpertParallel.from_mixture, {}),
}


def parallelize_(
    model: torch.nn.Module, plan: Mapping[str, str], process_group: dist.ProcessGroup | None = None,
) -> torch.nn.Module:  # fmt: skip
    """Replaces the nn.Linear and MixtureOfExperts modules that the plan names by this rank's parts, in place; returns
    the model.

    plan: a mapping of name patterns to "column", "row", "column, gathered" or "row, scattered" for linear layers, and
    "experts" for mixtures, such as {"*.[qkv]_proj": "column", "*.o_proj": "row", "*.experts": "experts"}; the first
    pattern that fits is taken. A model whose tensors are mapped (storage.load without a device) reads its own parts
    alone. The sums of row layers are those of one AllReduce, where the ranks can have it.
    """
    all_reduce = None
    for name, module in list(model.named_modules()):
        kind = next((k for p, k in plan.items() if fnmatch.fnmatchcase(name, p)), None)
        if isinstance(module, Linear8) and kind is not None:
            hint = "and layers with those of 16 bits alone are cut: leave it out of the plan"
            raise TypeError(f"{name} rounds its activations, {hint}")
        if not isinstance(module, (Linear, MixtureOfExperts)) or kind is None:
            continue
        if kind not in _KINDS or (kind == "experts") != isinstance(module, MixtureOfExperts):
            kinds = [each for each in _KINDS if (each == "experts") == isinstance(module, MixtureOfExperts)]
            raise ValueError(f"the plan for {name} must be {' or '.join(map(repr, kinds))}, not {kind!r}")
        make, options = _KINDS[kind]
        if kind.startswith("row"):
            all_reduce = all_reduce or AllReduce.later(process_group)
            options = {**options, "all_reduce": all_reduce}
        parent, _, last = name.rpartition(".")
        try:
            setattr(model.get_submodule(parent), last, make(module, process_group, **options))
        except ValueError as error:
            error.add_note(f"in the module {name}")
            raise
    return model
