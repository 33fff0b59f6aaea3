"""How an operator of this package is made known to torch: its schema, what runs, what torch.compile sees, autocast.

A call checks nothing: the kernels check what they are given, and where one refuses, Operator.check looks for the
argument to blame. What torch.compile and FakeTensor see checks first of all.
"""

from __future__ import annotations

import functools
import inspect
import typing

from ._torch import torch

from . import Error, program
from ._signature import TYPES, Launch, function_of

library = torch.library.Library("tilusvm", "DEF")

#: Shapes of operators that work row by row: m rows are any leading dimensions.
ROWS = {"m": "..."}
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


def need_choice(op, name, value, allowed):
    """TypeError or ValueError where the operator does not take the value, or type."""
    if value not in allowed:
        kind = TypeError if isinstance(allowed[0], torch.dtype) else ValueError
        told = [str(one) for one in allowed]
        told = " or ".join(told) if kind is TypeError else f"{', '.join(told[:-1])} or {told[-1]}"
        raise kind(f"{op}: {name} must be {told}, not {value if kind is TypeError else repr(value)}")


def check_row(op, x, name="x", columns=20):
    """ValueError where x has not 1 to 2^20 columns, or another power of 2 of them."""
    if x.dim() < 1 or not 1 <= x.shape[-1] <= 1 << columns:
        raise ValueError(f"{op}: {name} must have 1 to 2^{columns} columns, not the shape {list(x.shape)}")


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


_REFUSALS = (Error, ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
_SCHEMA_TYPES = {
    torch.Tensor: "Tensor", torch.dtype: "ScalarType", str: "str", int: "int", float: "float", bool: "bool",
    type(None): "()",
}  # fmt: skip


def _schema_type(hint):
    """What a schema calls a type of Python; str where it knows none."""
    if typing.get_origin(hint) is tuple:
        return f"({', '.join(map(_schema_type, typing.get_args(hint)))})"
    optional = type(None) in typing.get_args(hint)
    return _SCHEMA_TYPES.get(typing.get_args(hint)[0] if optional else hint, "str") + "?" * optional


class Operator:
    """tilusvm::NAME, of a function that says by its parameters what it takes and gives; it needs no body.

    program, entry: the kernel. Constants of the program, in capitals, and scalars of the kernel that neither arguments
    nor the shapes of arguments give, come by keyword:

        T=("x", FLOATS)      the type of the tensor x, of those that it may have; of an optional tensor: is there one?
        GROUP="group"        the argument, of another type; ("group", choices): one of these
        CAP=lambda cap: ...  computed from arguments
        LSE=True             always

    What is None or False is left to the program. constants: a function that gives a dictionary of more.
    names: arguments that the kernel calls otherwise. shapes: extents of the kernel and what arguments have in their
    place, or a function that makes it of the constants: {"m": "..."} are any leading dimensions, whose product is m.
    flat: arguments of any shape. writes: arguments that are written. check: raises what is wrong with the shapes, of
    the operator's name and the arguments that it names; what the kernel's parameters say is checked after it.
    multiplies: autocast gives the first tensor a half. convert: functions of arguments whose types torch does not
    know, and "return", of what is returned and arguments, gives it the types that were asked for. tensors_first: in the
    schema. programs: so many are kept. route: a function of what launches and the constants, which gives what launches
    in its place.
    """

    def __init__(
        self, function, program, entry=None, *, constants=None, names={}, shapes={}, flat=(), writes=(), check=None,
        multiplies=False, convert={}, tensors_first=False, programs=None, route=None, **values,
    ):  # fmt: skip
        hints = typing.get_type_hints(function)
        parameters = list(inspect.signature(function).parameters.values())
        self.name, self.types = function.__name__, {p.name: _schema_type(hints[p.name]) for p in parameters}
        if tensors_first:
            parameters.sort(key=lambda p: not self.types[p.name].startswith("Tensor"))
        self.names = [p.name for p in parameters]
        self.tensors = [name for name in self.names if self.types[name].startswith("Tensor")]
        self.optional = {name for name in self.tensors if self.types[name] == "Tensor?"}
        self.program, self.entry = program, entry or program
        self.constants, self.shapes, self.flat, self.writes = constants, shapes, flat, writes
        self.own_check, self.multiplies, self.route = check, multiplies, route
        self._kernel_names = names
        self._read(values)
        self.launch_of = functools.lru_cache(maxsize=programs)(self._launch)
        self._define(parameters, _schema_type(hints["return"]))
        self._write()

    # ---- what is declared ----

    def _read(self, values):
        self.functions, self.keys, self.scalars = {}, {}, {}
        self.choices, self.allowed = {}, {}  # of arguments, of constants
        for name, value in values.items():
            if isinstance(value, tuple):
                value, self.allowed[name] = value
                self.choices[value] = self.allowed[name]
            (self.keys if name.isupper() else self.scalars)[name] = self._source(name, value)
        self.given = list(inspect.signature(self.constants).parameters) if self.constants else []

    def _source(self, name, value):
        """Of a constant or scalar, in the operator's arguments."""
        if callable(value):
            self.functions[f"find_{name}"] = value
            return f"find_{name}({', '.join(inspect.signature(value).parameters)})"
        kind = self.types.get(value, "") if isinstance(value, str) else ""
        return {"Tensor": f"{value}.dtype", "Tensor?": f"{value} is not None"}.get(kind, str(value))

    def argument_of(self, parameter):
        """The name of the argument that a parameter of the kernel is."""
        return self._kernel_names.get(parameter, parameter)

    def scalar(self, name):
        """The source of a scalar of the kernel that an argument is, or makes; None of one that shapes tell."""
        return self.scalars.get(name, name if name in self.names else None)

    def kernel(self, *key):
        """The constants of the program, and its kernel."""
        made = dict(zip(self.keys, key[len(self.given) :]))
        made = {name: value for name, value in made.items() if value is not None and value is not False}
        for name in made.keys() & self.allowed.keys():  # a program may compute with others, too
            need_choice(self.name, name, made[name], self.allowed[name])
        made = {name: TYPES[value] if isinstance(value, torch.dtype) else value for name, value in made.items()}
        if self.constants:
            made |= self.constants(*key[: len(self.given)])
        return made, program(self.program, **made)[self.entry]

    def _launch(self, *key):
        constants, kernel = self.kernel(*key)
        shapes = self.shapes(constants) if callable(self.shapes) else self.shapes
        launch = Launch(self, kernel, shapes)
        if self.route:
            launch.run = self.route(launch.run, constants)
        return launch

    # ---- what torch is told ----

    def _define(self, parameters, result):
        texts = []
        for p in reversed(parameters):
            default = "" if p.default is p.empty or texts and "=" not in texts[0] else f"={p.default!r}"
            if isinstance(p.default, torch.dtype):
                default = ""
            kind = self.types[p.name].replace("Tensor", "Tensor(a!)") if p.name in self.writes else self.types[p.name]
            texts.insert(0, f"{kind} {p.name}{default}".replace("'", '"'))
        schema = f"{self.name}({', '.join(texts)}) -> {result}"
        library.define(schema, tags=(torch.Tag.pt2_compliant_tag, torch.Tag.needs_exact_strides))
        for key in ("CPU", "CUDA"):
            library.impl(self.name, self._run, key)
        self.op = getattr(torch.ops.tilusvm, self.name).default
        self.defaults = [argument.default_value for argument in self.op._schema.arguments]
        torch.library.register_fake(f"tilusvm::{self.name}", self._fake, lib=library)
        for device in ("cuda", "cpu"):
            key = getattr(torch._C.DispatchKey, f"Autocast{device.upper()}")
            library.impl(self.name, self._autocast(device, key), f"Autocast{device.upper()}")

    def _whole(self, args, kwargs):
        """All arguments in their order: the dispatcher leaves out those at their defaults."""
        rest = zip(self.names[len(args) :], self.defaults[len(args) :])
        return (*args, *(kwargs.get(name, default) for name, default in rest))

    def _run(self, *args, **kwargs):
        return self.direct(*self._whole(args, kwargs))

    def _fake(self, *args, **kwargs):
        args = self._whole(args, kwargs)
        self.check(*args)
        return self.find(*args).fake(*args)

    def _autocast(self, device, key):
        keys = torch._C.DispatchKeySet(key)

        def kernel(*args, **kwargs):
            args = self._cast(torch.get_autocast_dtype(device), list(self._whole(args, kwargs)))
            with torch._C._ExcludeDispatchKeyGuard(keys):
                return self.op(*args)

        return kernel

    def _cast(self, dtype, args):
        """Floating tensors become what the kernel takes, of the type of the first one; but one that is written cannot
        be another, and the first gets its type."""
        fixed = [tensor.dtype for name, tensor in zip(self.names, args) if name in self.writes]
        try:
            if args[0].dtype in FLOATS and fixed and fixed[0] in FLOATS:
                args[0] = args[0].to(fixed[0])
            elif args[0].dtype == torch.float32 and self.multiplies:
                args[0] = args[0].to(dtype)
            wanted = self.find(*args).dtypes
        except _REFUSALS:
            return args  # the operator says why
        for i, name in enumerate(self.names):
            if name in wanted and name not in self.writes and args[i].dtype in FLOATS and wanted[name] in FLOATS:
                args[i] = args[i].to(wanted[name])
        return args

    # ---- what runs ----

    def _write(self):
        """direct, which launches, and find, which only finds the launch, of all arguments, in the schema's order."""
        every = ", ".join(self.names)
        key = ", ".join([*self.given, *self.keys.values()])
        source = f"def find({every}):\n    return launch_of({key})\n"
        self.find = function_of(f"{self.name}.find", source, {**self.functions, "launch_of": self.launch_of})
        source = (
            f"def direct({every}):\n    try:\n        return launch_of({key}).run({every})\n"
            f"    except refusals:\n        blame({every})\n        raise\n"
        )
        values = {"launch_of": self.launch_of, "refusals": _REFUSALS, "blame": self._blame}
        self.direct = function_of(f"{self.name}.direct", source, {**self.functions, **values})

    def _blame(self, *args):
        """Names the first argument that is to blame where a kernel refuses; else it is the kernel's own error."""
        self.check(*args)
        need_aligned(self.name, **dict(zip(self.names, args)))

    def check(self, *args):
        """Raises TypeError or ValueError that names an argument that is not as it must be."""
        given = dict(zip(self.names, args))
        tensors = {name: given[name] for name in self.tensors if given[name] is not None or name not in self.optional}
        for name, tensor in tensors.items():
            need_tensor(self.name, name, tensor)
        for name, allowed in self.choices.items():
            value = given[name]
            if isinstance(value, torch.Tensor):
                need_choice(self.name, name, value.dtype, allowed)
            elif value is not None:
                need_choice(self.name, name, value, allowed)
        if self.own_check:
            wanted = list(inspect.signature(self.own_check).parameters)[1:]
            self.own_check(self.name, *(given[name] for name in wanted))
        launch = self.find(*args)
        for name in launch.unused:
            if given[name] is not None:
                raise ValueError(f"{self.name}: {name} must be None with these other arguments, which make no use of it")
        devices = [tensor.device for tensor in tensors.values()]
        most = max(tensors.values(), key=lambda tensor: devices.count(tensor.device))  # where all but one may lie
        for name, shape in launch.expected(given).items():
            known = any(extent is not None for extent in shape)
            more = {"shape": shape} if known else {"dim": len(shape)}
            need(self.name, name, tensors[name], dtype=launch.dtypes[name], like=most, **more)

    def __call__(self, tensor, *args):
        if not isinstance(tensor, torch.Tensor):
            need_tensor(self.name, self.names[0], tensor)
        if plain(tensor) and not (torch.is_grad_enabled() and _wants_gradient((tensor, *args))):
            return self.direct(tensor, *args)
        return self.op(tensor, *args)


def operator(program, entry=None, **declared):
    """Of a function without a body: the operator of its name, and the function that calls it. See Operator."""

    def decorate(function):
        made = Operator(function, program, entry, **declared)
        convert = declared.get("convert", {})
        texts, keyword = [], False
        for p in inspect.signature(function).parameters.values():
            if p.kind is p.KEYWORD_ONLY and not keyword:
                texts.append("*")
                keyword = True
            texts.append(p.name if p.default is p.empty else f"{p.name}=None")
        passed = ", ".join(f"convert_{name}({name})" if name in convert else name for name in made.names)
        result = f"operator({passed})"
        if "return" in convert:
            wanted = list(inspect.signature(convert["return"]).parameters)[1:]
            result = f"convert_return({', '.join([result, *wanted])})"
        source = f"def {made.name}({', '.join(texts)}):\n    return {result}\n"
        values = {"operator": made} | {f"convert_{name}": value for name, value in convert.items()}
        public = functools.update_wrapper(function_of(made.name, source, values), function)
        public.__defaults__, public.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
        public.operator = made
        return public

    return decorate
