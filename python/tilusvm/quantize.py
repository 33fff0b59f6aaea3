"""Weights of a torch model to low-precision types: of a matrix, quantize_weight, pack and back; of a model, quantize_.

A matrix is torch's: [n, k], rows are outputs. Codes, packed weights, scales and zero points are the programs', for W
[k, n] with groups along k (tilusvm(7), tvm-pack(1)).
"""

from __future__ import annotations

import fnmatch
import functools
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ._torch import torch

from . import FormatError, _native
from ._formats import bits_of_codes, codes_of_bits, format_of
from ._modules import is_linear, sizes_of, stays
from ._narrow import NARROW, widened
from ._progress import Bar
from ._registry import HALVES, library, need, need_tensor
from ._scales import scales_of
from .ops import check_group, group_rows, lowbit_program, packed_shape

__all__ = ["quantize_weight", "pack", "unpack", "dequantize", "quantize_"]


def _padded(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


def checked_format(type, group, zeros, dtype):
    """The Format of weights with one scale of `dtype` for `group` rows; ValueError or TypeError for what is none."""
    fmt = format_of(type)
    check_group("", type, group, dtype)
    if zeros and fmt.kind != "u":
        raise ValueError(f"zeros goes with unsigned types, not with {type}")
    if dtype not in HALVES:
        raise TypeError(f"dtype must be torch.float16 or torch.bfloat16, not {dtype}")
    return fmt


def _check(weight, type, group, zeros, dtype):
    fmt = checked_format(type, group, zeros, dtype)
    if weight.dim() != 2 or not weight.is_floating_point():
        raise ValueError(f"weight must be a floating matrix, not {weight.dtype} {list(weight.shape)}")
    return fmt


@torch.no_grad()
def quantize_weight(
    weight: torch.Tensor, type: str = "u4", group: int = 128, *, zeros: bool = False,
    dtype: torch.dtype = torch.float16, scales: str = "mse", importance: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:  # fmt: skip
    """Quantizes a matrix [n, k] on its device: codes uint8[k, n], scales dtype[k / group, n], zero points or None.

    k is filled up with zeros to a multiple of the group (of 128 for 0 and 16), n to one of 8: the results have those
    extents. zeros: a zero point to a group, for unsigned types. scales: "mse" searches for the least squared error,
    "absmax" takes the least scale that holds each group. importance: f32[k], how much the squared error of each input
    counts (the mean square of activations). ValueError for weights that are not finite, and scales beyond the range of
    dtype.
    """
    strings, found, points = quantize_strings(
        weight, type, group, zeros=zeros, dtype=dtype, scales=scales, importance=importance
    )
    return codes_of_bits(strings, format_of(type).bits), found, points


@torch.no_grad()
def quantize_strings(weight, type, group, *, zeros, dtype, scales, importance):
    """As quantize_weight, but the codes are rows of compact bit strings, uint8[k, n * bits / 8]."""
    fmt = _check(weight, type, group, zeros, dtype)
    _device_check(weight, "weight")
    if scales not in ("mse", "absmax"):
        raise ValueError(f"scales must be mse or absmax, not {scales!r}")
    n, k = weight.shape
    padded = (_padded(n, 8), _padded(k, group_rows(group)))
    if importance is not None:
        importance = _importance(importance, k, padded[1], weight.device)
    if padded != (n, k):
        weight = torch.nn.functional.pad(weight, (0, padded[1] - k, 0, padded[0] - n))
    by_library = weight.device.type == "cpu" and fmt.kind != "t"
    work = _quantize_by_library if by_library else _quantize_by_torch
    return work(weight, fmt, group, zeros, dtype, scales, importance)


def _importance(importance, inputs, k, device):
    importance = torch.as_tensor(importance, dtype=torch.float32, device=device)
    if tuple(importance.shape) != (inputs,) or not bool((importance >= 0).all() & importance.isfinite().all()):
        raise ValueError(f"importance must be {inputs} finite numbers that are not negative")
    return torch.nn.functional.pad(importance, (0, k - inputs)).contiguous()


def refusal(weight, dtype):
    """What is wrong with weights for which no scales can be had."""
    if not torch.isfinite(weight).all():
        place = (~weight.isfinite()).nonzero()[0].tolist()
        return ValueError(f"weight{place} is {weight[tuple(place)].item()}: weights must be finite")
    hint = ": dtype=torch.bfloat16 has a wider range" if dtype == torch.float16 else ""
    row = int(weight.abs().amax(1).argmax())
    return ValueError(f"a scale of row {row} of weight is beyond the range of {dtype}{hint}")


_CODES = {torch.float16: (2, 16), torch.bfloat16: (4, 16), torch.float32: (2, 32)}  # DLPack's


def _quantize_by_library(weight, fmt, group, zeros, dtype, method, importance):
    """By the library, which knows nothing of torch."""
    weight = (weight if weight.dtype in _CODES else weight.float()).contiguous()
    n, k = weight.shape
    groups = k // group if group else 1
    strings = torch.empty(k, n * fmt.bits // 8, dtype=torch.uint8)
    scale = torch.empty(groups, n, dtype=dtype)
    zero = torch.empty_like(scale) if zeros else None
    if weight.numel() == 0:
        return strings, scale, zero
    try:
        _native.quantize(
            fmt.name, method == "absmax", n, k, weight.data_ptr(), *_CODES[weight.dtype], strings.data_ptr(),
            strings.shape[1], scale.data_ptr(), zero.data_ptr() if zeros else 0, _CODES[dtype][0], groups,
            0 if importance is None else importance.data_ptr(),
        )  # fmt: skip
    except FormatError as error:
        raise refusal(weight, dtype) from error
    return strings, scale, zero


def _quantize_by_torch(weight, fmt, group, zeros, dtype, method, importance):
    n, k = weight.shape
    size = group or k
    if importance is not None and size != k:
        importance = importance.view(-1, size).repeat(n, 1)
    groups = weight.float().reshape(-1, size)
    scale, zero = scales_of(groups, fmt, zeros, dtype, method, importance)
    if not torch.isfinite(scale).all():
        raise refusal(weight, dtype)
    codes = torch.empty(k, n, dtype=torch.uint8, device=weight.device)
    chunk = max((1 << 24) // max(k, 1), 1)
    for i in range(0, n, chunk):
        part = slice(i * (k // size), (i + chunk) * (k // size))
        x = groups[part].double() / torch.where(scale[part] == 0, torch.inf, scale[part]).double()[:, None]
        if zeros:
            x = (x.round_() + zero[part, None] - (1 << fmt.bits - 1)).clamp_(fmt.least, fmt.greatest)
        codes[:, i : i + chunk] = fmt.encode(x).view(-1, k).t()
    scale = scale.to(dtype).view(n, k // size).t().contiguous()
    zero = zero.to(dtype).view(n, k // size).t().contiguous() if zeros else None
    return bits_of_codes(codes, fmt.bits), scale, zero


def _device_check(tensor, name):
    if tensor.device.type not in ("cpu", "cuda"):
        raise ValueError(f"{name} must be on a CUDA device or the CPU, not on {tensor.device}")


def pack(
    codes: torch.Tensor, type: str, group: int = 128, dtype: torch.dtype = torch.float16, *, zeros: bool = False,
    bias: bool = False,
) -> torch.Tensor:  # fmt: skip
    """Codes uint8[k, n] as the program matmul_lowbit reads them, uint8[ops.packed_shape(type, group, k, n)].

    The program's own kernel lays them out, on the codes' device. k is a multiple of the group (128 for 0 and 16), n of
    8.
    dtype, zeros and bias change nothing of it: those of what will be multiplied spare a GPU the translation of
    another program.
    """
    need("pack", "codes", codes, dim=2)
    _device_check(codes, "codes")
    checked_format(type, group, zeros, dtype)
    k, n = codes.shape
    if codes.dtype != torch.uint8 or k % group_rows(group) or n % 8:
        raise ValueError(
            f"codes must be uint8 [multiple of {group_rows(group)}, multiple of 8], "
            f"not {codes.dtype} {list(codes.shape)}"
        )
    check_codes("pack", codes, type)
    strings = bits_of_codes(codes, format_of(type).bits)
    return pack_strings(strings, type, group, dtype, zeros=zeros, bias=bias)


def check_codes(op, codes, type):
    """ValueError where a code has more bits than the type: they would be those of its neighbour."""
    bits = format_of(type).bits
    if bits < 8 and codes.numel() and not codes.is_meta and int(codes.max()) >> bits:
        raise ValueError(f"{op}: codes must be below {1 << bits} for {type}, not {int(codes.max())}")


def pack_strings(strings, type, group, dtype, *, zeros, bias):
    """As pack, of codes as rows of compact bit strings."""
    k, n = strings.shape[0], strings.shape[1] * 8 // format_of(type).bits
    packed = torch.empty(packed_shape(type, group, k, n), dtype=torch.uint8, device=strings.device)
    if strings.numel():
        lowbit_program(type, group, dtype, ZEROS=zeros, BIAS=bias)["pack"](k, n, strings, packed)
    return packed


@functools.lru_cache(maxsize=64)
def _moves(type: str, group: int, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """What the kernel `pack` does to a granule: the bits that it flips, as bytes, and where it puts each bit.

    Of bit b of element [row, column] the place is at [row * 64 + column, b]. The kernel moves bits and may flip them
    (the signs of signed types), so it says so itself: it packs zeros, and then, for each p, bit p of the number of
    every place.
    """
    bits, rows = format_of(type).bits, group_rows(group)
    count = rows * 64 * bits
    numbers = torch.arange(count, dtype=torch.int32)
    one_each = torch.arange(8, dtype=torch.int32)
    kernel = lowbit_program(type, group, torch.bfloat16)["pack"]

    def packed(places):
        strings = (places.view(-1, 8) << one_each).sum(1).to(torch.uint8).view(rows, 8 * bits)
        result = torch.empty(1, 1, count // 8, dtype=torch.uint8)
        kernel(rows, 64, strings, result)
        return result.view(-1)

    flipped = packed(torch.zeros_like(numbers))
    sources = torch.zeros(count, dtype=torch.int64)
    for p in range((count - 1).bit_length()):
        plane = packed(numbers >> p & 1) ^ flipped
        sources |= (plane[:, None].int() >> one_each & 1).view(-1).long() << p
    places = torch.empty(count, dtype=torch.int64)
    places[sources] = torch.arange(count)
    return flipped.to(device), places.view(rows * 64, bits).to(device)


def _unpack(packed, type, group, n):
    bits, rows = format_of(type).bits, group_rows(group)
    blocks, groups, size = packed.shape
    flipped, places = _moves(type, group, str(packed.device))
    codes = torch.empty(groups * rows, blocks * 64, dtype=torch.uint8, device=packed.device)
    shifts = torch.arange(8, dtype=torch.uint8, device=packed.device)
    chunk = max((1 << 22) // (groups * size), 1)
    for j in range(0, blocks, chunk):
        part = packed[j : j + chunk] ^ flipped
        all_bits = (part[..., None] >> shifts & 1).view(*part.shape[:2], size * 8)
        found = torch.zeros(*part.shape[:2], rows * 64, dtype=torch.uint8, device=packed.device)
        for b in range(bits):
            found |= all_bits.index_select(2, places[:, b]) << b
        found = found.view(-1, groups, rows, 64).permute(1, 2, 0, 3).reshape(groups * rows, -1)
        codes[:, j * 64 : j * 64 + found.shape[1]] = found
    return codes[:, :n].contiguous()


def _dequantize(packed, scales, zeros, type, group, dtype):
    codes = _unpack(packed, type, group, scales.shape[1])
    k, n = codes.shape
    if zeros is None:
        fmt = format_of(type)
        numbers = fmt.numbers(codes.device)
        numbers = numbers.to(scales.dtype).float() if fmt.kind == "t" else numbers  # as the program has a table
        numbers = numbers[codes.int()]
    else:
        numbers = codes.float() - zeros.float().repeat_interleave(k // zeros.shape[0], 0)
    numbers *= scales.float().repeat_interleave(k // scales.shape[0], 0)
    return numbers.t().to(dtype).contiguous()


library.define("unpack(Tensor packed, str type, int group, int n) -> Tensor")
library.define(
    "dequantize(Tensor packed, Tensor scales, Tensor? zeros, str type, int group, ScalarType dtype) -> Tensor"
)
for _key in ("CPU", "CUDA"):
    library.impl("unpack", _unpack, _key)
    library.impl("dequantize", _dequantize, _key)


@torch.library.register_fake("tilusvm::unpack", lib=library)
def _(packed, type, group, n):
    return packed.new_empty((packed.shape[1] * group_rows(group), n))


@torch.library.register_fake("tilusvm::dequantize", lib=library)
def _(packed, scales, zeros, type, group, dtype):
    return scales.new_empty((scales.shape[1], packed.shape[1] * group_rows(group)), dtype=dtype)


def unpack(packed: torch.Tensor, type: str, group: int, n: int) -> torch.Tensor:
    """The codes uint8[k, n] of what pack made, bit by bit."""
    _check_packed(packed, type, group, n)
    return torch.ops.tilusvm.unpack(packed, type, group, n)


def _check_packed(packed, type, group, n):
    need_tensor("packed weights", "packed", packed)
    _device_check(packed, "packed")
    check_group("", type, group, None)
    if n < 0 or n % 8:
        raise ValueError(f"n must be a multiple of 8, not {n}")
    wanted = packed_shape(type, group, packed.shape[-2] * group_rows(group), n) if packed.dim() == 3 else None
    if packed.dtype != torch.uint8 or tuple(packed.shape) != wanted:
        raise ValueError(f"packed must be {type} weights of {n} columns, not {packed.dtype} {list(packed.shape)}")


def dequantize(
    packed: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor | None = None, *, type: str, group: int = 128,
    dtype: torch.dtype = torch.float32,
) -> torch.Tensor:  # fmt: skip
    """The matrix [n, k] that packed weights stand for, computed in f32: (code - zero) * scale, rounded to dtype."""
    if not torch.compiler.is_compiling():
        need("dequantize", "scales", scales, dtype=(*HALVES, *NARROW), dim=2, like=packed)
        _check_packed(packed, type, group, scales.shape[1])
        groups = packed.shape[1] * group_rows(group) // group if group else 1
        for name, tensor in (("scales", scales), ("zeros", zeros)):
            if tensor is not None:
                need("dequantize", name, tensor, shape=(groups, scales.shape[1]), like=packed)
    return torch.ops.tilusvm.dequantize(packed, widened(scales), zeros, type, group, dtype)


# ---- models ----


def _types_for(names, type):
    """Of each name its type: `type` itself, or that of the first pattern of the mapping which the name fits."""
    if not isinstance(type, Mapping):
        return dict.fromkeys(names, type)
    found = {n: next((t for p, t in type.items() if fnmatch.fnmatchcase(n, p)), None) for n in names}
    return {n: t for n, t in found.items() if t is not None}


def _check_names(names, skip, importance):
    """Warns of a pattern that fits nothing, which is mistyped, or for another model; ValueError for importance of
    none of the layers."""
    for pattern in skip:
        if not fnmatch.filter(names, pattern):
            warnings.warn(f"quantize_: no layer has a name that {pattern!r}, to skip, fits", stacklevel=3)
    unknown = [name for name in importance or {} if name not in names]
    if unknown:
        raise ValueError(f"importance names layers that there are not: {_some(unknown)}; there are {_some(names)}")


def _warn_of(own):
    """Of modules, by name, that are derived from a linear layer and do something else."""
    if own:
        kinds = ", ".join(sorted({module.__class__.__name__ for module in own.values()}))
        warnings.warn(
            f"quantize_: {_some(own)} ({kinds}) are not called as linear layers are, and stay as they are; name them "
            f"in skip",
            stacklevel=3,
        )


def _some(names):
    names = list(names)
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "") if names else "none"


def quantize_(
    model: torch.nn.Module, type: str | Mapping[str, str] = "u4", group: int = 128, skip: Iterable[str] = (), *,
    zeros: bool = False, dtype: torch.dtype | None = None, scales: str = "mse",
    importance: Mapping[str, torch.Tensor] | None = None, calibrate: Any = None, method: str = "gptq",
    device: torch.device | str | None = None, progress: bool | Callable[[int, int, str], None] = True,
    activations: str | None = None,
) -> torch.nn.Module:  # fmt: skip
    """Replaces the torch.nn.Linear modules of a model, and the Conv1D of transformers (GPT-2), by nn.Linear of
    low-precision weights, in place; returns the model. The experts of a mixture of transformers, weights of three
    dimensions, become a MixtureOfExperts. What is derived from torch.nn.Linear with a forward of its own stays, and is
    warned of unless skip or type leave it out.

    type: a type's name, or a mapping of name patterns ("*.down_proj") to types, of which the first that fits is
    taken; modules that none fits stay. skip: patterns of names to leave alone ("lm_head"); one that fits nothing is
    warned of. dtype: torch.float16 or bfloat16, of scales and activations; None: the weight's where it is one of them,
    else float16. device: where to quantize, and where the results stay; None: each weight's. importance: a mapping of
    names to what quantize_weight takes. progress: True for a bar on a terminal, or a function of (done, total, name).
    The weights are freed as the work goes on.

    calibrate: data for which the weights are chosen: batches of the model's inputs, a pair of a tokenizer and a text,
    or a calibrate.Calibration, which has more options; method: "gptq", "awq" or "gptq+awq", as of Calibration. Weights
    that the data do not reach are quantized without, and warned of.

    activations: "i8", "f8_e4m3", "nvfp4", "mxfp4" or "mxfp8": layers become nn8.Linear8, which rounds its activations
    to 8 bits ("mxfp8": type f8_e4m3 in groups of 32), or with "nvfp4" (f4_e2m1, 16) and "mxfp4" (32) to 4; experts
    become experts.Experts8. It goes without calibrate and without layers whose inputs are no multiple of 128: name them
    in skip.
    """
    from .experts import quantize_mixture, route_
    from .nn import Linear

    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, not {model.__class__.__name__}")
    if isinstance(skip, str):
        raise TypeError("skip must be a sequence of patterns, not a string")
    types = _chosen(model, type, skip, importance)
    modules = {name: model.get_submodule(name) for name in types}
    _check_eight(types, modules, activations, calibrate, {"group": group, "zeros": zeros})
    show = Bar() if progress is True else progress or (lambda done, total, name: None)
    total, words = len(types), {"zeros": zeros, "dtype": dtype, "device": device}
    if calibrate is not None:
        if importance is not None or scales != "mse":
            raise ValueError("calibrate goes without importance and scales, which it finds itself")
        types = _calibrated(model, types, modules, group, calibrate, method, {**words, "show": show})
    made = {}
    for name, kind in types.items():
        show(total - len(types) + len(made), total, name)
        module = modules.pop(name)
        if module not in made:
            try:
                if isinstance(kind, dict):
                    more = {} if activations is None else {"activations": activations}
                    made[module] = quantize_mixture(module, kind, group, scales=scales, **words, **more)
                else:
                    counts = None if importance is None else importance.get(name)
                    made[module] = Linear.from_float(
                        module, kind, group, scales=scales, importance=counts, activations=activations, **words
                    )
            except (ValueError, TypeError) as error:
                error.add_note(f"in the module {name}")
                raise
        _put(model, name, made[module])
    show(total, total, "")
    return route_(model)


def _check_eight(types, modules, activations, calibrate, words):
    """ValueError for what does not go with activations of 8 or 4 bits, before a layer is replaced."""
    from .experts import sizes_of_stacks
    from .nn8 import Linear8

    if activations is None:
        return
    if calibrate is not None:
        raise ValueError("calibrate goes without activations: its layers multiply those of 16 bits")
    for name, kind in types.items():
        own = sizes_of_stacks(modules[name]) if isinstance(kind, dict) else {"": sizes_of(modules[name])}
        for stack, sizes in own.items():
            try:
                each = kind[stack] if stack else kind
                Linear8(*sizes, type=each, activations=activations, device="meta", **words)
            except ValueError as error:
                error.add_note(f"in the module {f'{name}.{stack}' if stack else name}")
                raise


def _put(model, name, made):
    parent, _, last = name.rpartition(".")
    setattr(model.get_submodule(parent), last, made)


def _chosen(model, type, skip, importance):
    """Of each layer to quantize, by name, its type; of a mixture a dict of those of its stacks."""
    from .experts import is_mixture, stacks_of

    every = {
        n: m for n, m in model.named_modules(remove_duplicate=False) if is_linear(m) or is_mixture(m) or stays(m)
    }  # fmt: skip
    _check_names(every, skip, importance)
    found = {n: m for n, m in every.items() if not any(fnmatch.fnmatchcase(n, p) for p in skip)}
    _warn_of({n: m for n, m in found.items() if stays(m) and n in _types_for([n], type)})
    found = {n: m for n, m in found.items() if not stays(m)}
    types = _types_for([n for n, m in found.items() if is_linear(m)], type)
    for name, module in found.items():
        if name not in types and is_mixture(module):
            own = _types_for([f"{name}.{stack}" for stack in stacks_of(module)], type)
            if len(own) == len(stacks_of(module)):  # all of it, or nothing
                types[name] = {stack.rpartition(".")[2]: kind for stack, kind in own.items()}
    if isinstance(type, Mapping) and not types:
        raise ValueError(f"type has no pattern that a layer's name fits: {list(type)}; there are {_some(found)}")
    if "" in types:
        raise ValueError("the model is a Linear itself: use nn.Linear.from_float")
    return types


def _calibrated(model, types, modules, group, data, method, words):
    """Replaces what the data of a calibration reach; returns the types of what they do not."""
    from .calibrate import Calibration, calibrate_

    calibration = data if isinstance(data, Calibration) else Calibration(data, method)
    names: dict[int, list[str]] = {}
    for name, kind in types.items():
        for each in [kind] if isinstance(kind, str) else kind.values():
            checked_format(each, group, words["zeros"], words["dtype"] or torch.float16)
        names.setdefault(id(modules[name]), []).append(name)
    first = {own[0]: own for own in names.values()}

    def install(name, made):
        for each in first[name]:
            _put(model, each, made)
            modules.pop(each)

    calibrate_(model, {name: types[name] for name in first}, group, calibration, install=install, **words)
    rest = {name: kind for name, kind in types.items() if name in modules}
    if rest:
        warnings.warn(f"quantize_: the data of calibrate do not reach {_some(rest)}", stacklevel=3)
    return rest
