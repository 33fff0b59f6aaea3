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

import torch

from . import UnsupportedError
from .checkpoint import layers_of
from .nn import Linear

__all__ = ["save", "load"]

_NAMES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
    torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
    torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2",
}  # fmt: skip
_DTYPES = {name: dtype for dtype, name in _NAMES.items()}
_INDEX = "model.safetensors.index.json"
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
        "group": module.group, "batch_invariant": module.batch_invariant, "order": module.order is not None,
        "multiplier": module.multiplier is not None,
    }  # fmt: skip


def _aligned_first(item):
    """Names of packed weights and scales before others: all their sizes are multiples of 16 bytes."""
    name, tensor = item
    return (tensor.numel() * tensor.element_size() % 16 != 0, not name.endswith(("packed", "scales", "zeros")))


def save(model, folder, *, max_shard_bytes=5_000_000_000):
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
    modules = {name: _describe(m) for name, m in model.named_modules() if isinstance(m, Linear)}
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
    """Puts nn.Linear where the files have them."""
    for name, config in modules.items():
        prefix = f"{name}." if name else ""
        made = Linear(
            config["in_features"],
            config["out_features"],
            prefix + "bias" in names,
            type=config["type"],
            group=config["group"],
            zeros=prefix + "zeros" in names,
            batch_invariant=config["batch_invariant"],
            order=config.get("order", False),
            multiplier=config.get("multiplier", False),
            dtype=config.get("dtype", torch.float16),
            device="meta",
        )
        _put(model, name, made)


def _put(model, name, made):
    made.train(model.training)
    parent, _, last = name.rpartition(".")
    if name:
        setattr(model.get_submodule(parent), last, made)
    elif isinstance(model, Linear):
        model.__dict__.update(made.__dict__)
    else:
        raise ValueError("the file holds a single layer, the model is none")


def moved(value, device):
    """A mapped tensor on the device, or as it is, where kernels can read it there."""
    if device is not None and torch.device(device).type != "cpu":
        return value.to(device)
    return value.clone() if value.numel() and value.data_ptr() % 16 else value


def prepare_imported(model, files, path):
    """Puts nn.Linear without memory where files have imported layers, which are returned, by name."""
    layers = {name: layer for file in files for name, layer in layers_of(file.path, file.metadata).items()}
    names = {name for file in files for name in file.entries}
    _check_modules(model, layers, path)
    _prepare(model, {name: layer.config(names) for name, layer in layers.items()}, names)
    return layers


def fill_imported(model, layer, tensors):
    """Puts the nn.Linear of an imported layer's tensors, by the ends of their names, where it belongs."""
    _put(model, layer.name, layer.linear(tensors))


def _check_modules(model, layers, path):
    """Is there a linear layer of the right extents for each imported one?"""
    for name, layer in layers.items():
        try:
            module = model.get_submodule(name)
        except AttributeError:
            raise KeyError(f"{path} has a layer {name}, the model has none") from None
        if not isinstance(module, (torch.nn.Linear, Linear)):
            raise UnsupportedError(f"layer {name} is a {type(module).__name__} in the model, not a torch.nn.Linear")
        if (module.in_features, module.out_features) != (layer.in_features, layer.out_features):
            raise ValueError(
                f"layer {name} has {layer.in_features} inputs and {layer.out_features} outputs in {path}, "
                f"{module.in_features} and {module.out_features} in the model"
            )


def _ties(model, names):
    """Of parameters that are missing, others of the model that they are one with."""
    named = list(model.named_parameters(remove_duplicate=False))
    first = {id(parameter): name for name, parameter in named if name in names}
    return {name: first[id(p)] for name, p in named if name not in names and id(p) in first}


@torch.no_grad()
def load(model, path, *, device=None, strict=True):
    """Gives a model the tensors of a folder, or one file, that save or tvm-pack --from wrote; returns it.

    The model has the shapes of the one that was saved, before quantize_ or after, and may be on the meta device: its
    own tensors are dropped, not filled. Without a device the tensors are the file's mapping, read as they are used
    and private; with one they are copied there, one by one. Parameters need no gradient afterwards. strict: KeyError
    where the model has tensors that the files have not, or the other way.

    Of what tvm-pack imported, each torch.nn.Linear becomes an nn.Linear of the same codes and scales, whose packed
    weights are made here, on the device; its multiplier goes into the scales where they hold the products. Of those a
    layer that no program multiplies is an UnsupportedError that names it.
    """
    files = files_of(os.fspath(path))
    where = {name: file for file in files for name in file.entries}
    aliases = {a: n for file in files for a, n in json.loads(file.metadata.get("aliases", "{}")).items()}
    modules = {m: c for file in files for m, c in json.loads(file.metadata.get("modules", "{}")).items()}
    layers = prepare_imported(model, files, path)
    names = {**dict.fromkeys(where), **dict.fromkeys(aliases)}
    _prepare(model, modules, names)
    if layers:
        aliases.update(_ties(model, names))
        names.update(dict.fromkeys(aliases))
    wanted = model.state_dict().keys()
    missing, strange = [n for n in wanted if n not in names], [n for n in names if n not in wanted]
    if strict and (missing or strange):
        raise KeyError(f"of the model's tensors these are not in {path}: {missing}; these are only there: {strange}")
    values, own = {}, {}
    for name, file in where.items():
        layer, _, last = name.rpartition(".")
        if layer in layers and name in wanted:
            own.setdefault(layer, {})[last] = file
        elif name in wanted or name in aliases.values():
            value = moved(file.tensor(name), device)
            values[name] = torch.nn.Parameter(value, requires_grad=False) if value.is_floating_point() else value
    for name in wanted:
        source = aliases.get(name, name)
        if source in values:
            _place(model, name, values[source])
    for name, parts in own.items():
        tensors = {last: moved(file.tensor(f"{name}.{last}"), device) for last, file in parts.items()}
        fill_imported(model, layers[name], tensors)
    return model
