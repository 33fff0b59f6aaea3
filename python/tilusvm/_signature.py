"""What the parameters of a kernel say of an operator: its launch, its results, and the shapes of its arguments.

Nothing of that is stated twice. A tensor parameter of the kernel is the operator's argument of that name, or a result;
a scalar parameter is an argument, or the number that the shapes of the arguments, as the kernel declares them, make it:
with x: [m, 2 * n] n is half of the columns of x. What is found is written down as a function of Python, once for each
kernel, so that a call of an operator costs what one written by hand does.
"""

from __future__ import annotations

import ast
import linecache
import math
import re

from ._torch import torch

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
#: Words of bits are int32, as torch computes little with uint32; scales that are powers of two are uint8.
_DTYPES = {name: dtype for dtype, name in TYPES.items()} | {"u32": torch.int32, "e8m0": torch.uint8}

_FUNCTIONS = {
    "cdiv": lambda a, b: -(-a // b), "max": max, "min": min, "prod": math.prod, "uint32": torch.uint32,
    "empty_like": torch.empty_like,
}  # fmt: skip
_INVERSE = {ast.Add: "-", ast.Sub: "+", ast.Mult: "//", ast.FloorDiv: "*"}


def function_of(name: str, source: str, values: dict):
    """The function that a text of Python defines, the last part of the name; values: what it names."""
    file = f"<tilusvm.{name}>"
    linecache.cache[file] = len(source), None, source.splitlines(True), file  # for tracebacks
    scope = {**_FUNCTIONS, **values}
    exec(compile(source, file, "exec"), scope)
    return scope[name.rpartition(".")[2]]


def _extents(text: str) -> list[str]:
    """ "[cdiv(n, 64), k / 32]" as expressions of Python, in which names of the kernel begin with an underscore."""
    text = re.sub(r"\b[A-Za-z_]\w*\b(?!\()", r"_\g<0>", text[1:-1]).replace("/", "//")
    return re.split(r", (?![^(]*\))", text) if text else []


def _names(source: str | ast.expr) -> set[str]:
    tree = ast.parse(source, mode="eval") if isinstance(source, str) else source
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id.startswith("_")}


def _solve(expression: str, value: str, known) -> tuple[str, str] | None:
    """The one unknown name of an expression, and its source, where the expression has a value."""
    node = ast.parse(expression, mode="eval").body
    if len(_names(node) - known.keys()) != 1:
        return None
    while isinstance(node, ast.BinOp):
        inner, other = node.left, node.right
        if not _names(inner) - known.keys():
            if not isinstance(node.op, (ast.Add, ast.Mult)):
                return None
            inner, other = other, inner
        if type(node.op) not in _INVERSE or _names(other) - known.keys():
            return None
        node, value = inner, f"({value} {_INVERSE[type(node.op)]} ({ast.unparse(other)}))"
    return (node.id, value) if isinstance(node, ast.Name) else None


class _Tensor:
    """A tensor parameter: its extents, and those of the operator's argument or result, of which the first may be "...":
    any number of dimensions. Of elements of less than 8 bits torch has the bytes. flat: an argument of any shape."""

    def __init__(self, name, param, shapes, flat):
        self.name, self.param, self.flat = name, param, flat
        self.dtype = torch.uint8 if param.bits < 8 else _DTYPES[param.type]
        self.shape = param.shape
        for extents, others in shapes.items():
            self.shape = re.sub(rf"(?:(?<=\[)|(?<=, )){re.escape(extents)}(?=[,\]])", others, self.shape)
        self.kernels, self.extents = _extents(param.shape), _extents(self.shape)
        self.any = self.extents[:1] == ["..."]
        if param.bits < 8:
            for extents in (self.kernels, self.extents):
                extents[-1] = f"({extents[-1]}) * {param.bits} // 8"

    def place(self, index: int) -> str:
        """Of an extent: its source, of the shape of the tensor."""
        return f"s_{self.name}[{index - len(self.extents) if self.any else index}]"

    @property
    def leading(self) -> str:
        """The extents that "..." stands for."""
        rest = len(self.extents) - 1
        return f"s_{self.name}[:-{rest}]" if rest else f"s_{self.name}"


class Signature:
    """Of a kernel, for the arguments of an operator; shapes: extents of the kernel, and what an argument has in their
    place."""

    def __init__(self, operator, kernel, shapes):
        self.operator, self.kernel = operator, kernel
        self.inputs, self.results = {}, []
        self.known = {}  # of a name of the kernel, its source
        self.first = None  # the argument whose leading dimensions "..." stands for
        self.owners = {}  # of a name of the kernel, the argument whose shape tells it
        tensors = {}
        for param in kernel.params:
            name = operator.argument_of(param.name)
            if not param.is_tensor:
                source = operator.scalar(name)
                if source:
                    self.known[f"_{name}"] = source
                continue
            flat = name in operator.flat
            tensors[name] = _Tensor(name, param, {} if flat else shapes, flat)
            if name not in operator.names:
                self.results.append(tensors[name])
        self.inputs = {name: tensors[name] for name in operator.tensors if name in tensors}
        self._solve_all(shapes)

    def _equations(self, shapes):
        """(expression, source of its value, the argument that it is of)"""
        for name, tensor in self.inputs.items():
            for index, extent in enumerate([] if tensor.flat else tensor.extents):
                if extent != "...":
                    yield extent, tensor.place(index), name
                elif not self.first:
                    self.first = tensor
                    yield tensor.kernels[0], f"prod({tensor.leading})", name
        for extents, others in shapes.items():
            if others != "...":
                products = [f"({extent})" for extent in _extents(f"[{others}]")]
                yield ", ".join(_extents(f"[{extents}]")), " * ".join(products), None

    def _solve_all(self, shapes):
        left, count = list(self._equations(shapes)), -1
        while count != len(self.known):
            count = len(self.known)
            for expression, value, owner in left:
                found = None if _names(value) - self.known.keys() else _solve(expression, value, self.known)
                if found:
                    self.known[found[0]] = found[1]
                    self.owners[found[0]] = owner

    def check_written(self):
        """RuntimeError where the kernel writes to other arguments than the operator says, or has a tensor that is none
        of its arguments and no result. The schema has to say what is written before there is a kernel."""
        written = {name for name, tensor in self.inputs.items() if tensor.param.written}
        if written != set(self.operator.writes):
            raise RuntimeError(f"{self.operator.name}: the kernel writes {sorted(written)}, not {self.operator.writes}")
        for tensor in self.results:
            if not tensor.param.written:
                raise RuntimeError(f"{self.operator.name}: no argument is the kernel's {tensor.name}")

    # ---- the functions ----

    def _view(self, tensor, source):
        if tensor.flat or tensor.extents != tensor.kernels:
            source += f".view({', '.join(tensor.kernels)})"
        return f"{source}.view(uint32)" if tensor.param.type == "u32" else source

    def _made(self, tensor, base):
        """The allocation of a result, on the device of an argument."""
        extents = ", ".join(f"*{self.first.leading}" if extent == "..." else extent for extent in tensor.extents)
        if tensor.extents == base.extents and tensor.dtype == base.dtype:
            return f"empty_like({base.name})"
        dtype = "" if tensor.dtype == base.dtype else f", dtype=dtype_{tensor.name}"
        return f"{base.name}.new_empty(({extents},){dtype})"

    def _lines(self, sources):
        """What computes the names that sources need, each once."""
        lines, done = [], set()

        def need(source):
            for name in re.findall(r"\b(?:s)?_\w+", source):
                if name in done:
                    continue
                done.add(name)
                if name.startswith("s_"):
                    lines.append(f"{name} = {name[2:]}.shape")
                else:
                    need(self.known[name])
                    lines.append(f"{name} = {self.known[name]}")

        for source in sources:
            need(source)
        return lines

    def body(self, launches: bool) -> list[str]:
        """Of a function of the operator's arguments that launches the kernel, or only makes the results."""
        base = next(iter(self.inputs.values()))
        results = [f"r_{tensor.name}" for tensor in self.results]
        made = [f"{name} = {self._made(tensor, base)}" for name, tensor in zip(results, self.results)]
        call = []
        if launches:
            tensors = {t.param.name: self._view(t, name) for name, t in self.inputs.items()}
            tensors |= {t.param.name: self._view(t, name) for name, t in zip(results, self.results)}
            names = [p.name if p.is_tensor else f"_{self.operator.argument_of(p.name)}" for p in self.kernel.params]
            call = [f"kernel({', '.join(tensors.get(name, name) for name in names)})"]
        return [*self._lines([*made, *call]), *made, *call, f"return {', '.join(results) or None}"]

    def values(self) -> dict:
        """What the text of a body names."""
        return {f"dtype_{tensor.name}": tensor.dtype for tensor in self.results}

    def expected(self, given: dict) -> dict[str, tuple[int | None, ...]]:
        """The extents that arguments must have, None for any, as far as the others' shapes say."""
        found = {**_FUNCTIONS, **self.operator.functions, **given}
        found |= {f"s_{name}": tuple(given[name].shape) for name in self.inputs}
        for name, source in self.known.items():
            try:
                found[name] = eval(source, found)
            except (LookupError, NameError, TypeError, ArithmeticError):
                pass
        for name, argument in self.owners.items():
            if argument and isinstance(found.get(name), int) and found[name] < 0:
                wanted, given = self.inputs[argument].shape, list(found[f"s_{argument}"])
                raise ValueError(f"{self.operator.name}: {argument} must have the shape {wanted}, not {given}")
        return {name: self._expected(name, tensor, found) for name, tensor in self.inputs.items()}

    def _expected(self, argument, tensor, found):
        wanted, names = [], found.keys()
        for extent in tensor.extents:
            if extent == "..." and tensor is self.first:
                wanted += [None] * (len(found[f"s_{argument}"]) - len(tensor.extents) + 1)
            elif extent == "...":
                wanted += eval(self.first.leading, found)
            else:
                used = _names(extent)
                own = used and all(self.owners.get(name) == argument for name in used)  # it is what it is
                wanted.append(eval(extent, found) if used <= names and not own else None)
        return tuple(wanted)


class Launch:
    """A kernel for the arguments of an operator: run, which launches it, fake, which only makes the results, and what
    arguments must be: dtypes, shapes as texts, and expected, which computes them. unused: optional tensors that the
    kernel has no parameter for."""

    def __init__(self, operator, kernel, shapes):
        signature = Signature(operator, kernel, shapes)
        self.expected = signature.expected
        self.dtypes = {name: tensor.dtype for name, tensor in signature.inputs.items()}
        self.shapes = {name: tensor.shape for name, tensor in signature.inputs.items()}
        signature.check_written()
        self.unused = sorted(operator.optional - signature.inputs.keys())
        lines = signature.body(launches=True)
        if signature.first:  # one leading dimension is as the kernel has it: there is nothing to view
            single = Signature(operator, kernel, {e: other for e, other in shapes.items() if other != "..."})
            first = signature.first
            lines = [
                f"if {first.name}.dim() == {len(first.kernels)}:",
                *(f"    {line}" for line in single.body(launches=True)),
                *lines,
            ]
        lines = [*(f"if {name} is not None: raise ValueError({name!r})" for name in self.unused), *lines]
        values = {**operator.functions, **signature.values(), "kernel": kernel}
        self.run = self._written("run", operator, lines, values)
        self.fake = self._written("fake", operator, signature.body(launches=False), values)

    @staticmethod
    def _written(name, operator, lines, values):
        text = "".join(f"    {line}\n" for line in lines)
        return function_of(f"{operator.name}.{name}", f"def {name}({', '.join(operator.names)}):\n{text}", values)
