"""Linear: torch.nn.Linear with weights of 1 to 8 bits; and Linear8 of nn8, whose activations have 8 or 4, too."""

from __future__ import annotations

from collections.abc import Sequence

from ._torch import torch

from . import ops, quantize
from ._formats import bits_of_codes, format_of
from ._lowbit import LowBit as LowBit
from ._modules import matrix_of
from ._narrow import COLUMNS, NARROW, bytes_of, half_of, kept
from ._registry import HALVES, need, need_choice, need_tensor, plain
from .nn8 import Linear8

__all__ = ["Linear", "Linear8"]


def _eight(op, batch_invariant):
    """The layer whose activations are 8 or 4 bits wide."""
    if batch_invariant:
        raise ValueError(f"{op}: batch_invariant goes without activations, whose products have no such form")
    return Linear8


def filled(bias, n):
    """A bias as the operators take it, of the n columns of the packed weights."""
    return bias if bias is None or bias.shape[-1] == n else torch.nn.functional.pad(bias, (0, n - bias.shape[-1]))


def _scales_of(scales, columns, dtype):
    """Scales as a layer of so many columns of packed weights has them, and the type of its activations."""
    need_tensor("Linear", "scales", scales)
    if dtype is not None:
        need_choice("Linear", "dtype", dtype, HALVES)
    found = kept(scales, columns, dtype)
    return found, found.dtype if found.dtype not in NARROW else dtype or half_of(found.dtype)


class Linear(LowBit):
    """y = x W^T + bias, as torch.nn.Linear, with weights [out_features, in_features] of a low-precision type.

    in_features, out_features: any, as the weights are filled up with zeros to whole groups and multiples of 8. x is
    [..., in_features] of dtype, float16 or bfloat16, of any number of rows, on the device of the weights; under
    autocast of any floating type. A GPU launches on torch's current stream; on the CPU the interpreter runs.

    type: u1 to u8, i2 to i8, f3_e1m1 to f8_e7m0, nf4, fp4; group: inputs that share a scale: 16, 32, 64, 128, or 0 for
    all; zeros: a zero point to a group, for unsigned types; batch_invariant: a row's bits do not depend on the others.
    Floats of 5 to 7 bits are multiplied by way of f8_e4m3, exactly, with 1024 rows of x or more on a Hopper GPU, which
    takes as much memory for the time of the call.
    order: row i of W [in_features, out_features] multiplies x[..., order[i]]; multiplier: y = multiplier (x W) + bias,
    in f32 until it is rounded. Both are for weights that others have quantized.

    early, an attribute, False at first: a GPU reads the first weights while the launch before may still run. Where that
    writes no weights, as in a model that runs, it saves the wait for them.

    Buffers: packed (uint8), scales, zeros (or None), bias ([out_features], or None), the last three of dtype; order
    (int32 [in_features], or None), multiplier (float32 [1], or None). Gradients go to x, and to a bias that asks for
    one.

    scale_dtype: that of scales, where it is not dtype: torch.float8_e4m3fn (NVFP4: type f4_e2m1, group 16, multiplier),
    or torch.uint8, the bits of e8m0 (MXFP4: f4_e2m1, group 32; dtype bfloat16). The weights take 4.5 and 4.25 bits
    then. out_features, filled up to a multiple of 8, must be one of 16.

    state_dict() has the buffers, and in its _metadata, beside torch's own, the type, the group and whether there are
    zero points: load_state_dict refuses those of another layer, and warns where a state does not say.
    """

    early = False

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, *, type: str = "u4", group: int = 128,
        zeros: bool = False, dtype: torch.dtype = torch.float16, device: torch.device | str | None = None,
        batch_invariant: bool = False, order: bool = False, multiplier: bool = False,
        scale_dtype: torch.dtype | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        quantize.checked_format(type, group, zeros, dtype)
        for name, size in (("in_features", in_features), ("out_features", out_features)):
            if not isinstance(size, int) or isinstance(size, bool) or size < 0:
                raise ValueError(f"Linear: {name} must be a number of features, not {size!r}")
        self.in_features, self.out_features = in_features, out_features
        self.type, self.group, self.batch_invariant = type, group, batch_invariant
        self._whole = n, k = self._extents()
        groups = (k // group if group else 1, n)
        if scale_dtype not in (None, dtype):
            need_choice("Linear", "scale_dtype", scale_dtype, tuple(NARROW))
            if n % COLUMNS or half_of(scale_dtype) != dtype and scale_dtype == torch.uint8:
                raise ValueError(
                    f"Linear: scales of {scale_dtype} do not go with {out_features} outputs and {dtype}: the program "
                    f"takes a multiple of {COLUMNS} outputs, and powers of two with torch.bfloat16"
                )
            self._activations = dtype

        def half(*shape):
            return torch.zeros(shape, dtype=dtype, device=device)

        shape = ops.packed_shape(type, group, k, n)
        self.register_buffer("packed", torch.zeros(shape, dtype=torch.uint8, device=device))
        scales = half(*groups) if self._activations is None else torch.zeros(groups, dtype=scale_dtype, device=device)
        self.register_buffer("scales", scales)
        self.register_buffer("zeros", half(*groups) if zeros else None)
        self.register_buffer("bias", half(out_features) if bias else None)
        inputs = torch.arange(in_features, dtype=torch.int32, device=device) if order else None
        self.register_buffer("order", inputs)
        one = torch.ones(1, dtype=torch.float32, device=device) if multiplier else None
        self.register_buffer("multiplier", one)

    def _extents(self):
        """Of the packed weights: n, k."""
        rows = ops.group_rows(self.group)
        return -(-self.out_features // 8) * 8, -(-self.in_features // rows) * rows

    @classmethod
    @torch.no_grad()
    def from_float(
        cls, linear: torch.nn.Linear, type: str = "u4", group: int = 128, *, zeros: bool = False,
        dtype: torch.dtype | None = None, scales: str = "mse", importance: torch.Tensor | None = None,
        device: torch.device | str | None = None, batch_invariant: bool = False, activations: str | None = None,
    ) -> Linear | Linear8:  # fmt: skip
        """Quantizes a torch.nn.Linear, or the Conv1D of transformers; quantize.quantize_ has the arguments.

        activations: "i8", "f8_e4m3", "nvfp4", "mxfp4" or "mxfp8": a nn8.Linear8, which rounds x to 8 or 4 bits and
        multiplies these."""
        if activations is not None:
            words = {"zeros": zeros, "dtype": dtype, "scales": scales, "importance": importance, "device": device}
            return _eight("from_float", batch_invariant).from_float(
                linear, type, group, activations=activations, **words
            )
        if not isinstance(getattr(linear, "weight", None), torch.Tensor):
            raise TypeError(f"from_float: linear must be a torch.nn.Linear, not {linear.__class__.__name__}")
        dtype = dtype or (linear.weight.dtype if linear.weight.dtype in HALVES else torch.float16)
        weight = matrix_of(linear).detach().to(device or linear.weight.device)
        strings, found, points = quantize.quantize_strings(
            weight, type, group, zeros=zeros, dtype=dtype, scales=scales, importance=importance
        )
        outputs, inputs = weight.shape
        made = cls._empty(inputs, outputs, found, points, linear.bias, type, group, batch_invariant)
        return made._fill(strings, found, points, linear.bias)

    @classmethod
    @torch.no_grad()
    def from_codes(
        cls, codes: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor | None = None,
        bias: torch.Tensor | None = None, *, type: str, group: int = 128, in_features: int | None = None,
        out_features: int | None = None, batch_invariant: bool = False, activations: str | None = None,
        dtype: torch.dtype | None = None,
    ) -> Linear | Linear8:  # fmt: skip
        """Of given codes uint8[k, n], one to a byte, scales [k / group, n], zero points as scales and bias, without
        quantizing anew. in_features, out_features: where k and n are filled up. activations: as of from_float;
        nn8.Linear8.from_codes has the rest.

        Scales of float8_e4m3fn, and of float8_e8m0fnu or its bits as uint8, stay as they are where the program takes
        them: with n a multiple of 16, those of e8m0 in bfloat16 and up to 2^28. Else they become halves. dtype: that of
        activations beside them; None: float16 for e4m3, bfloat16 for e8m0."""
        if activations is not None:
            made = _eight("from_codes", batch_invariant)
            if (in_features, out_features) not in ((None, None), tuple(codes.shape)):
                raise ValueError("from_codes: codes are not filled up where activations is given")
            return made.from_codes(codes, scales, zeros, bias, type=type, group=group, activations=activations)
        need("from_codes", "codes", codes, dtype=torch.uint8, dim=2)
        k, n = codes.shape
        scales, dtype = _scales_of(scales, n, dtype)
        need("from_codes", "scales", scales, dtype=(*HALVES, *NARROW), dim=2, like=codes)
        if zeros is not None:
            need("from_codes", "zeros", zeros, shape=tuple(scales.shape), like=codes)
        if bias is not None:
            need_tensor("from_codes", "bias", bias)
            if bias.dim() != 1 or bias.shape[0] not in (n, out_features):
                raise ValueError(f"from_codes: bias must have {out_features or n} elements, not {list(bias.shape)}")
        quantize.check_codes("from_codes", codes, type)
        made = cls._empty(
            in_features or k, out_features or n, scales, zeros, bias, type, group, batch_invariant, dtype
        )
        if made._whole != (n, k) or tuple(scales.shape) != tuple(made.scales.shape):
            raise ValueError(
                f"codes {codes.dtype} [{k}, {n}] and scales {list(scales.shape)} do not belong to {made.in_features} "
                f"inputs, {made.out_features} outputs and group {group}"
            )
        return made._fill(bits_of_codes(codes, format_of(type).bits), scales, zeros, bias)

    @classmethod
    @torch.no_grad()
    def from_strings(
        cls, strings: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor | None = None,
        bias: torch.Tensor | None = None, *, type: str, group: int, in_features: int, out_features: int,
        order: torch.Tensor | None = None, multiplier: torch.Tensor | None = None, dtype: torch.dtype | None = None,
    ) -> Linear:  # fmt: skip
        """As from_codes, of codes as rows of compact bit strings, uint8[in_features, whole bytes of the columns], and
        scales and zero points of out_features columns; they are filled up here. order, multiplier: the buffers."""
        scales, dtype = _scales_of(scales, -(-out_features // 8) * 8, dtype)
        made = cls._empty(in_features, out_features, scales, zeros, bias, type, group, False, dtype)
        n, k = made._whole
        rows, columns = k - in_features, n - out_features

        def filled(tensor, *more):
            return torch.nn.functional.pad(bytes_of(tensor), more).view(tensor.dtype) if any(more) else tensor

        strings = filled(strings, 0, n * format_of(type).bits // 8 - strings.shape[1], 0, rows)
        groups = made.scales.shape[0] - scales.shape[0]
        scales = filled(scales, 0, columns, 0, groups)
        zeros = zeros if zeros is None else filled(zeros, 0, columns, 0, groups)
        made._fill(strings, scales, zeros, bias)
        made.order, made.multiplier = order, multiplier
        return made

    @classmethod
    @torch.no_grad()
    def cat(cls, layers: Sequence[Linear]) -> Linear:
        """One layer whose outputs are those of the layers, one after the other: a launch for all of them.

        They have the same inputs, in the same order, type, group, zero points and dtype, no multipliers, and but for
        the last a multiple of 64 outputs each, so that packed weights are put together as they are. A bias that some
        have not is zero there. ValueError where they do not fit.
        """
        if not layers or not all(isinstance(layer, Linear) for layer in layers):
            raise TypeError("cat: layers must be nn.Linear, one at least")
        first = layers[0]
        alike = ("in_features", "type", "group", "dtype", "scale_dtype", "batch_invariant")
        for layer in layers[1:]:
            for name in alike:
                if getattr(layer, name) != getattr(first, name):
                    raise ValueError(f"cat: {name} differs: {getattr(first, name)} and {getattr(layer, name)}")
            if (layer.zeros is None) != (first.zeros is None):
                raise ValueError("cat: some of the layers have zero points, and others none")
            same = layer.order is first.order
            if not same and (layer.order is None or first.order is None or not torch.equal(layer.order, first.order)):
                raise ValueError("cat: the orders of inputs differ")
        if any(layer.multiplier is not None for layer in layers):
            raise ValueError("cat: layers with a multiplier cannot be put together")
        for layer in layers[:-1]:
            if layer.out_features % 64:
                raise ValueError(f"cat: out_features must be a multiple of 64, not {layer.out_features}")
        outputs = sum(layer.out_features for layer in layers)
        biases = [layer.bias for layer in layers]
        bias = None
        if any(b is not None for b in biases):
            each = [m.scales.new_zeros(m.out_features, dtype=m.dtype) if m.bias is None else m.bias for m in layers]
            bias = torch.cat(each)
        kinds = first.type, first.group, first.batch_invariant, first.dtype
        made = cls._empty(first.in_features, outputs, first.scales, first.zeros, bias, *kinds)
        made.packed = torch.cat([layer.packed for layer in layers])
        made.scales = torch.cat([bytes_of(layer.scales) for layer in layers], 1).view(first.scales.dtype)
        made.zeros = None if first.zeros is None else torch.cat([layer.zeros for layer in layers], 1)
        made.bias, made.order = bias, first.order
        return made

    @torch.no_grad()
    def rearranged(self, outputs: torch.Tensor) -> Linear:
        """The layer whose output i is output outputs[i] of this one, a permutation of all of them, on its device: the
        same weights, packed anew."""
        if sorted(outputs.tolist()) != list(range(self.out_features)) or self.out_features % 8:
            raise ValueError("rearranged: outputs must be a permutation of the outputs, a multiple of 8 of them")
        codes = quantize.unpack(self.packed, self.type, self.group, self.out_features).index_select(1, outputs)
        found = [
            None if t is None else bytes_of(t).index_select(-1, outputs).view(t.dtype)
            for t in (self.scales, self.zeros, self.bias)
        ]
        made = type(self)._empty(
            self.in_features, self.out_features, *found, self.type, self.group, self.batch_invariant, self.dtype
        )
        made._fill(bits_of_codes(codes, format_of(self.type).bits), *found)
        made.order, made.multiplier, made.early = self.order, self.multiplier, self.early
        return made

    @classmethod
    def _empty(cls, inputs, outputs, scales, zeros, bias, type, group, batch_invariant, dtype=None):
        """dtype: beside scales of 8 bits."""
        narrow = scales.dtype in NARROW
        return cls(
            inputs,
            outputs,
            bias is not None,
            type=type,
            group=group,
            zeros=zeros is not None,
            dtype=dtype if narrow else scales.dtype,
            device="meta",
            batch_invariant=batch_invariant,
            scale_dtype=scales.dtype if narrow else None,
        )

    def _fill(self, strings, scales, zeros, bias):
        """Of codes as rows of compact bit strings."""
        self.packed = quantize.pack_strings(
            strings, self.type, self.group, self.dtype, zeros=zeros is not None, bias=bias is not None
        )
        self.scales, self.zeros = scales.contiguous(), None if zeros is None else zeros.to(self.dtype).contiguous()
        if bias is not None:
            self.bias = bias.detach().to(strings.device, self.dtype)[: self.out_features].clone()
        return self

    @property
    def weight(self) -> torch.Tensor:
        """dequantize(dtype), made anew each time: for what looks at the weights of a layer, or at their type."""
        if self.waiting or self.packed.is_meta:
            return self.scales.new_empty(self.out_features, self.in_features, dtype=self.dtype, device="meta")
        return self.dequantize(self.dtype)

    @torch.no_grad()
    def dequantize(self, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """The weights [out_features, in_features], computed in f32 and rounded to dtype."""
        exact = dtype if self.multiplier is None else torch.float32
        weight = quantize.dequantize(
            self.packed, self.scales, self.zeros, type=self.type, group=self.group, dtype=exact
        )
        weight = weight if self.multiplier is None else (weight * self.multiplier).to(dtype)
        weight = weight[: self.out_features, : self.in_features]
        if self.order is not None:
            weight = torch.empty_like(weight).index_copy_(1, self.order.long(), weight)
        return weight.contiguous()

    def forward(self, x: torch.Tensor, *, out_dtype: torch.dtype | None = None) -> torch.Tensor:
        """out_dtype: torch.float32 leaves the sums unrounded; None is the type of the layer."""
        buffers = self._buffers  # attributes of a module that are buffers are found late
        scales = buffers["scales"]
        need_tensor("Linear", "x", x)
        dtype = self._activations or scales.dtype
        if x.dtype is not dtype:
            if torch.is_autocast_enabled(x.device.type):
                x = x.to(dtype)
            elif scales.dtype in NARROW:  # the operator takes both types of halves
                raise TypeError(f"Linear: x must be {dtype}, not {x.dtype}")
        if not x.dim() or x.size(-1) != self.in_features:
            raise ValueError(f"Linear: x must have {self.in_features} columns, not the shape {list(x.shape)}")
        order = buffers["order"]
        if order is not None:
            x = x.index_select(-1, order)
        n, k = self._whole
        if k != self.in_features:
            x = torch.nn.functional.pad(x, (0, k - self.in_features))
        if not x.is_contiguous():
            x = x.contiguous()
        bias = buffers["bias"] if n == self.out_features else filled(buffers["bias"], n)
        weights = buffers["packed"], scales, buffers["zeros"], bias
        rest = *weights, self.type, self.group, out_dtype, self.batch_invariant, buffers["multiplier"], self.early
        if plain(x) and not (torch.is_grad_enabled() and x.requires_grad):
            if x.data_ptr() & 15:
                x = x.clone()
            y = ops.lowbit_operator.direct(x, *rest)
        else:
            y = ops.lowbit_operator.op(x, *rest)
        return y if n == self.out_features else y[..., : self.out_features]

    # ---- products of few rows with what stands before and behind them ----

    @property
    def fuses(self) -> bool:
        """Does it take normed and add_to: are its inputs and outputs those of the packed weights?"""
        return self._whole == (self.out_features, self.in_features) and self.order is None and not self.batch_invariant

    def normed(
        self, x: torch.Tensor, squares: torch.Tensor | None = None, *, eps: float = 1e-6, lift: float = 1.0,
        addend_eps: float = 1e-6, addend_lift: float = 1.0, gate: str | None = None,
    ) -> torch.Tensor:  # fmt: skip
        """ops.matmul_lowbit_normed with these weights, of x [m, in_features]."""
        return ops.matmul_lowbit_normed(
            x, self.packed, self.scales, self.zeros, self.bias, squares, type=self.type, group=self.group, eps=eps,
            lift=lift, addend_eps=addend_eps, addend_lift=addend_lift, gate=gate, multiplier=self.multiplier,
            early=self.early,
        )  # fmt: skip

    def add_to(
        self, residual: torch.Tensor, x: torch.Tensor, gain: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """ops.matmul_lowbit_add with these weights."""
        return ops.matmul_lowbit_add(
            x, residual, gain, self.packed, self.scales, self.zeros, self.bias, type=self.type, group=self.group,
            multiplier=self.multiplier, early=self.early,
        )  # fmt: skip

    def addend_to(
        self, residual: torch.Tensor, addend: torch.Tensor, x: torch.Tensor, squares: torch.Tensor,
        old_gain: torch.Tensor, after_gain: torch.Tensor, gain: torch.Tensor, *, addend_eps: float = 1e-6,
        addend_lift: float = 1.0,
    ) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
        """ops.matmul_lowbit_addend with these weights."""
        return ops.matmul_lowbit_addend(
            x, residual, addend, squares, old_gain, after_gain, gain, self.packed, self.scales, self.zeros, self.bias,
            type=self.type, group=self.group, addend_eps=addend_eps, addend_lift=addend_lift,
            multiplier=self.multiplier, early=self.early,
        )  # fmt: skip

    def append_to(
        self, cache: torch.Tensor, table: torch.Tensor, lengths: torch.Tensor, rotation: torch.Tensor, x: torch.Tensor,
        squares: torch.Tensor | None = None, *, heads: int, format: ops.CacheFormat | None = None, eps: float = 1e-6,
        lift: float = 1.0, addend_eps: float = 1e-6, addend_lift: float = 1.0, gains: torch.Tensor | None = None,
        heads_eps: float = 1e-6,
    ) -> torch.Tensor:  # fmt: skip
        """ops.qkv_lowbit with these weights; cache: int32, as of CacheFormat; format: where it is not of 16 bits."""
        cache = cache.view(self.dtype) if format is None else cache
        return ops.qkv_lowbit(
            x, self.packed, self.scales, cache, table, lengths, rotation, self.zeros, self.bias, squares, gains,
            heads=heads, type=self.type, format=format, group=self.group, eps=eps, lift=lift,
            addend_eps=addend_eps, addend_lift=addend_lift, heads_eps=heads_eps, multiplier=self.multiplier,
            early=self.early,
        )  # fmt: skip

    def extra_repr(self) -> str:
        parts = [
            f"in_features={self.in_features}",
            f"out_features={self.out_features}",
            f"bias={self.bias is not None}",
        ]
        parts += [f"type={self.type}", f"group={self.group}"]
        parts += ["zeros=True"] if self.zeros is not None else []
        for name in ("order", "multiplier"):
            parts += [f"{name}=True"] if getattr(self, name) is not None else []
        parts += ["batch_invariant=True"] if self.batch_invariant else []
        parts += [] if self.scale_dtype is None else [f"scales={NARROW[self.scale_dtype]}"]
        return ", ".join([*parts, f"dtype={self.dtype}"])
