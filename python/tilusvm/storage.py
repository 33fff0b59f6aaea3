"""Models with low-precision layers in .safetensors files, and back, mapped rather than read.

A folder holds model.safetensors, or model-00001-of-00003.safetensors, ... and model.safetensors.index.json, as the
model hub's tools write and read them. The tensors are those of state_dict(); __metadata__ says beside "format" and
"version", as JSON, which "modules" of the file are nn.Linear, with their types, and the "aliases" of tensors that are
one. Data begins at multiples of 64 bytes, and what kernels read comes first, at multiples of 16: it can be used where
it is mapped. load reads folders that tvm-pack --from wrote, too (checkpoint).
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import sys

from . import UnsupportedError, checkpoint8
from ._device import device_report, multiplies_four
from ._torch import torch
from ._lowbit8 import LowBit8
from ._narrow import NARROW
from ._stack import Stack
from .checkpoint import layers_of
from .experts import Experts, Experts8, MixtureOfExperts, collect, is_mixture, route_
from .nn import Linear, LowBit
from .nn8 import FOUR, Linear8

__all__ = ["save", "load"]

_NAMES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
    torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
    torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2",
}  # fmt: skip
_DTYPES = {name: dtype for dtype, name in _NAMES.items()}
_NARROW = {name: dtype for dtype, name in NARROW.items()}
_INDEX = "model.safetensors.index.json"
_OF_OTHERS = (  # what tensors are called that tvm-pack --from imports, or refuses by the name of their format
    ".qweight", ".weight_packed", ".weight_scale", ".weight_scale_inv", "_blocks", ".weight.absmax", ".SCB",
    "._weight_qdata", ".weight:_data", ".W_q", ".trellis", ".q_weight",
)  # fmt: skip
_HEADER_MOST = 100_000_000
_ALIGNMENT = 64


# ---- files ----


def _bytes_of(tensor) -> memoryview:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return memoryview(flat.view(torch.uint8).numpy()) if flat.numel() else memoryview(b"")


def _write(path, tensors, metadata):
    """One file; the tensors, a dict, go to it one after the other. Written whole or not at all."""
    header = {"__metadata__": metadata}
    at = 0
    for name, tensor in tensors.items():
        if tensor.dtype not in _NAMES:
            raise TypeError(f"{name} is {tensor.dtype}, which safetensors does not have")
        size = tensor.numel() * tensor.element_size()
        header[name] = {
            "dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [at, at + size],
        }  # fmt: skip
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % _ALIGNMENT)
    part = f"{path}.{os.getpid()}.part"
    try:
        with open(part, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for tensor in tensors.values():
                file.write(_bytes_of(tensor))
        os.replace(part, path)
    except BaseException:
        if os.path.exists(part):
            os.unlink(part)
        raise


class File:
    """A file's header, checked, and its data, mapped privately: pages are read when they are used."""

    def __init__(self, path):
        self.path = path
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            start = file.read(8)
            length = struct.unpack("<Q", start)[0] if len(start) == 8 else _HEADER_MOST + 1
            if length > min(_HEADER_MOST, size - 8):
                raise ValueError(f"{path} is not a safetensors file: its header is longer than the file")
            try:
                header = json.loads(file.read(length))
                self.metadata = header.pop("__metadata__", {})
                self.entries = {name: self._entry(name, entry, size - 8 - length) for name, entry in header.items()}
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise ValueError(f"{path} is not a safetensors file: {error}") from error
            self.start = 8 + length
            self.map = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY)

    @staticmethod
    def _entry(name, entry, room):
        dtype, shape, (begin, end) = _DTYPES[entry["dtype"]], entry["shape"], entry["data_offsets"]
        count = 1
        for extent in shape:
            if not isinstance(extent, int) or extent < 0:
                raise ValueError(f"{name} has the shape {shape}")
            count *= extent
        if not 0 <= begin <= end <= room or end - begin != count * dtype.itemsize:
            raise ValueError(f"the data of {name} is not what its type and shape say")
        return dtype, shape, begin, count

    def tensor(self, name):
        """A tensor over the mapping; a copy where the file's writer did not align it."""
        dtype, shape, begin, count = self.entries[name]
        if not count:
            return torch.empty(shape, dtype=dtype)
        begin += self.start
        if begin % dtype.itemsize:
            data = bytearray(self.map[begin : begin + count * dtype.itemsize])
            return torch.frombuffer(data, dtype=dtype).view(shape)
        return torch.frombuffer(self.map, dtype=dtype, count=count, offset=begin).view(shape)


def files_of(path):
    if not os.path.isdir(path):
        return [File(path)]
    index = os.path.join(path, _INDEX)
    if os.path.exists(index):
        with open(index) as file:
            names = sorted(set(json.load(file)["weight_map"].values()))
        if any(os.path.basename(name) != name for name in names):
            raise ValueError(f"{index} names files of other folders")
        return [File(os.path.join(path, name)) for name in names]
    return [File(os.path.join(path, "model.safetensors"))]


# ---- models ----


def _describe(module):
    return {
        "in_features": module.in_features, "out_features": module.out_features, "type": module.type,
        "group": module.group, "order": module.order is not None,
        "multiplier": module.multiplier is not None, **_kind_of(module),
    }  # fmt: skip


def _kind_of(module):
    stack = {"experts": module.experts} if isinstance(module, Stack) else {}
    if isinstance(module, LowBit8):  # its scales do not say of which type its results are
        own = {"static": module.input_scale is not None, "smooth": module.smoothing is not None}
        return {"activations": module.activations, **own, "dtype": _NAMES[module.dtype], **stack}
    narrow = module.scale_dtype  # nor do those of 8 bits; halves do
    scales = {} if narrow is None else {"scales": NARROW[narrow], "dtype": _NAMES[module.dtype]}
    return {**(stack or {"batch_invariant": module.batch_invariant}), **scales}


def _aligned_first(item):
    """Names of packed weights and scales before others: all their sizes are multiples of 16 bytes."""
    name, tensor = item
    return (tensor.numel() * tensor.element_size() % 16 != 0, not name.endswith(("packed", "scales", "zeros")))


def save(model: torch.nn.Module, folder: str | os.PathLike[str], *, max_shard_bytes: int = 5_000_000_000) -> None:
    """Writes the model's state to a folder, which is made where it is not; tensor by tensor, so without a second copy.

    max_shard_bytes: what a file holds at most, but for one larger tensor. Tensors that several modules share are
    written once. Files of an earlier, larger save are not removed.
    """
    tensors, aliases, seen = {}, {}, {}
    for name, tensor in sorted(model.state_dict().items(), key=_aligned_first):
        key = (tensor.device, tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride())
        if tensor.numel() and key in seen:
            aliases[name] = seen[key]
            continue
        seen[key] = name
        tensors[name] = tensor
    shards, room = [{}], max_shard_bytes
    for name, tensor in tensors.items():
        size = tensor.numel() * tensor.element_size()
        if size > room and shards[-1]:
            shards.append({})
            room = max_shard_bytes
        shards[-1][name] = tensor
        room -= size
    os.makedirs(folder, exist_ok=True)
    modules = {name: _describe(m) for name, m in model.named_modules() if isinstance(m, LowBit)}
    names = ["model.safetensors"]
    if len(shards) > 1:
        names = [f"model-{i + 1:05}-of-{len(shards):05}.safetensors" for i in range(len(shards))]
    for file, shard in zip(names, shards):
        own = {m: modules[m] for m in modules if (f"{m}." if m else "") + "packed" in shard}
        metadata = {"format": "pt", "tilusvm": "1", "modules": json.dumps(own), "aliases": json.dumps(aliases)}
        _write(os.path.join(folder, file), shard, metadata)
    index = os.path.join(folder, _INDEX)
    if len(shards) > 1:
        places = {name: file for file, shard in zip(names, shards) for name in shard}
        total = sum(t.numel() * t.element_size() for t in tensors.values())
        with open(index, "w") as file:
            json.dump({"metadata": {"total_size": total}, "weight_map": places}, file, indent=1)
    elif os.path.exists(index):
        os.unlink(index)


def _place(model, name, value):
    """Puts a tensor where the model's parameter or buffer of that name is; False where there is none."""
    path, _, last = name.rpartition(".")
    try:
        module = model.get_submodule(path)
    except AttributeError:
        return False
    if last in module._parameters:
        old = module._parameters[last]
        value = value if isinstance(value, torch.nn.Parameter) else torch.nn.Parameter(value, requires_grad=False)
        if old is not None and value.shape != old.shape:
            raise ValueError(f"{name} has the shape {list(value.shape)} in the file, {list(old.shape)} in the model")
        module._parameters[last] = value
    elif last in module._buffers:
        module._buffers[last] = value.detach()
    else:
        return False
    return True


def _prepare(model, modules, names):
    """Puts nn.Linear, and Experts, where the files have them."""
    for name, config in modules.items():
        prefix = f"{name}." if name else ""
        sizes, words = (config["in_features"], config["out_features"], prefix + "bias" in names), {}
        own = {"order": config.get("order", False), "multiplier": config.get("multiplier", False)}
        own["dtype"] = config.get("dtype", torch.float16)
        make, words = (Linear, Experts), own
        if "activations" in config:
            make, words = (Linear8, Experts8), {name: config[name] for name in ("activations", "static")}
            words |= {"smooth": config.get("smooth", False), "dtype": _DTYPES[config["dtype"]]}
        elif "experts" not in config:
            words["batch_invariant"] = config.get("batch_invariant", False)
        sizes = (config["experts"], *sizes) if "experts" in config else sizes
        if "scales" in config:
            words |= {"scale_dtype": _NARROW[config["scales"]], "dtype": _DTYPES[config["dtype"]]}
        zeros = prefix + "zeros" in names
        make = make["experts" in config]
        made = make(*sizes, type=config["type"], group=config["group"], zeros=zeros, device="meta", **words)
        _put(model, name, made)


def _put(model, name, made):
    made.train(model.training)
    parent, _, last = name.rpartition(".")
    if name:
        owner = mixture_at(model, parent) if isinstance(made, Stack) else model.get_submodule(parent)
        setattr(owner, last, made)
    elif isinstance(model, type(made)):
        model.__dict__.update(made.__dict__)
    else:
        raise ValueError("the file holds a single layer, the model is none")


def mixture_at(model, name):
    """The MixtureOfExperts of that name, which takes the place of the experts that transformers has there."""
    module = model.get_submodule(name)
    if is_mixture(module):
        parent, _, last = name.rpartition(".")
        module = MixtureOfExperts(module)
        setattr(model.get_submodule(parent), last, module)
    return module


def moved(value, device):
    """A mapped tensor on the device, or as it is, where kernels can read it there."""
    if device is not None and torch.device(device).type != "cpu":
        return value.to(device)
    return value.clone() if value.numel() and value.data_ptr() % 16 else value


class _Waiting:
    """Imported layers that become one module of a model: a layer or a stack by itself, or those of a list of experts.

    layers: by the names of their tensors in the model.
    """

    def __init__(self, name):
        self.name, self.layers = name, {}

    def fill(self, model, tensors_of, dtype=None):
        """tensors_of: a function of a layer's name that gives its tensors, by the last words of their names; dtype: of
        activations, where scales leave it open."""
        (layer,) = self.layers.values()
        _put(model, self.name, layer.layer(tensors_of(self.name), dtype))


class _WaitingList(_Waiting):
    """Experts that a file has one by one, name.0.gate_proj and so on; stacks are made of them, one after the other."""

    def fill(self, model, tensors_of, dtype=None):
        mixture = model.get_submodule(self.name)
        for child in list(mixture._modules):
            if child.isdigit():
                delattr(mixture, child)

        def every(kind):
            return (self.layers[name].layer(tensors_of(name), dtype) for name in self._names(kind))

        count = mixture.num_experts
        first, *second = self.kinds()[:-1]
        stack = None
        if second:
            try:  # as one product
                pairs = zip(every(first), every(second[0]))
                stack = collect((type(pair[0]).cat(pair) for pair in pairs), count)
            except ValueError:  # their types, orders, scales or multipliers
                mixture.up_proj = collect(every(second[0]), count)
        name = "gate_proj" if second and stack is None else "gate_up_proj" if second else "up_proj"
        setattr(mixture, name, stack or collect(every(first), count))
        mixture.down_proj = collect(every(self.kinds()[-1]), count)

    def _names(self, kind):
        return sorted((n for n in self.layers if n.endswith(f".{kind}")), key=lambda n: int(n.split(".")[-2]))

    def kinds(self):
        """The names of the matrices of an expert: gate, up, down; of some gate and up are w1 and w3."""
        found = {name.rpartition(".")[2] for name in self.layers}
        for kinds in (("gate_proj", "up_proj", "down_proj"), ("w1", "w3", "w2"), ("up_proj", "down_proj")):
            if found == set(kinds):
                return kinds
        raise UnsupportedError(f"the experts {self.name} are of the matrices {', '.join(sorted(found))}")

    def check(self, count):
        for kind in self.kinds():
            numbers = [int(name.split(".")[-2]) for name in self._names(kind)]
            if numbers != list(range(count)):
                raise KeyError(f"of the {count} experts of {self.name} the files have the {kind} of {numbers}")


def four_of(activations, device):
    """Which activations of 4 bits are multiplied as they are: those asked for, or those of a GPU that does so."""
    if activations not in (None, *FOUR):
        raise ValueError(f"load: activations must be {', '.join(FOUR)} or None, not {activations!r}")
    if activations is not None:
        return (activations,)
    is_gpu = device is not None and torch.device(device).type == "cuda"
    return tuple(FOUR) if is_gpu and multiplies_four(device_report(device)) else ()


def prepare_imported(model, files, path, four=()):
    """Puts modules without memory where files have imported layers, and what waits for their tensors: a list. four: of
    checkpoint8.layers_of."""
    rename = _renamer(model)
    layers = {rename(n): layer for file in files for n, layer in layers_of(file.path, file.metadata).items()}
    eight = {rename(n): layer for n, layer in checkpoint8.layers_of(path, files, four).items()}
    owners = {name: _experts_of(model, name) for name in (*layers, *eight)}
    matrices = {name: layer for name, layer in eight.items() if owners[name]}
    eight = {name: layer for name, layer in eight.items() if not owners[name]}
    _check_modules(model, eight, path)
    names = {rename(name) for file in files for name in file.entries}
    waiting, plain = {}, {}
    for name, layer in (*layers.items(), *matrices.items()):
        experts = owners[name]
        if experts:
            waiting.setdefault(experts, _WaitingList(experts)).layers[name] = layer
        else:
            waiting.setdefault(name, _Waiting(name)).layers[name] = layer
            plain[name] = layer
    _check_modules(model, plain, path)
    for name, experts in waiting.items():
        if isinstance(experts, _WaitingList):
            mixture = mixture_at(model, name)
            experts.check(mixture.num_experts)
            for layer in experts.layers:
                number, kind = layer.split(".")[-2:]
                child = getattr(mixture, number, None) or torch.nn.Module()
                mixture.add_module(number, child)
                child.add_module(kind, torch.nn.Identity())
    _prepare(model, {name: layer.config(name, names) for name, layer in layers.items()}, names)
    for name, layer in eight.items():
        waiting[name] = _Waiting(name)
        waiting[name].layers[name] = layer
    for name, layer in (*eight.items(), *matrices.items()):
        _put(model, name, layer.placeholder())
    return list(waiting.values())


def _experts_of(model, name):
    """The name of the mixture of which the layer is a matrix of one expert; None of another layer."""
    parts = name.rsplit(".", 2)
    experts = _module(model, parts[0]) if len(parts) == 3 and parts[1].isdigit() else None
    return parts[0] if isinstance(experts, MixtureOfExperts) or is_mixture(experts) else None


def _module(model, name):
    try:
        return model.get_submodule(name)
    except AttributeError:
        return None


def _renamer(model):
    """Names of a checkpoint to those of a model of transformers, which calls some modules otherwise than their files
    do."""
    loading = sys.modules.get("transformers.core_model_loading")
    if loading is None or not hasattr(model, "base_model_prefix"):
        return lambda name: name
    mapping = sys.modules["transformers.conversion_mapping"].get_model_conversion_mapping(model)
    renamings = [each for each in mapping if isinstance(each, loading.WeightRenaming)]
    return lambda name: loading.rename_source_key(name, renamings, [])[0]


def _check_modules(model, layers, path):
    """Is there a linear layer, or a stack of experts, of the right extents for each imported one?"""
    for name, layer in layers.items():
        parent, _, last = name.rpartition(".")
        owner = _module(model, parent)
        if layer.experts and (is_mixture(owner) or isinstance(owner, MixtureOfExperts)):
            _check_stack(owner, last, layer, path)
            continue
        module = _module(model, name)
        if module is None:
            raise KeyError(f"{path} has a layer {name}, the model has none")
        if layer.experts:
            raise UnsupportedError(
                f"layer {name} is a stack of {layer.experts} matrices, in the model a {type(module).__name__}"
            )
        if not isinstance(module, (torch.nn.Linear, Linear, Linear8)):
            raise UnsupportedError(f"layer {name} is a {type(module).__name__} in the model, not a torch.nn.Linear")
        if (module.in_features, module.out_features) != (layer.in_features, layer.out_features):
            raise ValueError(
                f"layer {name} has {layer.in_features} inputs and {layer.out_features} outputs in {path}, "
                f"{module.in_features} and {module.out_features} in the model"
            )


def _check_stack(owner, name, layer, path):
    weight = owner._parameters.get(name)
    if weight is None:
        return
    wanted = [layer.experts, layer.out_features, layer.in_features]
    if getattr(owner, "is_transposed", False):
        wanted[1:] = wanted[:0:-1]
    if list(weight.shape) != wanted:
        raise ValueError(f"layer {layer.name} is of the shape {wanted} in {path}, {list(weight.shape)} in the model")


def _ties(model, names):
    """Of parameters that are missing, others of the model that they are one with."""
    named = list(model.named_parameters(remove_duplicate=False))
    first = {id(parameter): name for name, parameter in named if name in names}
    return {name: first[id(p)] for name, p in named if name not in names and id(p) in first}


def _make_the_rest(model, device, strict):
    """The buffers that no file has, such as those of rotary embedding, of a model from the meta device: those of
    transformers can be made anew. KeyError, where strict, for others."""
    makers = {name: module for name, module in model.named_modules() if hasattr(module, "_init_weights")}
    for name, module in model.named_modules():
        left = [n for n in module._non_persistent_buffers_set if getattr(module._buffers[n], "is_meta", False)]
        owners = [owner for owner in makers if not owner or name == owner or name.startswith(f"{owner}.")]
        if left and owners:
            for parameter in module.parameters(recurse=False):
                parameter._is_hf_initialized = True  # _init_weights leaves it alone
            for n in left:
                module._buffers[n] = torch.empty_like(module._buffers[n], device=device or "cpu")
            makers[max(owners, key=len)]._init_weights(module)
        elif left and strict:
            who = name or "the model"
            raise KeyError(f"{who} has buffers on the meta device that no file has: {left}; make the model on another")


@torch.no_grad()
def load(
    model: torch.nn.Module, path: str | os.PathLike[str], *, device: torch.device | str | None = None,
    strict: bool = True, activations: str | None = None,
) -> torch.nn.Module:  # fmt: skip
    """Gives a model the tensors of a folder, or one file, that save or tvm-pack --from wrote; returns it.

    The model has the shapes of the one that was saved, before quantize_ or after, and may be on the meta device: its
    own tensors are dropped, not filled; buffers of transformers that no file has are made anew. Without a device the
    tensors are the file's mapping, read as they are used and private; with one they are copied there, one by one.
    Parameters need no gradient afterwards. strict: KeyError where the model has tensors that the files have not, or the
    other way.

    Of what tvm-pack imported, each torch.nn.Linear becomes an nn.Linear of the same codes and scales, whose packed
    weights are made here, on the device; its multiplier goes into the scales where they hold the products. Of those a
    layer that no program multiplies is an UnsupportedError that names it.

    So it is with a folder as others wrote it where its config.json says that activations are rounded to 8 bits
    (checkpoint8): each torch.nn.Linear becomes a nn8.Linear8 of the same codes and scales, without tvm-pack. Where it
    says that they are rounded to 4 bits, this is done with activations "nvfp4" or "mxfp4", and, with None, where device
    is a GPU whose tensor cores multiply 4 bits; otherwise it is an UnsupportedError, as tvm-pack imports the weights.
    Experts that such a folder has one by one become a mixture whose activations are rounded so, too.
    """
    files = files_of(os.fspath(path))
    where = {name: (file, name) for file in files for name in file.entries}
    aliases = {a: n for file in files for a, n in json.loads(file.metadata.get("aliases", "{}")).items()}
    modules = {m: c for file in files for m, c in json.loads(file.metadata.get("modules", "{}")).items()}
    waiting = prepare_imported(model, files, path, four_of(activations, device))
    if waiting:
        rename = _renamer(model)
        where = {
            rename(name): (file, name)
            for name, (file, _) in where.items()
            if not checkpoint8.is_of_caches(name.rpartition(".")[2])
        }
    names = {**dict.fromkeys(where), **dict.fromkeys(aliases)}
    _prepare(model, modules, names)
    layers = {name for each in waiting for name in each.layers}
    if layers:
        aliases.update(_ties(model, names))
        names.update(dict.fromkeys(aliases))
    wanted = model.state_dict().keys()
    missing, strange = [n for n in wanted if n not in names], [n for n in names if n not in wanted]
    if any(name.endswith(_OF_OTHERS) for name in strange):
        raise UnsupportedError(
            f"{path} has layers that another program quantized: import it with tvm-pack --from=auto {path} -o FOLDER, "
            f"and load that"
        )
    if strict and (missing or strange):
        raise KeyError(f"of the model's tensors these are not in {path}: {missing}; these are only there: {strange}")
    values, own = {}, {}
    for name, (file, called) in where.items():
        layer, _, last = name.rpartition(".")
        if layer in layers and name in wanted:
            own.setdefault(layer, {})[last] = file, called
        elif name in wanted or name in aliases.values():
            value = moved(file.tensor(called), device)
            values[name] = torch.nn.Parameter(value, requires_grad=False) if value.is_floating_point() else value
    for name in wanted:
        source = aliases.get(name, name)
        if source in values:
            _place(model, name, values[source])
    for each in waiting:
        each.fill(
            model, lambda name: {last: moved(file.tensor(called), device) for last, (file, called) in own[name].items()}
        )
    _make_the_rest(model, device, strict)
    return route_(model)
