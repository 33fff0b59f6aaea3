"""A decoder layer of this package's kernels, in the place of one of the Llama, Qwen 2 and 3, Gemma 2 and 3 and Mistral
families of transformers, or of the mixtures Mixtral and Qwen 2 and 3 MoE, whose routers and experts stay modules of the
model.

    x, residual -> norm(residual += [norm](x)) -> q, k, v -> norms of heads -> rotary embedding -> cache, attention
                -> projection -> norm(residual += [norm](x)) -> gate, up -> activation -> down -> x, residual

What a layer adds to the residual is added where the next norm reads it, in one launch, so that a layer gives two
tensors; of Gemma it is normalized before, by weights of the layer that gave it.
"""

from __future__ import annotations

import copy

import torch

from .. import nn, parallel
from .._attention import check_heads
from ..ops import INNER_COLUMNS, add_rms_norm, attention, attention_decode, rms_norm, rope, swiglu
from ._cache import PagedCache

__all__ = ["Block", "Options"]

FAMILIES = ("llama", "qwen2", "qwen3", "gemma2", "gemma3_text", "mistral", "mixtral", "qwen2_moe", "qwen3_moe")
#: Of these all layers have the window of the configuration.
_ONE_WINDOW = ("mistral", "mixtral", "qwen3_moe")

_ACTIVATIONS = {"silu": "silu", "gelu_pytorch_tanh": "gelu_tanh", "gelu": "gelu"}


def text_config(model):
    """The configuration of a causal language model of these families; TypeError or ValueError for others."""
    config = getattr(model, "config", None)
    if not hasattr(config, "get_text_config"):
        raise TypeError(f"model must be a model of transformers, not {type(model).__name__}")
    config = config.get_text_config()
    if config.model_type not in FAMILIES:
        raise ValueError(f"the model is of the family {config.model_type}, not one of {', '.join(FAMILIES)}")
    return config


def check_layers(layers, config, *, mlp, attention=True, hint=""):
    """ValueError where Blocks cannot be in the place of a model's layers, with the reason and the hint, before any is
    made. mlp, attention: whether these are by this package's kernels."""
    for i, layer in enumerate(layers):
        if isinstance(layer, Block):
            head = layer.head
        elif hasattr(getattr(layer, "self_attn", None), "head_dim"):
            head = layer.self_attn.head_dim
        else:
            raise ValueError(f"layer {i} of the model has no attention: has a Decoder with consume=True taken it?")
        if attention:
            try:
                check_heads(f"layer {i} of the model", head, head)
            except ValueError as error:
                raise ValueError(f"{error}{hint}") from None
    name = activation_of(config)
    if mlp and name not in _ACTIVATIONS:
        known = ", ".join(_ACTIVATIONS)
        raise ValueError(f"the model's activation is {name}, not one of {known}: mlp=False leaves it to torch")


def activation_of(config):
    return getattr(config, "hidden_activation", None) or config.hidden_act


class Options:
    """What of a model this package does: norms, rotary, mlp, attention; merge: q, k, v and gate, up as one product
    each."""

    def __init__(self, *, norms=True, rotary=True, mlp=True, attention=True, merge=True):
        self.norms, self.rotary, self.mlp, self.attention, self.merge = norms, rotary, mlp, attention, merge


class Norm(torch.nn.Module):
    """RMSNorm by rms_norm and add_rms_norm; of Gemma the factor is one more than the weight."""

    def __init__(self, norm, fused=True):
        super().__init__()
        plus_one = type(norm).__name__.startswith("Gemma")
        self.eps = getattr(norm, "eps", None) or norm.variance_epsilon
        weight = norm.weight.detach()
        self.weight = torch.nn.Parameter((1.0 + weight.float()).to(weight.dtype) if plus_one else weight, False)
        self.reference = None if fused else norm

    def forward(self, x, residual=None, inner=None):
        """norm(x), or norm(residual += x), or norm(residual += inner(x)) for another Norm."""
        if inner is not None and (self.reference is not None or not self._takes(inner, x)):
            x, inner = inner(x), None
        if self.reference is not None:
            return self.reference(x if residual is None else residual.add_(x))
        if residual is None:
            return rms_norm(x.contiguous(), self.weight, self.eps)
        return add_rms_norm(x, residual, self.weight, self.eps, None if inner is None else inner.weight)

    def _takes(self, inner, x):
        return inner.eps == self.eps and x.shape[-1] <= INNER_COLUMNS


def early(layer):
    """The layer, with the same weights, for where the launch before it writes none: see nn.Linear."""
    if type(layer) is not nn.Linear:
        return layer
    layer = copy.copy(layer)
    layer.early = True
    return layer


def _own(layer):
    """Of a layer that has a part of the outputs on each rank: this rank's."""
    is_part = isinstance(layer, parallel.ColumnParallelLinear) and not layer.gather_output
    return layer.linear if is_part else layer


def _merged(parts):
    """One Linear that gives what all give, side by side; None where they are not alike."""
    if all(type(part) is torch.nn.Linear for part in parts):
        bias = parts[0].bias is not None
        if any((part.bias is not None) != bias for part in parts):
            return None
        whole = torch.nn.Linear(1, 1, bias=bias, device="meta")
        whole.weight = torch.nn.Parameter(torch.cat([part.weight.detach() for part in parts]), False)
        if bias:
            whole.bias = torch.nn.Parameter(torch.cat([part.bias.detach() for part in parts]), False)
        whole.in_features, whole.out_features = parts[0].in_features, whole.weight.shape[0]
        return whole
    if not all(type(part) is nn.Linear for part in parts):
        return None
    try:
        return nn.Linear.cat(parts)
    except ValueError:  # their types, groups or sizes
        return None


class _Side(torch.nn.Module):
    """Linear layers of one input: one product where they can be merged. Gives the whole, [tokens, sum of outputs]."""

    def __init__(self, parts, merge):
        super().__init__()
        self.sizes = [part.out_features for part in parts]
        whole = _merged(parts) if merge else None
        self.parts = torch.nn.ModuleList(map(early, parts if whole is None else [whole]))

    def forward(self, x):
        found = [part(x) for part in self.parts]
        return found[0] if len(found) == 1 else torch.cat(found, -1)

    def split(self, x):
        """The output of each, contiguous."""
        found = [part(x) for part in self.parts]
        if len(found) > 1 or len(self.sizes) == 1:
            return found
        views = found[0].split(self.sizes, -1)
        if x.shape[0] == 1:
            return views
        out = [torch.empty(view.shape, dtype=view.dtype, device=view.device) for view in views]
        torch.split_with_sizes_copy(found[0], self.sizes, -1, out=out)
        return out


def _turned(x, positions, table):
    """What rope does, by torch."""
    cos, sin = (part[:, None] for part in table[positions.long()].chunk(2, -1))
    a, b = x.float().chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(x.dtype)


class Block(torch.nn.Module):
    """Of a decoder layer, whose weights it takes."""

    #: So many new tokens of a sequence at most go through attention_decode, which reads the cache; more, attention.
    few_queries = 8

    def __init__(self, layer, index, config, options):
        super().__init__()
        attn, mlp = layer.self_attn, layer.mlp
        self.index, self.options = index, options
        self.head = attn.head_dim
        q, k, v = (_own(part) for part in (attn.q_proj, attn.k_proj, attn.v_proj))
        self.heads, self.kv_heads = q.out_features // self.head, k.out_features // self.head
        self.scale = float(attn.scaling)
        self.cap = float(getattr(attn, "attn_logit_softcapping", None) or 0.0)
        whole = config.model_type in _ONE_WINDOW
        self.window = int((config.sliding_window if whole else getattr(attn, "sliding_window", None)) or 0)
        self.activation = _ACTIVATIONS.get(activation_of(config))
        self.qkv = _Side([q, k, v], options.merge)
        self.out = early(attn.o_proj)
        self.mixture = mlp if hasattr(mlp, "experts") else None
        if self.mixture is None:
            self.act = mlp.act_fn
            self.gate_up = _Side([_own(mlp.gate_proj), _own(mlp.up_proj)], options.merge)
            self.down = early(mlp.down_proj)

        def norm(owner, name):
            found = getattr(owner, name, None)
            return None if found is None else Norm(found, options.norms)

        self.before = norm(layer, "input_layernorm")
        self.q_norm, self.k_norm = norm(attn, "q_norm"), norm(attn, "k_norm")
        four = hasattr(layer, "pre_feedforward_layernorm")  # of Gemma: norms of what is added, too
        self.after_attention = norm(layer, "post_attention_layernorm") if four else None
        self.before_mlp = norm(layer, "pre_feedforward_layernorm" if four else "post_attention_layernorm")
        self.after_mlp = norm(layer, "post_feedforward_layernorm") if four else None

    def forward(self, *args):
        return self.run(*args)

    def run(self, x, residual, context, inner=None):
        """x [tokens, hidden], residual as x or None at the first layer; the same of the next. inner: the Norm of x
        before it is added, after_mlp of the layer that gave it."""
        if residual is None:
            residual = x.clone()
            h = self.before(x)
        else:
            h = self.before(x, residual, inner)
        x = self.out(self._attend(h, context))
        h = self.before_mlp(x, residual, self.after_attention)
        return self._mlp(h), residual

    def first_launches(self, x, context):
        """Functions of no arguments that launch, all of them together, what a call with this x launches, on data of no
        account: for threads, each of which waits for the code of some of the kernels. The cache's newest tokens are
        lost."""
        rows, options = x.shape[0], self.options
        heads = [x.new_zeros(rows, count, self.head) for count in (self.heads, self.kv_heads, self.kv_heads)]
        flat = heads[0].view(rows, -1)
        norms = [(self.before, self.after_mlp), (self.before_mlp, self.after_attention)]
        jobs = [lambda: self.before(x), *(lambda n=n, i=i: n(x, x.clone(), i) for n, i in norms)]
        jobs += [lambda: self._attend(x, context), lambda: self._attended(*heads, context)]
        jobs.append(lambda: self.out(flat))
        if self.mixture is not None:
            return [*jobs, lambda: self._mlp(x)]
        wide = x.new_zeros(rows, 2 * self.gate_up.sizes[0])
        jobs += [lambda: self.gate_up(x), lambda: self.down(wide[:, : wide.shape[1] // 2])]
        return [*jobs, lambda: swiglu(wide, self.activation)] if options.mlp else jobs

    def _mlp(self, h):
        if self.mixture is not None:
            return self.mixture(h[None])[0]
        return self.down(self._gated(h))

    def _gated(self, h):
        both = self.gate_up(h)
        if self.options.mlp:
            return swiglu(both, self.activation)
        gate, up = both.chunk(2, -1)
        return self.act(gate) * up

    def _heads(self, h):
        tokens = h.shape[0]
        q, k, v = self.qkv.split(h)
        q = q.reshape(tokens, self.heads, self.head)
        k, v = (part.reshape(tokens, self.kv_heads, self.head) for part in (k, v))
        if self.q_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        return q, k, v

    def _attend(self, h, context):
        cache, table = context.cache, context.table
        few = self._few(context)
        at_once = few and self.options.rotary and context.absolute and cache.format.turns
        if at_once and self.q_norm is None:
            q, k, v = cache.append_all(self.index, self.qkv(h), table), None, None
        else:
            q, k, v = self._heads(h)
            turn = rope if self.options.rotary else _turned
            q = turn(q, context.positions, table)
            k = k if at_once else turn(k, context.positions, table)
            if isinstance(cache, PagedCache):
                cache.append(self.index, k, v, table if at_once else None, context.starts, context.new)
        return self._attended(q, k, v, context)

    def _few(self, context):
        return isinstance(context.cache, PagedCache) and context.even and context.new <= self.few_queries

    def _attended(self, q, k, v, context):
        cache = context.cache
        if self._few(context):
            out = attention_decode(
                q.view(cache.batch, context.new, self.heads, self.head), cache.data[self.index], cache.table,
                cache.lengths, cache.format, window=self.window, scale=self.scale, cap=self.cap, early=True,
            )[0]  # fmt: skip
        elif context.attend is not None:
            out = context.attend(self, q, k, v)
        else:
            out = attention(
                q, k, v, context.starts, context.starts, longest=context.new, scale=self.scale,
                left=self.window - 1 if self.window else -1, right=0, cap=self.cap,
            )[0]  # fmt: skip
        return out.reshape(q.shape[0], self.heads * self.head)
