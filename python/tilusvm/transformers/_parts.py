"""What layers of models are made of, as tables: norms and their places, rotary embeddings, projections, gated units.

A layer is taken where its parts are known and a Block of them computes what the layer does, on a few tokens of random
numbers: names alone are not trusted. Where it is not, its known parts are taken one by one, and Report says what stays
torch's and why.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
import warnings

import torch

__all__ = [
    "ACTIVATIONS", "PLACES", "TESTED", "Entry", "Parts", "Report", "Unknown", "activation_of", "angles", "compare",
    "eps_of", "layer_types", "norm_kind", "once", "parts_of", "rope_style", "unit_of",
]  # fmt: skip

#: Of the activations in a gated unit, what swiglu calls them.
ACTIVATIONS = {"silu": "silu", "swish": "silu", "gelu_pytorch_tanh": "gelu_tanh", "gelu": "gelu"}

#: Where the norms of a layer stand: the names of that of a layer's input, of what attention adds, of the unit's input,
#: and of what the unit adds. A layer is of the first row whose names are those of all its norms.
PLACES = (
    ("input_layernorm", None, "post_attention_layernorm", None),
    ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"),
    ("input_layernorm", "post_self_attn_layernorm", "post_attention_layernorm", "post_mlp_layernorm"),
    (None, "post_attention_layernorm", None, "post_feedforward_layernorm"),
)

#: The names of a module for the unit behind attention.
UNITS = ("mlp", "feed_forward", "block_sparse_moe")

#: Families that the tests run with, of which layers are not compared again when they are taken.
TESTED = (
    "llama", "qwen2", "qwen3", "gemma2", "gemma3_text", "mistral", "mixtral", "qwen2_moe", "qwen3_moe",
)  # fmt: skip
#: Of these all layers have the window of the configuration.
_ONE_WINDOW = ("mistral", "mixtral", "qwen3_moe", "phi3")


@dataclasses.dataclass
class Unit:
    """Of a gated unit: gate and up, or the layer that has both; down; the name of the activation for swiglu."""

    first: list
    down: object
    activation: str | None
    function: object


@dataclasses.dataclass
class Parts:
    """Of a layer."""

    attention: object
    projections: list  #: q, k, v, or the layer that has all
    sizes: list  #: outputs of q, k, v
    out: object
    head: int
    scale: float
    cap: float
    window: int
    sinks: object  #: f32 [heads], or None
    q_norm: object
    k_norm: object
    wide_norms: bool  #: those norms are of all heads together
    style: str  #: of rope
    norms: list  #: as PLACES
    unit: Unit | None
    mixture: object  #: experts and their router, in the place of the unit


@dataclasses.dataclass
class Entry:
    name: str  #: of a module of the model
    taken: bool
    why: str  #: what it is, or why it stays


class Report(list):
    """Entries. As text: the kinds of what was taken, and each reason why something stays, with how many modules."""

    def add(self, name, taken, why):
        self.append(Entry(name, taken, why))

    def stays(self):
        return [entry for entry in self if not entry.taken]

    def __str__(self):
        lines = []
        for taken, said in ((True, "by this package's kernels"), (False, "by torch")):
            kinds = {}
            for entry in self:
                if entry.taken is taken:
                    kinds.setdefault(entry.why, []).append(entry.name)
            for why, names in kinds.items():
                more = f" and {len(names) - 1} more" if len(names) > 1 else ""
                lines.append(f"{said}: {names[0]}{more}: {why}")
        return "\n".join(lines)


class Unknown(ValueError):
    """Why a layer is not taken."""


# ---- norms ----


def norm_kind(norm) -> str | None:
    """ "weight" where it is RMSNorm with a factor, "weight + 1" where the factor is one more; None for others."""
    weight, eps = getattr(norm, "weight", None), eps_of(norm)
    if (
        not isinstance(weight, torch.Tensor)
        or weight.dim() != 1
        or eps is None
        or getattr(norm, "bias", None) is not None
    ):
        return None
    if weight.is_meta or "gate" in inspect.signature(norm.forward).parameters:
        return None
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(4, weight.shape[0], generator=generator).to(weight.device, weight.dtype)
    with torch.no_grad():
        found = norm(x).double()
    plain = x.double() * torch.rsqrt(x.double().square().mean(-1, keepdim=True) + eps)
    for kind, factor in (("weight", weight.double()), ("weight + 1", weight.double() + 1)):
        if _alike(found, plain * factor, 2e-2):
            return kind
    return None


def eps_of(norm):
    return getattr(norm, "eps", None) or getattr(norm, "variance_epsilon", None)


def _alike(found, wanted, tolerance):
    return bool((found - wanted).abs().max() <= tolerance * wanted.abs().max().clamp(min=1e-6))


# ---- rotary embedding ----


def once(cos: torch.Tensor) -> slice:
    """Of cosines [..., n] those that differ: some models give each twice, one half behind the other or side by side."""
    half = cos.shape[-1] // 2
    if half and torch.equal(cos[..., :half], cos[..., half : 2 * half]):
        return slice(0, half)
    return slice(0, None, 2) if half and torch.equal(cos[..., ::2], cos[..., 1::2]) else slice(None)


def _turned(x, cos, sin, style):
    half = cos.shape[-1]
    x, rest = x[..., : 2 * half].double(), x[..., 2 * half :].double()
    a, b = x.chunk(2, -1) if style == "half" else (x[..., ::2], x[..., 1::2])
    parts = [a * cos - b * sin, b * cos + a * sin]
    out = torch.cat(parts, -1) if style == "half" else torch.stack(parts, -1).flatten(-2)
    return torch.cat([out, rest], -1)


def rope_style(attention, rotary, head) -> str:
    """half or interleaved, as ops.rope has them, by what the function of the attention's module computes. Unknown where
    it is neither."""
    function = getattr(sys.modules[type(attention).__module__], "apply_rotary_pos_emb", None)
    weight = next(attention.parameters(), None)
    weight = next(attention.buffers()) if weight is None else weight
    if function is None:
        raise Unknown("its rotary embedding has no function of a known name")
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1, 1, 5, head, generator=generator).to(weight.device)
    cos, sin = angles(rotary, x, attention)
    found = function(x, x, cos, sin)[0].double()
    own = once(cos)
    cos, sin = (part[..., own].double()[:, None] for part in (cos, sin))
    for style in ("half", "interleaved") if 2 * cos.shape[-1] <= head else ():
        if _alike(found, _turned(x, cos, sin, style), 1e-3):
            return style
    raise Unknown("its rotary embedding is neither of halves nor interleaved")


def angles(rotary, x, attention=None, positions=None):
    """The cosines and sines of positions (0, 1, ... of x), in x's type, of the kind of the attention's layer."""
    if positions is None:
        positions = torch.arange(x.shape[-2], device=x.device)[None]
    words = {}
    if hasattr(rotary, "layer_types"):
        kinds = layer_types(rotary.config)
        words["layer_type"] = kinds[getattr(attention, "layer_idx", 0)]
    found = rotary(x, position_ids=positions, **words)
    if not isinstance(found, tuple):
        raise Unknown("its rotary embedding is of complex numbers")
    return found


def layer_types(config):
    return getattr(config, "layer_types", None) or ["full_attention"] * config.num_hidden_layers


# ---- a layer ----


def unit_of(module, config) -> Unit:
    """The parts of a gated unit; Unknown for another."""
    function = getattr(module, "act_fn", None) or getattr(module, "activation_fn", None)
    if function is None or not hasattr(module, "down_proj"):
        raise Unknown(f"{type(module).__name__} is no gated unit")
    if hasattr(module, "gate_proj") and hasattr(module, "up_proj"):
        first = [module.gate_proj, module.up_proj]
    elif hasattr(module, "gate_up_proj") and isinstance(module.gate_up_proj, torch.nn.Module):
        first = [module.gate_up_proj]
    else:
        raise Unknown(f"{type(module).__name__} is no gated unit")
    return Unit(first, module.down_proj, ACTIVATIONS.get(activation_of(config)), function)


def activation_of(config):
    return getattr(config, "hidden_activation", None) or getattr(config, "hidden_act", None)


def unit_module(layer):
    return next((getattr(layer, name) for name in UNITS if hasattr(layer, name)), None)


def places_of(layer):
    """The norms of a layer as PLACES, None where there is none."""
    names = {name for name, child in layer.named_children() if "norm" in name}
    for row in PLACES:
        if names == {name for name in row if name}:
            return [None if name is None else getattr(layer, name) for name in row]
    raise Unknown(f"its norms are {', '.join(sorted(names)) or 'none'}, which is no known arrangement")


def _window(attention, index, config):
    if config.model_type in _ONE_WINDOW:
        return int(config.sliding_window or 0)
    kinds = getattr(config, "layer_types", None)
    if config.model_type in TESTED or kinds is None and hasattr(attention, "sliding_window"):
        return int(getattr(attention, "sliding_window", None) or 0)
    if kinds is None:
        return int(getattr(config, "sliding_window", None) or 0)
    if kinds[index] not in ("full_attention", "sliding_attention"):
        raise Unknown(f"its attention is of the kind {kinds[index]}")
    return int(config.sliding_window or 0) if kinds[index] == "sliding_attention" else 0


def parts_of(layer, index, config, rotary, own) -> Parts:
    """Of a decoder layer; own: of a linear layer this rank's part. Unknown with the reason for one that is made of
    something else."""
    attention = getattr(layer, "self_attn", None)
    unit = unit_module(layer)
    if attention is None or unit is None:
        raise Unknown("it has no attention and unit of known names")
    if hasattr(attention, "kv_b_proj"):
        raise Unknown("its attention is latent (MLA), for which there is no layer")
    head = getattr(attention, "head_dim", None)
    if head is None or not hasattr(attention, "o_proj"):
        raise Unknown("its attention has no heads and output of known names")
    if getattr(attention, "is_causal", True) is not True:
        raise Unknown("its attention is not causal")
    if hasattr(attention, "q_proj"):
        projections = [own(getattr(attention, name)) for name in ("q_proj", "k_proj", "v_proj")]
        sizes = [part.out_features for part in projections]
    elif hasattr(attention, "qkv_proj"):
        projections = [own(attention.qkv_proj)]
        kv = config.num_key_value_heads * head
        sizes = [projections[0].out_features - 2 * kv, kv, kv]
    else:
        raise Unknown("its attention has no projections of known names")
    for name in ("qk_norm", "attn_temperature_tuning", "gate_proj", "g_proj", "rotary_emb"):
        if getattr(attention, name, None):
            raise Unknown(f"its attention has {name}")
    q_norm, k_norm = (getattr(attention, name, None) for name in ("q_norm", "k_norm"))
    for norm, whole in ((q_norm, sizes[0]), (k_norm, sizes[1])):
        if norm is not None and norm.weight.shape[0] not in (head, whole):
            raise Unknown(f"its norms of heads are of {norm.weight.shape[0]} elements")
    wide = q_norm is not None and q_norm.weight.shape[0] != head
    sinks = getattr(attention, "sinks", None)
    sinks = sinks.to_local() if hasattr(sinks, "to_local") else sinks  # of a model that transformers splits
    if sinks is not None and sinks.shape[0] != sizes[0] // head:
        raise Unknown(f"it has sinks of {sinks.shape[0]} heads, and {sizes[0] // head} heads")
    experts = hasattr(unit, "experts")
    if hasattr(layer, "self_attn_layer_scale") or getattr(config, "residual_multiplier", 1.0) != 1.0:
        raise Unknown("it scales what it adds")
    return Parts(
        attention=attention, projections=projections, sizes=sizes, out=attention.o_proj, head=head,
        scale=float(attention.scaling), cap=float(getattr(attention, "attn_logit_softcapping", None) or 0.0),
        window=_window(attention, index, config), sinks=sinks, q_norm=q_norm, k_norm=k_norm,
        wide_norms=wide, style="half" if config.model_type in TESTED else rope_style(attention, rotary, head),
        norms=places_of(layer), unit=None if experts else unit_of(unit, config), mixture=unit if experts else None,
    )  # fmt: skip


# ---- is it the same? ----


@torch.no_grad()
def compare(layer, block, config, rotary, hidden, dtype, device) -> str | None:
    """Runs a layer of transformers and what is to be in its place on a few tokens; what is wrong, or None.

    Routers choose other experts where scores are nearly equal: of a mixture three tokens of four are to be alike.
    """
    generator = torch.Generator().manual_seed(1)
    tokens = 12
    x = torch.randn(1, tokens, hidden, generator=generator).to(device, dtype)
    at = torch.arange(tokens, device=device)
    seen = at <= at[:, None]
    if window := getattr(block, "window", 0):
        seen = seen & (at > at[:, None] - window)
    mask = torch.zeros(1, 1, tokens, tokens, dtype=dtype, device=device).masked_fill(~seen, torch.finfo(dtype).min)
    words = {
        "attention_mask": mask, "position_ids": at[None], "position_embeddings": angles(rotary, x, layer.self_attn),
    }  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            wanted, found = (each(x, **words) for each in (layer, block))
        except (AttributeError, RuntimeError, TypeError, ValueError) as error:
            return f"it cannot be called by itself ({type(error).__name__})"
    wanted, found = ((each[0] if isinstance(each, tuple) else each) for each in (wanted, found))
    wanted, found = ((each - x).double().flatten(0, 1) for each in (wanted, found))
    error = (wanted - found).abs().amax(-1) / wanted.abs().max().clamp(min=1e-6)
    share = float((error <= 3e-2).double().mean())
    if share >= (0.75 if block.mixture is not None else 1.0):
        return None
    return "a layer of its parts gives something else"
