"""Calibration of quantize_: the weights of a layer are chosen for the activations that the layer gets.

The calibration data run through the model once. A block of the model, an element of its ModuleList such as a decoder
layer, runs twice: in float, for the second moments of its linear layers' inputs, and with its quantized weights, for
the inputs of the next block. So the moments of one block are in memory at a time, and each block is quantized for what
the quantized ones before it give. A linear layer outside of all lists is a block of its own.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ._torch import torch

from . import _awq
from ._expert_moments import ExpertMoments
from ._formats import format_of
from ._gptq import Rounded, gptq, round_nearest
from ._modules import is_conv1d, is_linear, matrix_of
from .experts import is_mixture
from .ops import group_rows
from .quantize import refusal

__all__ = ["Calibration", "windows"]

METHODS = ("gptq", "awq", "gptq+awq")


def windows(tokenizer: Callable[[str], Any], text: str, length: int = 2048, count: int | None = None) -> torch.Tensor:
    """The tokens of a text, with the special tokens that the tokenizer begins it with, cut into windows of so many:
    ids, int64 [windows, length]. The rest at the end is left out. count: windows at most, which are spread evenly over
    the text. ValueError where the text has not one."""
    ids = torch.as_tensor(tokenizer(text)["input_ids"], dtype=torch.int64)
    if len(ids) < length:
        raise ValueError(f"the text has {len(ids)} tokens, fewer than the {length} of a window")
    whole = ids[: len(ids) // length * length].view(-1, length)
    if count is not None and count < len(whole):
        whole = whole[torch.linspace(0, len(whole) - 1, count).round().long()]
    return whole


class Calibration:
    """What quantize_ takes as `calibrate`: data, and how they are used.

    data: batches for the model, of one shape but for the first extent: ids int64 [sequences, tokens], other tensors, or
    mappings of the model's arguments; or a pair of a tokenizer and a text, of which `samples` windows of `length`
    tokens are taken, spread evenly. 128 windows of 2048 tokens are what the papers take.

    method: "gptq" rounds each weight for what rounding others has done (and improves it by coordinate descent, in so
    many passes; 0 is GPTQ alone); "awq" scales channels of activations by powers of their size, where the module before
    can take the inverse, and rounds to nearest; "gptq+awq" does both. damping: what part of the mean of the second
    moments' diagonal is added to it. rows: sequences that run through a block at a time.
    """

    def __init__(
        self, data: Any, method: str = "gptq", *, samples: int = 128, length: int = 2048, damping: float = 0.01,
        passes: int = 4, rows: int = 4,
    ) -> None:  # fmt: skip
        if method not in METHODS:
            raise ValueError(f"method must be gptq, awq or gptq+awq, not {method!r}")
        counts = ("samples", samples, 1), ("length", length, 2), ("passes", passes, 0), ("rows", rows, 1)
        for name, value, least in counts:
            if not isinstance(value, int) or value < least:
                raise ValueError(f"{name} must be a number of {least} at least, not {value!r}")
        if not 0 < damping < 1:
            raise ValueError(f"damping must be between 0 and 1, not {damping!r}")
        self.method, self.damping, self.passes, self.rows = method, damping, passes, rows
        if isinstance(data, tuple) and len(data) == 2 and callable(data[0]) and isinstance(data[1], str):
            data = [windows(*data, length, samples)]
        self.inputs = _joined(data)

    @property
    def by_gptq(self) -> bool:
        return "gptq" in self.method

    @property
    def by_awq(self) -> bool:
        return "awq" in self.method


def _joined(data: Any) -> dict[str, torch.Tensor] | torch.Tensor:
    """The batches as one: a tensor, or the model's arguments by name."""
    if isinstance(data, (torch.Tensor, Mapping)):
        data = [data]
    if isinstance(data, str) or not isinstance(data, Iterable):
        raise TypeError(f"calibrate must be batches, or a tokenizer and a text, not {type(data).__name__}")
    batches = list(data)
    if not batches:
        raise ValueError("calibrate has no batches")
    try:
        if isinstance(batches[0], Mapping):
            return {name: torch.cat([batch[name] for batch in batches]) for name in batches[0]}
        return torch.cat([torch.as_tensor(batch) for batch in batches])
    except (RuntimeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"the batches to calibrate with must be tensors, or mappings of tensors, of one shape but for the number "
            f"of sequences: {error}"
        ) from error


# ---- second moments ----


class Moment:
    """X^T X of the inputs X that some linear layers have in common, f32 [k, k]; the module that X is the output of."""

    def __init__(self, k: int, device: torch.device) -> None:
        self.hessian = torch.zeros(k, k, device=device)
        self.source: torch.nn.Module | None = None

    def add(self, x: torch.Tensor) -> None:
        x = x.reshape(-1, x.shape[-1]).to(self.hessian.device, torch.float32)
        self.hessian.addmm_(x.t(), x)


class Recorder:
    """Sees what runs within a block: the moments of its linear layers, by name, and where their inputs are from; those
    of the experts of mixtures."""

    def __init__(self, block: torch.nn.Module, device: torch.device) -> None:
        self.moments: dict[str, Moment] = {}
        self.experts: dict[str, ExpertMoments] = {}
        self._device, self._seen, self._outputs = device, {}, {}
        self._hooks = []
        for name, module in block.named_modules():
            if is_linear(module):
                self._hooks.append(module.register_forward_pre_hook(self._input(name), with_kwargs=True))
            elif is_mixture(module):
                self.experts[name] = ExpertMoments(module, device)
                self._hooks.append(module.register_forward_pre_hook(self._tokens(name), with_kwargs=True))
            elif _awq.is_norm(module):
                self._hooks.append(module.register_forward_hook(self._output))

    def _tokens(self, name):
        def hook(module, args, kwargs):
            given = {**dict(zip(("hidden_states", "top_k_index"), args)), **kwargs}
            self.experts[name].add(given["hidden_states"], given["top_k_index"])

        return hook

    def _output(self, module, args, result):
        if isinstance(result, torch.Tensor):
            self._outputs[id(result)] = result, module

    def _input(self, name):
        def hook(module, args, kwargs):
            x = args[0] if args else kwargs["input"]
            _, known = self._seen.get(id(x), (None, None))
            moment = self.moments.get(name)
            if moment is None:
                moment = self.moments[name] = known or Moment(x.shape[-1], self._device)
            if known is not moment:
                moment.add(x)
                self._seen[id(x)] = x, moment  # which keeps x, so that no other tensor has its id
                moment.source = self._outputs.get(id(x), (None, None))[1]

        return hook

    def next_batch(self) -> None:
        self._seen.clear()
        self._outputs.clear()

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self.next_batch()


# ---- the run ----


class _Reached(Exception):
    """The last block has been quantized: nothing of the model need run any more."""


def _moved(value, change):
    """Arguments of a block, with tensors changed."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, (tuple, list)) and type(value) in (tuple, list):
        return type(value)(_moved(each, change) for each in value)
    if type(value) is dict:
        return {name: _moved(each, change) for name, each in value.items()}
    return value


def _first_tensor(args, kwargs):
    for value in (*args, *kwargs.values()):
        if isinstance(value, torch.Tensor):
            return value
    raise ValueError("a block of the model is called without a tensor: it cannot be calibrated")


class _Calibrator:
    """Quantizes the layers of a model as they are reached; self.left: those that were not."""

    def __init__(self, model, types, group, calibration, *, zeros, dtype, device, install, show):
        self.model, self.types, self.group, self.calibration = model, types, group, calibration
        self.zeros, self.dtype, self.device, self.install, self.show = zeros, dtype, device, install, show
        self.left, self.total = dict(types), len(types)
        self.blocks: dict[str, list[str]] = {}
        for name in types:
            self.blocks.setdefault(self._block_of(name), []).append(name)

    def _block_of(self, name):
        """The outermost element of a ModuleList that has the layer, or the layer itself."""
        parts = name.split(".")
        for i in range(1, len(parts)):
            if isinstance(self.model.get_submodule(".".join(parts[:i])), torch.nn.ModuleList):
                return ".".join(parts[: i + 1])
        return name

    def run(self):
        inputs = self.calibration.inputs
        first = next(iter(inputs.values())) if isinstance(inputs, dict) else inputs
        self.sequences = first.shape[0]
        watches = [self._watch(self.model.get_submodule(block), names, block) for block, names in self.blocks.items()]
        was_training = self.model.training
        self.model.eval()
        home = next((p.device for p in self.model.parameters()), torch.device("cpu"))
        inputs = _moved(inputs, lambda x: x.to(home))
        words = {"use_cache": False} if hasattr(getattr(self.model, "config", None), "use_cache") else {}
        try:
            self.model(**inputs, **words) if isinstance(inputs, dict) else self.model(inputs, **words)
        except _Reached:
            pass
        finally:
            for unwatch in watches:
                unwatch()
            self.model.train(was_training)
        return self.left

    def _watch(self, module, names, prefix):
        """The block is quantized when it is first called."""
        own = module.__dict__.get("forward")  # accelerate's, perhaps

        def unwatch():
            if own is None:
                module.__dict__.pop("forward", None)
            else:
                module.forward = own

        def forward(*args, **kwargs):
            unwatch()
            home, away = _first_tensor(args, kwargs).device, self._work_device(module)
            module.to(away)
            batches = [_moved(batch, lambda x: x.to(away)) for batch in self._batches(args, kwargs)]
            made = self._quantize(module, names, prefix, batches)
            for name in names:
                del self.left[name]
            results = [] if not self.left else [module(*a, **k) for a, k in batches]
            module.to(home)  # but for what is made, which stays
            for name, layer in made.items():
                self.install(name, layer)
            if not self.left:
                raise _Reached
            return self._together([_moved(result, lambda x: x.to(home)) for result in results])

        module.forward = forward
        return unwatch

    def _work_device(self, module):
        own = next(module.parameters()).device
        return own if self.device is None else torch.device(self.device)

    def _batches(self, args, kwargs):
        """The arguments for some sequences at a time: tensors whose first extent is that of all are cut."""
        size, count = self.calibration.rows, self.sequences
        extents = {x.shape[1] for x in (*args, *kwargs.values()) if isinstance(x, torch.Tensor) and x.dim() > 1}
        if count <= size or count in extents or not (args or kwargs):
            return [(args, kwargs)]

        def part(begin):
            return lambda x: x[begin : begin + size] if x.dim() > 1 and x.shape[0] == count else x

        if _first_tensor(args, kwargs).shape[0] != count:
            return [(args, kwargs)]
        return [(_moved(args, part(i)), _moved(kwargs, part(i))) for i in range(0, count, size)]

    def _together(self, results):
        first = results[0]
        if len(results) == 1:
            return first
        if isinstance(first, tuple):
            return tuple(self._together(list(each)) for each in zip(*results))
        return torch.cat(results) if isinstance(first, torch.Tensor) else first

    def _recorded(self, block, batches):
        """What a Recorder sees of the block; a layer that is the block itself has the name ""."""
        recorder = Recorder(block, self._work_device(block))
        try:
            for args, kwargs in batches:
                block(*args, **kwargs)
                recorder.next_batch()
        finally:
            recorder.close()
        return recorder

    def _quantize(self, block, names, prefix, batches):
        """Layers of the block as nn.Linear, by name; the block's own weights become what these stand for."""
        inner = {name: name[len(prefix) + 1 :] for name in names}
        recorder = self._recorded(block, batches)
        moments = recorder.moments
        weights = {name: matrix_of(module).detach().float() for name, module in _linears(block).items()}
        hessians = {name: moment.hessian for name, moment in moments.items()}
        if self.calibration.by_awq and not is_linear(block):
            targets = {inner[name]: self._rounder(name) for name in names if isinstance(self.types[name], str)}
            _awq.scale_block(block, batches[0], moments, weights, hessians, targets)
        made = {}
        for name in names:
            self.show(self.total - len(self.left) + len(made), self.total, name)
            try:
                made[name] = self._made(name, block, inner[name], recorder, weights, hessians)
            except (ValueError, TypeError) as error:
                error.add_note(f"in the module {name}")
                raise
        return made

    def _made(self, name, block, own, recorder, weights, hessians):
        if own in recorder.experts:
            return self._mixture(name, recorder.experts[own])
        if own not in hessians:
            warnings.warn(f"quantize_: {name} gets none of the data that calibrate has", stacklevel=2)
        return self._layer(name, block.get_submodule(own), weights.pop(own), hessians.get(own))

    def _rounder(self, name):
        """A function of (w, importance) that rounds weights of the layer to nearest."""
        kind, dtype = self.types[name], self.dtype or _half_of(self.model.get_submodule(name).weight)
        return lambda w, importance: self._round(kind, dtype, w, None, importance).weights()[: len(w), : w.shape[1]]

    def _round(self, kind, dtype, w, hessian, importance=None):
        fmt, rows = format_of(kind), group_rows(self.group)
        n, k = w.shape
        if not bool(w.isfinite().all()):
            raise refusal(w, dtype)
        if hessian is not None and not bool(hessian.isfinite().all()):
            raise ValueError("activations of the calibration's data are not finite, or their squares beyond f32")
        outputs, inputs = -n % 8, -k % rows
        w = torch.nn.functional.pad(w, (0, inputs, 0, outputs))
        size = self.group or w.shape[1]
        if hessian is None or not self.calibration.by_gptq:
            if importance is None and hessian is not None:
                importance = hessian.diagonal()
            if importance is not None:
                importance = torch.nn.functional.pad(importance, (0, inputs))
            rounded = round_nearest(w, importance, fmt, size, self.zeros, dtype)
        else:
            hessian = torch.nn.functional.pad(hessian, (0, inputs, 0, inputs))
            words = {"damping": self.calibration.damping, "passes": self.calibration.passes}
            rounded = gptq(w, hessian, fmt, size, self.zeros, dtype, **words)
        if not bool(rounded.scale.isfinite().all()):
            raise refusal(w, dtype)
        return rounded

    def _layer(self, name, module, w, hessian):
        rounded = self._round(self.types[name], self.dtype or _half_of(module.weight), w, hessian)
        n, k = w.shape
        exact = rounded.weights()[:n, :k].to(module.weight.dtype)
        exact = exact.t() if is_conv1d(module) else exact
        module.weight = torch.nn.Parameter(exact.contiguous(), requires_grad=False)
        return _linear_of(rounded, self.types[name], self.group, self.zeros, module.bias, (k, n))

    def _mixture(self, name, moments):
        kinds, first = self.types[name], moments.matrix(moments.names[0], 0)
        dtype = self.dtype or _half_of(first)

        def layer(stack, w, hessian):
            rounded = self._round(kinds[stack], dtype, w, hessian)
            return _linear_of(rounded, kinds[stack], self.group, self.zeros, None, w.shape[::-1])

        return moments.quantized(layer)


def _half_of(weight):
    return weight.dtype if weight.dtype in (torch.float16, torch.bfloat16) else torch.float16


def _linears(block):
    return {name: module for name, module in block.named_modules() if is_linear(module)}


def _linear_of(rounded: Rounded, type, group, zeros, bias, sizes):
    from .nn import Linear

    scales = rounded.scale.t().to(rounded.dtype).contiguous()
    points = rounded.zero.t().to(rounded.dtype).contiguous() if zeros else None
    return Linear.from_codes(
        rounded.codes(), scales, points, bias, type=type, group=group, in_features=sizes[0], out_features=sizes[1]
    )


@torch.no_grad()
def calibrate_(model, types, group, calibration, **options):
    """quantize_ of the layers `types` names, for the calibration's data; returns the names that the data do not reach.

    options: zeros, dtype, device as of quantize_; install: a function of a name and the layer made; show: of (done,
    total, name)."""
    return _Calibrator(model, types, group, calibration, **options).run()
