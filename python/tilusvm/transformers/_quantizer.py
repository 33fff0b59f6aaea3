"""from_pretrained(..., quantization_config=TilusConfig("u4")): weights are quantized as they are loaded."""

from __future__ import annotations

import difflib
import fnmatch
import functools
import inspect
import re
import warnings

import torch
from transformers.modeling_utils import PreTrainedModel
from transformers.quantizers import HfQuantizer, register_quantization_config, register_quantizer
from transformers.utils.quantization_config import QuantizationConfigMixin

from .. import nn, parallel, storage
from .._modules import is_linear, sizes_of
from ..experts import MixtureOfExperts, empty_mixture, is_mixture, route_
from ..quantize import checked_format, quantize_

__all__ = ["TilusConfig", "TilusQuantizer"]

#: What other packages call what TilusConfig has.
_CALLED = {
    "bits": "type", "wbits": "type", "w_bit": "type", "nbits": "type", "group_size": "group", "q_group_size": "group",
    "zero_point": "zeros", "sym": "zeros", "modules_to_not_convert": "skip", "llm_int8_skip_modules": "skip",
}  # fmt: skip


def _refuse(words):
    """TypeError for the first of the keywords that TilusConfig has not."""
    own = [name for name in inspect.signature(TilusConfig).parameters if name != "words"]
    for name, value in words.items():
        hint = "it has " + ", ".join(own)
        if name in ("dtype", "torch_dtype"):
            hint = "the type of activations and scales is from_pretrained's dtype, torch.float16 or torch.bfloat16"
        elif _CALLED.get(name) == "type" and isinstance(value, int):
            hint = f"did you mean type='u{value}'?"
        elif found := [_CALLED[name]] if name in _CALLED else difflib.get_close_matches(name, own, 1):
            hint = f"did you mean {found[0]}?"
        raise TypeError(f"TilusConfig has no {name!r}: {hint}")


@register_quantization_config("tilusvm")
class TilusConfig(QuantizationConfigMixin):
    """How from_pretrained quantizes linear layers.

    type: u1 to u8, i2 to i8, f3_e1m1 to f8_e7m0, nf4, fp4; group: inputs that share a scale: 16, 32, 64, 128, or 0 for
    all; zeros: a zero point to a group, for unsigned types; scales: "mse" or "absmax"; skip: names of modules, with
    wildcards, that stay. activations: "i8", "f8_e4m3", ...: what linear layers and experts round theirs to, as
    quantize_ has it. version: of what tvm-pack --from imported, whose files say the rest; it is in their config.json.
    """

    def __init__(
        self, type="u4", group=128, zeros=False, scales="mse", skip=("lm_head",), version=None, activations=None,
        **words,
    ):  # fmt: skip
        if words.pop("quant_method", "tilusvm") != "tilusvm":  # a config.json has it
            raise ValueError("TilusConfig is of the quant_method tilusvm")
        _refuse(words)
        if isinstance(skip, str):
            raise TypeError("skip must be a sequence of patterns, not a string")
        if scales not in ("mse", "absmax"):
            raise ValueError(f"scales must be mse or absmax, not {scales!r}")
        if activations is None:
            checked_format(type, group, zeros, torch.bfloat16)
        else:  # any layer's sizes tell
            nn.Linear8(128, 8, type=type, group=group, zeros=zeros, activations=activations, device="meta")
        self.quant_method, self.version, self.activations = "tilusvm", version, activations
        self.type, self.group, self.zeros, self.scales, self.skip = type, group, zeros, scales, list(skip)


@register_quantizer("tilusvm")
class TilusQuantizer(HfQuantizer):
    requires_calibration = False

    def validate_environment(self, *args, device_map=None, **kwargs):
        if isinstance(device_map, dict):
            _refuse_offload(device_map)

    def update_dtype(self, dtype):
        if dtype in (torch.float16, torch.bfloat16):
            return dtype
        if dtype is not None:
            warnings.warn(
                f"low-precision layers multiply torch.float16 or torch.bfloat16: the model is loaded in torch.float16, "
                f"not in {dtype}; say so by dtype=torch.float16, or torch.bfloat16",
                stacklevel=2,
            )
        return torch.float16

    def _process_model_before_weight_loading(self, model, checkpoint_files=None, **kwargs):
        """What was saved quantized is loaded as it is, into layers that wait for it."""
        if not self.pre_quantized:
            self.plan = _plan_of(model, self._skips)
            return model
        if self.quantization_config.version is not None:
            return self._wait_for(model, checkpoint_files, model.name_or_path)
        self._prepare_saved(model, checkpoint_files)
        return self._planned(model)

    def _planned(self, model):
        _untie(model)
        self.plan = _plan_of(model, lambda name: True)
        return model

    def _prepare_saved(self, model, checkpoint_files):
        how = self.quantization_config
        make, more = (nn.Linear, {}) if how.activations is None else (nn.Linear8, {"activations": how.activations})
        layers = []
        for name, module in list(model.named_modules()):
            if is_linear(module) and not self._skips(name):
                layer = make(
                    *sizes_of(module), module.bias is not None, type=how.type, group=how.group, zeros=how.zeros,
                    dtype=module.weight.dtype, device="meta", **more,
                )  # fmt: skip
                layer.waiting = True
                layers.append(name)
            elif is_mixture(module) and not self._skips(name):
                layer = empty_mixture(module, how.type, how.group, zeros=how.zeros, **more)
            else:
                continue
            owner, _, last = name.rpartition(".")
            setattr(model.get_submodule(owner), last, layer)
        files = [storage.File(path) for path in checkpoint_files or [] if str(path).endswith(".safetensors")]
        for module, last, tensor in _tensors_in(model, files, layers):
            if last == "bias" and module.true_bias(tensor) is not tensor:
                module.bias = torch.empty_like(tensor, device="meta")

    def _wait_for(self, model, checkpoint_files, folder, four=()):
        """Puts into the model what waits for the tensors of layers that other programs have quantized."""
        files, dtype = [storage.File(path) for path in checkpoint_files], model.dtype
        self.imported = storage.prepare_imported(model, files, folder, four)
        self.apart = _placed_apart(model, self.imported)
        layers = {name for each in self.imported for name in each.layers if name not in self.apart}
        for module, last, tensor in _tensors_in(model, files, layers):
            module._buffers[last] = torch.empty_like(tensor, device="meta")
            module.waiting = True
        for name, layer in (pair for each in self.imported for pair in each.layers.items()):
            if not layer.goes_with(dtype):
                raise ValueError(
                    f"layer {name} has scales of {layer.dtype}, the model is {dtype}: load it with "
                    f"dtype={layer.dtype}, or import it with tvm-pack's option --scale"
                )
        return self._planned(model)

    def _process_model_after_weight_loading(self, model, **kwargs):
        how = self.quantization_config
        _refuse_offload(getattr(model, "hf_device_map", None) or {})
        for module in model.modules():
            if isinstance(module, nn.LowBit):
                _as_buffers(module)
        for each in getattr(self, "imported", []):
            modules = {name: model.get_submodule(self.apart.get(name, name)) for name in each.layers}
            each.fill(model, lambda name: _tensors(modules[name]), model.dtype)
        for name in {path.rpartition(".experts.")[0] for path in getattr(self, "apart", {}).values()}:
            owner, _, last = name.rpartition(".")
            delattr(model.get_submodule(owner), last)
        if not self.pre_quantized:
            names = [name for name, _ in model.named_modules()]
            skip = [pattern for pattern in how.skip if fnmatch.filter(names, pattern)]  # lm_head not all models have
            quantize_(
                model, how.type, how.group, skip=skip, zeros=how.zeros, scales=how.scales, progress=False,
                activations=how.activations,
            )  # fmt: skip
            _untie(model)
        for module in model.modules():  # what lies in a file may begin anywhere, as a router's correction of its choice
            for name, tensor in module._buffers.items():
                if type(tensor) is torch.Tensor:
                    module._buffers[name] = storage.moved(tensor, None)
        _keep_stacks(model)
        route_(model)
        for parameter in model.parameters():
            if type(parameter.data) is torch.Tensor:
                parameter.data = storage.moved(parameter.data, None)
        self.is_cut = getattr(model, "_tp_size", None) not in (None, 1)
        if self.is_cut:
            parallel.parallelize_(model, _styles(self.plan), _group(model))
        return model

    def _skips(self, name):
        return any(fnmatch.fnmatch(name, pattern) for pattern in self.quantization_config.skip)

    def is_serializable(self, *args, **kwargs):
        """Not what was imported, whose layers may be of several types: storage.save writes them; nor a rank's part."""
        return self.quantization_config.version is None and not getattr(self, "is_cut", False)

    @property
    def is_trainable(self):
        """Adapters beside it are: see tilusvm.lora."""
        return True


def _refuse_offload(device_map):
    """ValueError where modules are to be kept elsewhere than they run, of which kernels know nothing."""
    places = {name: str(device) for name, device in device_map.items()}
    away = [name for name, place in places.items() if place == "disk"]
    if any(place not in ("cpu", "disk") for place in places.values()):
        away += [name for name, place in places.items() if place == "cpu"]
    if away:
        where = "disk" if "disk" in places.values() else "cpu"
        raise ValueError(
            f"device_map leaves {away[0] or 'the model'} on the {where}: low-precision layers run where they lie, and "
            f"cannot be offloaded; give a device_map without cpu and disk beside a GPU, such as device_map='cuda'"
        )


# ---- tp_plan ----

#: What the rules of a tensor parallel plan are for parallelize_.
_STYLES = {
    "colwise": "column", "colwise_rep": "column, gathered", "colwise_gather_output": "column, gathered",
    "rowwise": "row", "rowwise_rep": "row, scattered", "rowwise_split_input": "row, scattered",
}  # fmt: skip


def _plan_of(model, skips):
    """The rules of the model's tensor parallel plan for layers that are, or will be, of low precision, by the names of
    layers; transformers, which would cut their tensors as those of floats, does not see them. Experts are whole on each
    rank. ValueError for a rule of which some layers stay."""
    rules = getattr(model, "_tp_plan", None) or {}
    found, stay = {}, {}
    for name, module in model.named_modules():
        own = isinstance(module, (nn.LowBit, MixtureOfExperts))
        general = re.sub(r"(^|\.)\d+(?=\.|$)", r"\1*", name)
        of = [rule for rule in rules if rule == general or rule.startswith(f"{general}.")]
        if not of or not (own or is_linear(module) or is_mixture(module)):
            continue
        if not own and skips(name):
            stay.update(dict.fromkeys(of, name))
        else:
            found.update(dict.fromkeys(of))
            found[name] = rules.get(general)
    for rule in found:
        if rule in stay:
            raise ValueError(f"the layer {stay[rule]} stays in floats, and others of the tp_plan's rule {rule} do not")
    model._tp_plan = {rule: style for rule, style in rules.items() if rule not in found}
    return {name: style for name, style in found.items() if name not in rules and style is not None}


def _styles(plan):
    """As parallelize_ has them; ValueError for a style that it has not."""
    for name, style in plan.items():
        if style not in (*_STYLES, "moe_tp_experts"):
            raise ValueError(
                f"the tp_plan has {style!r} for {name}, and low-precision layers are cut by {', '.join(_STYLES)}: "
                f"leave out the tp_plan, or keep the layer in floats by TilusConfig(skip=[...])"
            )
    return {name: _STYLES[style] for name, style in plan.items() if style in _STYLES}


def _group(model):
    """The processes that have the parts of a layer."""
    mesh = model._device_mesh
    return mesh.get_group() if mesh.ndim == 1 else mesh.get_group("tp")


def _untie(model):
    """Of weights that are one in the model's configuration, those that are replaced are no longer."""
    tied = getattr(model, "all_tied_weights_keys", None) or {}
    ends = [name for name, source in tied.items() if any(_replaced(model, each) for each in (name, source))]
    for name in ends:
        del tied[name]
    if ends:
        for config in {id(each): each for each in (model.config, model.config.get_text_config())}.values():
            config.tie_word_embeddings = False


def _replaced(model, name):
    module = storage._module(model, name.rpartition(".")[0])
    return isinstance(module, nn.LowBit)


def _placed_apart(model, waiting):
    """Has experts' matrices wait where their files call them, of which transformers would make stacks by a name that
    the model has: a tensor whose own name the model has is loaded there. The names in the model, and those."""
    apart = {}
    for name, layer in (pair for each in waiting for pair in each.layers.items()):
        owner, _, last = layer.name.rpartition(".")
        if layer.name == name or not re.search(r"\.experts\.\d+$", owner) or not hasattr(layer, "placeholder"):
            continue
        apart[name], module = layer.name, model
        for part in owner.split("."):
            if not hasattr(module, part):
                module.add_module(part, torch.nn.Module())
            module = getattr(module, part)
        module.add_module(last, layer.placeholder())
        parent, _, last = name.rpartition(".")
        delattr(model.get_submodule(parent), last)
    return apart


def _as_buffers(module):
    """What was loaded, as the layer has it: some versions of transformers make parameters of buffers."""
    module.waiting = False
    for name, parameter in list(module._parameters.items()):
        delattr(module, name)
        module.register_buffer(name, parameter.detach())
    if module.bias is not None:
        module.bias = module.true_bias(module.bias)


def _counted(total):
    """PreTrainedModel.num_parameters, with low-precision layers' weights and biases in the place of their buffers."""

    @functools.wraps(total)
    def num_parameters(self, only_trainable=False, exclude_embeddings=False):
        count = total(self, only_trainable, exclude_embeddings)
        if only_trainable:
            return count
        return count + sum(module.parameter_count() for module in self.modules() if isinstance(module, nn.LowBit))

    return num_parameters


PreTrainedModel.num_parameters = _counted(PreTrainedModel.num_parameters)


def _keep_stacks(model):
    """save_pretrained writes stacks of experts as they are here: transformers takes those that it made apart."""
    conversions = getattr(model, "_weight_conversions", None)
    if conversions and any(isinstance(module, MixtureOfExperts) for module in model.modules()):
        kept = [each for each in conversions if not any("experts" in name for name in each.target_patterns)]
        model._weight_conversions = kept


def _tensors_in(model, files, layers):
    """The tensors that files have of the layers of these names: (module, the name of its buffer, tensor) of each. Where
    transformers looks at shapes, those of the buffers are to be the file's."""
    rename, layers = storage._renamer(model), set(layers)
    for file in files:
        for called in file.entries:
            owner, _, last = rename(called).rpartition(".")
            if owner in layers:
                yield model.get_submodule(owner), last, file.tensor(called)


def _tensors(module):
    return {last: storage.moved(tensor, None) for last, tensor in module._buffers.items() if tensor is not None}
