"""How an operator of this package is made known to torch: its schema, what runs, what torch.compile sees, autocast.

An operator is a function of its arguments that checks nothing: the kernels check what they are given, and where one
refuses, `checked` looks for the argument to blame. What torch.compile and FakeTensor see checks first of all.
"""

from __future__ import annotations

from ._torch import torch

from . import Error

library = torch.library.Library("tilusvm", "DEF")

# What the programs call the types of torch.
TYPES = {
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float32: "f32",
    torch.float8_e4m3fn: "f8_e4m3",
    torch.float8_e5m2: "f8_e5m2",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.int32: "i32",
}
HALVES = (torch.float16, torch.bfloat16)
FLOATS = (torch.float16, torch.bfloat16, torch.float32)


def need_tensor(op, name, value):
    """TypeError where the value is no tensor of torch with strides, as those are that kernels read."""
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{op}: {name} must be a tensor, not {type(value).__name__}")
    if value.layout is not torch.strided or value.is_nested:
        kind = "nested" if value.is_nested else str(value.layout).removeprefix("torch.")
        raise TypeError(f"{op}: {name} must be a dense tensor, not a {kind} one")


def need(op, name, tensor, *, dtype=None, shape=None, dim=None, like=None):
    """Raises TypeError or ValueError that names the argument where the tensor is not as the operator wants it.

    dtype: one, or several; shape: extents, None for any; dim: number of extents; like: a tensor of the same device.
    """
    need_tensor(op, name, tensor)
    if dtype is not None and tensor.dtype not in (dtype if isinstance(dtype, tuple) else (dtype,)):
        names = " or ".join(str(d) for d in (dtype if isinstance(dtype, tuple) else (dtype,)))
        raise TypeError(f"{op}: {name} must be {names}, not {tensor.dtype}")
    if like is not None and tensor.device != like.device:
        raise ValueError(f"{op}: {name} must be on {like.device}, not on {tensor.device}")
    if tensor.device.type not in ("cuda", "cpu", "meta"):
        raise ValueError(f"{op}: {name} must be on a CUDA device or the CPU, not on {tensor.device}")
    if dim is not None and tensor.dim() != dim:
        raise ValueError(f"{op}: {name} must have {dim} dimensions, not the shape {list(tensor.shape)}")
    if shape is not None:
        if len(shape) != tensor.dim() or any(s is not None and s != e for s, e in zip(shape, tensor.shape)):
            wanted = ", ".join("*" if s is None else str(s) for s in shape)
            raise ValueError(f"{op}: {name} must have the shape [{wanted}], not {list(tensor.shape)}")
    if not tensor.is_contiguous():
        raise ValueError(
            f"{op}: {name} must be contiguous; its strides are {list(tensor.stride())}: pass {name}.contiguous()"
        )


def need_aligned(op, **tensors):
    """ValueError where data does not begin at a multiple of 16 bytes, as of a slice."""
    for name, tensor in tensors.items():
        if isinstance(tensor, torch.Tensor) and tensor.numel() and tensor.data_ptr() % 16:
            raise ValueError(f"{op}: the data of {name} must be aligned to 16 bytes: pass {name}.clone()")


def type_name(op, name, dtype, allowed):
    """What programs call a dtype; TypeError where the operator does not take it."""
    if dtype not in allowed:
        raise TypeError(f"{op}: {name} must be {' or '.join(str(d) for d in allowed)}, not {dtype}")
    return TYPES[dtype]


def plain(tensor) -> bool:
    """May the kernel be called as it is: no compilation, no autocast, no mode or transform that would see an operator?

    The dispatcher costs several microseconds a call, as much as the launch itself.
    """
    return (
        type(tensor) is torch.Tensor
        and not torch.compiler.is_compiling()
        and (tensor.is_cuda or tensor.is_cpu)
        and not torch._C._len_torch_dispatch_stack()
        and torch._C._functorch.peek_interpreter_stack() is None
        and not torch._C._is_any_autocast_enabled()
        and not torch._C._is_tracing()
    )


def _wants_gradient(args) -> bool:
    return any(isinstance(a, torch.Tensor) and a.requires_grad for a in args)


class Operator:
    """tilusvm::NAME. Calls the kernel at once where that is all there is to do, else through torch's dispatcher.

    run, check, fake take the operator's arguments: run does it; check raises what is wrong with them, by argument; fake
    makes the results of the right shapes (check has run). cast gives the arguments as autocast wants them.
    """

    def __init__(self, schema, run, check, fake, cast=None):
        self.name = schema[: schema.index("(")]
        self.run, self.check = run, check
        library.define(schema, tags=(torch.Tag.pt2_compliant_tag, torch.Tag.needs_exact_strides))
        for key in ("CPU", "CUDA"):
            library.impl(self.name, self._run, key)
        self.op = getattr(torch.ops.tilusvm, self.name).default
        defaults = [argument.default_value for argument in self.op._schema.arguments]
        names = [argument.name for argument in self.op._schema.arguments]
        self.first = names[0]

        def whole(args, kwargs):
            """All arguments in their order: the dispatcher leaves out those at their defaults."""
            rest = zip(names[len(args) :], defaults[len(args) :])
            return (*args, *(kwargs.get(name, default) for name, default in rest))

        def fake_(*args, **kwargs):
            args = whole(args, kwargs)
            self.check(*args)
            return fake(*args)

        self.whole = whole
        torch.library.register_fake(f"tilusvm::{self.name}", fake_, lib=library)
        for device in ("cuda", "cpu"):
            key = getattr(torch._C.DispatchKey, f"Autocast{device.upper()}")
            library.impl(self.name, self._autocast(device, key, cast), f"Autocast{device.upper()}")

    def _autocast(self, device, key, cast):
        keys = torch._C.DispatchKeySet(key)

        def kernel(*args, **kwargs):
            args = self.whole(args, kwargs)
            if cast is not None:
                args = cast(torch.get_autocast_dtype(device), *args)
            with torch._C._ExcludeDispatchKeyGuard(keys):
                return self.op(*args)

        return kernel

    def _run(self, *args, **kwargs):
        return self.direct(*self.whole(args, kwargs))

    def direct(self, *args):
        """Runs the kernel. Where it refuses, the first argument to blame is named, by check; else it is the kernel's
        own error."""
        try:
            return self.run(*args)
        except (Error, ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError):
            self.check(*args)
            need_aligned(self.name, **dict(zip((a.name for a in self.op._schema.arguments), args)))
            raise

    def __call__(self, tensor, *args):
        if not isinstance(tensor, torch.Tensor):
            need_tensor(self.name, self.first, tensor)
        if plain(tensor) and not (torch.is_grad_enabled() and _wants_gradient((tensor, *args))):
            return self.direct(tensor, *args)
        return self.op(tensor, *args)


def cast_all(dtype, *args):
    """Autocast of operators that multiply: f32 tensors become what autocast multiplies."""
    first = args[0].dtype if args[0].dtype in HALVES else dtype
    return tuple(a.to(first) if isinstance(a, torch.Tensor) and a.dtype in FLOATS else a for a in args)


def cast_to_first(dtype, *args):
    """Autocast of operators that do not: floating tensors of other types become that of the first."""
    return tuple(a.to(args[0].dtype) if isinstance(a, torch.Tensor) and a.dtype in FLOATS else a for a in args)
