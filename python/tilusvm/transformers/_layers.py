"""Blocks in the layers of a model of transformers, which goes on to work as before: forward, generate, its caches."""

from __future__ import annotations

import sys
import warnings

import torch
from transformers.cache_utils import Cache
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from .._attention import HEADS
from ..ops import attention
from ._attention import NAME, attend_cached
from ._block import Block, GatedUnit, Norm, Options, check_layers, text_config
from ._cache import ARGUMENT, PagedCache
from ._decoder import Context
from ._linear import take_mixer
from ._parts import TESTED, Report, Unknown, angles, compare, norm_kind, once, unit_of

__all__ = ["accelerate_"]


class _Shared:
    """What the layers of a model know of its present call."""

    def __init__(self, own):
        self.plain = True  #: no padding
        self.own = own  #: of the model's cosines and sines those that differ
        self._of = self._table = None

    def table(self, embeddings):
        """The rotation of each token, f32 [tokens, head], from the model's cosines and sines: once a call and kind."""
        cos, sin = embeddings
        if torch.compiler.is_compiling():  # what a CUDA graph of torch.compile makes is not to be kept beyond it
            return self._joined(cos, sin)
        if self._of is not cos:
            self._of, self._table = cos, self._joined(cos, sin)
        return self._table

    def _joined(self, cos, sin):
        table = torch.cat([cos[..., self.own], sin[..., self.own]], -1).float()
        return table.reshape(-1, table.shape[-1]).contiguous()


class Layer(Block):
    """A Block with the face of a decoder layer of transformers."""

    def __init__(self, layer, index, config, options, rotary, shared):
        super().__init__(layer, index, config, options, rotary)
        self._shared = [shared]  # no module: not copied, not listed
        self._attention = layer.self_attn
        self._eager = sys.modules[type(layer.self_attn).__module__].eager_attention_forward
        self.attention_type = getattr(layer, "attention_type", None)

    def forward(
        self, hidden_states, attention_mask=None, position_ids=None, past_key_values=None, use_cache=False,
        position_embeddings=None, cache=None, **kwargs,
    ):  # fmt: skip
        batch, new, _ = hidden_states.shape
        cache = past_key_values if cache is None else cache
        shared, device = self._shared[0], hidden_states.device
        table = shared.table(position_embeddings)
        positions = torch.arange(table.shape[0], dtype=torch.int32, device=device)
        if table.shape[0] != batch * new:
            positions = positions.repeat(batch)
        starts = torch.arange(batch + 1, dtype=torch.int32, device=device) * new
        context = Context(new, positions, table, starts, cache, absolute=False)
        if isinstance(cache, PagedCache):
            if self.index == 0:
                cache.check(batch, hidden_states.dtype, device)
                cache.advance(new)
            if context.new > self.few_queries and cache.tokens != new:
                options = {"window": self.window, "scale": self.scale, "cap": self.cap, "sinks": self.sinks}
                context.attend = lambda block, q, k, v: attend_cached(cache, self.index, q, new, **options)
        else:
            context.attend = lambda block, q, k, v: self._attend_with(context, attention_mask, q, k, v, kwargs)
        x = hidden_states.reshape(batch * new, -1)
        x, residual = self.run(x, None, context)
        x = x if self.after_mlp is None else self.after_mlp(x)
        return (x + residual).view(hidden_states.shape)

    def _attend_with(self, context, mask, q, k, v, words):
        """By this package where all keys are new and none is padding, else as the model's configuration says. words:
        what the model was called with beside, such as the pages of continuous batching."""
        cache, new = context.cache, context.new
        batch = q.shape[0] // new
        q4, k4, v4 = (t.view(batch, new, -1, self.head).transpose(1, 2) for t in (q, k, v))
        fresh = "cu_seq_lens_q" not in words and (cache is None or cache.get_seq_length(self.index) == 0)
        if isinstance(cache, Cache):
            k4, v4 = cache.update(k4, v4, self.index)
        elif cache is not None and ARGUMENT == "cache":  # pages of continuous batching
            k4, v4 = cache.update(k4, v4, self.index, kwargs=words)
        elif cache is not None:
            words["cache"] = cache
        if fresh and self._shared[0].plain and self.options.attention:
            out, _ = attention(
                q, k, v, context.starts, context.starts, longest=new, scale=self.scale,
                left=self.window - 1 if self.window else -1, right=0, cap=self.cap, sinks=self.wide_sinks,
            )  # fmt: skip
            return out
        name = self._attention.config._attn_implementation
        function = ALL_ATTENTION_FUNCTIONS.get(name, self._eager)
        words = {**words, "sliding_window": self.window or None, "softcap": self.cap or None}
        words |= {} if self.sinks is None else {"s_aux": self.sinks}
        return function(self._attention, q4, k4, v4, mask, dropout=0.0, scaling=self.scale, **words)[0]


def _before_call(shared):
    def hook(module, args, kwargs):
        mask, caches = kwargs.get("attention_mask"), [kwargs.get(name) for name in ("cache", "past_key_values")]
        if isinstance(mask, torch.Tensor) and mask.dim() == 2:
            shared.plain = bool(mask.all())
            if shared.plain:
                kwargs["attention_mask"] = None
        else:
            shared.plain = mask is None
        if not shared.plain and any(isinstance(cache, PagedCache) for cache in caches):
            raise ValueError("a PagedCache has no padding: all of attention_mask is to be 1")
        return args, kwargs

    return hook


@torch.no_grad()
def accelerate_(model, *, norms=True, rotary=True, mlp=True, attention=True, merge=True):
    """Puts this package's kernels into a causal language model of transformers, in place, and returns it.

    In float16 or bfloat16, for inference. norms: RMSNorm, with the sum before it; rotary: rotary embedding; mlp: the
    gated unit; attention: of prompts, and with a PagedCache of all tokens; other caches, and padding, leave it to the
    configuration's. merge: q, k and v as one product, gate and up as one. Linear layers stay what they are: quantize_
    them, before or after without merge.

    Layers are taken that are made of known parts: those of Llama, Qwen 2 and 3, Gemma 2 and 3, Mistral, Phi-3, GLM-4,
    OLMo 2 and their like, Mixtral, Qwen 2 and 3 MoE and gpt-oss; linear attention of Qwen3-Next and the mixers of Mamba 2
    (attention), where there is no padding. Where a layer of another family is found to compute something else than its
    parts say, or has parts that are not known, such as latent attention (absorb_), its norms and gated units are taken
    one by one, and its attention by its name, if it has one; the rest stays torch's. A warning says what stays;
    model.tilusvm_report, a Report, has all of it.

    ValueError for models that have no layers where Llama has them, and for heads of the families named in TESTED that
    attention does not take (64, 80, 96, 128 or 256 elements), which attention=False leaves to torch.
    """
    options = Options(norms=norms, rotary=rotary, mlp=mlp, attention=attention, merge=merge)
    if hasattr(model, "backbone"):
        return _accelerate_mixers(model, options)
    config = text_config(model)
    body = model.model
    if any(isinstance(layer, Layer) for layer in body.layers) or hasattr(model, "tilusvm_report"):
        raise ValueError("the model has been accelerated before")
    if config.model_type in TESTED:
        check_layers(body.layers, config, mlp=mlp, attention=attention, hint=": attention=False leaves it to torch")
    report, shared = Report(), _Shared(_own_angles(body))
    for i, layer in enumerate(body.layers):
        name = f"model.layers.{i}"
        try:
            body.layers[i] = _taken(layer, i, config, options, body, shared)
            report.add(name, True, f"layers of {type(layer).__name__}")
        except Unknown as why:
            if hasattr(layer, "self_attn"):
                report.add(f"{name}.self_attn", False, f"{type(layer).__name__}: {why}")
            if not _take_parts(layer, name, config, options, report) and not hasattr(layer, "self_attn"):
                report.add(name, False, f"{type(layer).__name__}: {why}")
    if norms:
        body.norm = Norm(body.norm)
    if attention and report.stays() and model.config._attn_implementation != NAME:
        _attention_by_name(model, report)
    if any(isinstance(layer, Layer) for layer in body.layers):
        body.register_forward_pre_hook(_before_call(shared), with_kwargs=True)
    model.tilusvm_report = report
    if report.stays():
        warnings.warn(f"not all of the model is accelerated:\n{report}", stacklevel=2)
    return model


def _accelerate_mixers(model, options):
    """accelerate_ of a model whose layers are a norm and a mixer each, as Mamba's: parts are taken one by one. The last
    norm stays: it is of a residual in f32, with weights of another type."""
    body, report = model.backbone, Report()
    if hasattr(model, "tilusvm_report"):
        raise ValueError("the model has been accelerated before")
    for i, layer in enumerate(body.layers):
        name = f"backbone.layers.{i}"
        if not _take_parts(layer, name, model.config, options, report) and options.attention:
            report.add(name, False, f"{type(layer).__name__}: it has no mixer that is known")
    model.tilusvm_report = report
    if report.stays():
        warnings.warn(f"not all of the model is accelerated:\n{report}", stacklevel=3)
    return model


def _own_angles(body):
    weight = body.embed_tokens.weight
    try:
        return once(angles(body.rotary_emb, torch.empty(1, 8, 1, dtype=torch.float32, device=weight.device))[0])
    except Unknown:  # no layer is taken
        return slice(None)


def _taken(layer, index, config, options, body, shared):
    """The Layer in the place of one; Unknown where it is not the same."""
    made = Layer(layer, index, config, options, body.rotary_emb, shared)
    if config.model_type in TESTED:
        return made
    if options.attention and (made.head, made.head) not in HEADS:
        raise Unknown(f"heads have {made.head} elements")
    weight = body.embed_tokens.weight
    why = compare(layer, made, config, body.rotary_emb, weight.shape[1], weight.dtype, weight.device)
    if why is not None:
        raise Unknown(why)
    return made


def _take_parts(layer, name, config, options, report):
    """Puts Norm and GatedUnit in the place of the modules of a layer that they are the same as, and has its mixer
    compute by this package; was there one?"""
    mixers = 0
    for path, module in list(layer.named_modules()):
        owner, _, last = path.rpartition(".")
        made = None
        kind = take_mixer(module) if options.attention and path else None
        if kind is not None:
            mixers += 1
            report.add(f"{name}.{path}", True, f"{kind} of {type(module).__name__}")
        if options.norms and "norm" in last and norm_kind(module) is not None:
            made = Norm(module)
            report.add(f"{name}.{path}", True, f"norms of {type(module).__name__}")
        elif options.mlp and path:
            try:
                unit = unit_of(module, config)
            except Unknown:
                continue
            if unit.activation is not None:
                made = GatedUnit(unit, options.merge)
                report.add(f"{name}.{path}", True, f"gated units of {type(module).__name__}")
        if made is not None:
            setattr(layer.get_submodule(owner), last, made)
    return mixers > 0


def _attention_by_name(model, report):
    """Of layers that stay, the attention alone."""
    if not model._can_set_attn_implementation():
        return
    model.set_attn_implementation(NAME)
    for entry in report.stays():
        entry.why += f"; between its projections attn_implementation={NAME!r} attends"
