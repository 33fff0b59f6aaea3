"""A decoder layer of this package's kernels, in the place of one of transformers that is made of the parts of _parts;
routers and experts of mixtures stay modules of the model.

    x, residual -> norm(residual += [norm](x)) -> q, k, v -> norms of heads -> rotary embedding -> cache, attention
                -> projection -> norm(residual += [norm](x)) -> gate, up -> activation -> down -> x, residual

What a layer adds to the residual is added where the next norm reads it, in one launch, so that a layer gives two
tensors; of Gemma it is normalized before, by weights of the layer that gave it.
"""

from __future__ import annotations

import copy

import torch

from .. import nn, parallel
from .._attention import check_heads, with_sinks
from ..ops import INNER_COLUMNS, add_rms_norm, attention, attention_decode, rms_norm, rope, swiglu
from ._cache import PagedCache
from ._parts import ACTIVATIONS, activation_of, eps_of, norm_kind, parts_of

__all__ = ["Block", "GatedUnit", "Norm", "Options"]


def text_config(model):
    """The configuration of a causal language model whose layers lie where Llama's do; TypeError or ValueError for
    others."""
    config = getattr(model, "config", None)
    if not hasattr(config, "get_text_config"):
        raise TypeError(f"model must be a model of transformers, not {type(model).__name__}")
    body = getattr(model, "model", None)
    for name in ("layers", "embed_tokens", "norm", "rotary_emb"):
        if not hasattr(body, name):
            raise ValueError(
                f"the model is of the family {config.get_text_config().model_type}, which has no model.{name}, where "
                f"Llama and its like have it"
            )
    return config.get_text_config()


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
    if mlp and name not in ACTIVATIONS:
        known = ", ".join(ACTIVATIONS)
        raise ValueError(f"the model's activation is {name}, not one of {known}: mlp=False leaves it to torch")


class Options:
    """What of a model this package does: norms, rotary, mlp, attention; merge: q, k, v and gate, up as one product
    each."""

    def __init__(self, *, norms=True, rotary=True, mlp=True, attention=True, merge=True):
        self.norms, self.rotary, self.mlp, self.attention, self.merge = norms, rotary, mlp, attention, merge


class Norm(torch.nn.Module):
    """RMSNorm by rms_norm and add_rms_norm; of Gemma the factor is one more than the weight. Another norm stays what it
    is."""

    def __init__(self, norm, fused=True):
        super().__init__()
        kind = norm_kind(norm)
        self.eps = eps_of(norm)
        weight = norm.weight.detach()
        plus_one = kind == "weight + 1"
        self.weight = torch.nn.Parameter((1.0 + weight.float()).to(weight.dtype) if plus_one else weight, False)
        self.reference = None if fused and kind is not None else norm

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
        return inner.reference is None and inner.eps == self.eps and x.shape[-1] <= INNER_COLUMNS


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
    """Linear layers of one input: one product where they can be merged. Gives the whole, [tokens, sum of outputs].
    sizes: of what it gives, where a layer has several in one."""

    def __init__(self, parts, merge, sizes=None):
        super().__init__()
        self.sizes = [part.out_features for part in parts] if sizes is None else sizes
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


def _turned(x, positions, table, style):
    """What rope does, by torch."""
    cos, sin = (part[:, None] for part in table[positions.long()].chunk(2, -1))
    a, b = x.float().chunk(2, -1) if style == "half" else (x[..., ::2].float(), x[..., 1::2].float())
    parts = [a * cos - b * sin, b * cos + a * sin]
    out = torch.cat(parts, -1) if style == "half" else torch.stack(parts, -1).flatten(-2)
    return out.to(x.dtype)


class GatedUnit(torch.nn.Module):
    """A gated unit of transformers by swiglu, of its parts; merge: gate and up as one product."""

    def __init__(self, unit, merge, fused=True):
        super().__init__()
        parts = [_own(part) for part in unit.first]
        half = sum(part.out_features for part in parts) // 2
        self.gate_up, self.down = _Side(parts, merge, [half, half]), early(unit.down)
        self.act, self.activation = unit.function, unit.activation if fused else None

    def forward(self, x):
        both = self.gate_up(x)
        if self.activation is not None:
            return self.down(swiglu(both.contiguous(), self.activation))
        gate, up = both.chunk(2, -1)
        return self.down(self.act(gate) * up)


class Block(torch.nn.Module):
    """Of a decoder layer, whose weights it takes; rotary: the model's. Unknown where its parts are."""

    #: So many new tokens of a sequence at most go through attention_decode, which reads the cache; more, attention.
    few_queries = 8

    def __init__(self, layer, index, config, options, rotary):
        super().__init__()
        parts = parts_of(layer, index, config, rotary, _own)
        self.index, self.options, self.head = index, options, parts.head
        self.heads, self.kv_heads = parts.sizes[0] // self.head, parts.sizes[1] // self.head
        self.scale, self.cap, self.window, self.style = parts.scale, parts.cap, parts.window, parts.style
        self.sinks = parts.sinks
        self.qkv, self.out = _Side(parts.projections, options.merge, parts.sizes), early(parts.out)
        self.mixture, self.unit = parts.mixture, None
        if parts.unit is not None:
            self.unit = GatedUnit(parts.unit, options.merge, options.mlp)

        def norm(found):
            return None if found is None else Norm(found, options.norms)

        self.q_norm, self.k_norm, self.wide_norms = norm(parts.q_norm), norm(parts.k_norm), parts.wide_norms
        self.before, self.after_attention, self.before_mlp, self.after_mlp = map(norm, parts.norms)

    def forward(self, *args):
        return self.run(*args)

    def run(self, x, residual, context, inner=None):
        """x [tokens, hidden], residual as x or None at the first layer; the same of the next. inner: the Norm of x
        before it is added, after_mlp of the layer that gave it."""
        if residual is None:
            residual = x.clone()
            h = residual if self.before is None else self.before(x)
        else:
            h = self._added(self.before, x, residual, inner)
        x = self.out(self._attend(h, context))
        h = self._added(self.before_mlp, x, residual, self.after_attention)
        return self._mlp(h), residual

    @staticmethod
    def _added(norm, x, residual, inner):
        """norm(residual += [inner](x)); the sum itself where there is no norm."""
        if norm is not None:
            return norm(x, residual, inner)
        return residual.add_(x if inner is None else inner(x))

    def first_launches(self, x, context):
        """Functions of no arguments that launch, all of them together, what a call with this x launches, on data of no
        account: for threads, each of which waits for the code of some of the kernels. The cache's newest tokens are
        lost."""
        rows = x.shape[0]
        heads = [x.new_zeros(rows, count, self.head) for count in (self.heads, self.kv_heads, self.kv_heads)]
        flat = heads[0].view(rows, -1)
        norms = [(self.before, self.after_mlp), (self.before_mlp, self.after_attention)]
        jobs = [lambda n=n, i=i: self._added(n, x, x.clone(), i) for n, i in norms]
        jobs += [lambda: self.before(x)] if self.before is not None else []
        jobs += [lambda: self._attend(x, context), lambda: self._attended(*heads, context)]
        jobs.append(lambda: self.out(flat))
        if self.mixture is not None:
            return [*jobs, lambda: self._mlp(x)]
        unit, half = self.unit, x.new_zeros(rows, self.unit.gate_up.sizes[0])
        jobs += [lambda: unit.gate_up(x), lambda: unit.down(half)]
        wide = x.new_zeros(rows, 2 * half.shape[1])
        return [*jobs, lambda: swiglu(wide, unit.activation)] if unit.activation else jobs

    def _mlp(self, h):
        if self.mixture is None:
            return self.unit(h)
        found = self.mixture(h[None])  # some give the router's scores, too
        return (found[0] if isinstance(found, tuple) else found).reshape(h.shape)

    def _heads(self, h):
        tokens = h.shape[0]
        q, k, v = self.qkv.split(h)
        if self.wide_norms:
            q, k = self.q_norm(q), self.k_norm(k)
        q = q.reshape(tokens, self.heads, self.head)
        k, v = (part.reshape(tokens, self.kv_heads, self.head) for part in (k, v))
        if self.q_norm is not None and not self.wide_norms:
            q, k = self.q_norm(q), self.k_norm(k)
        return q, k, v

    def _turn(self, x, context):
        """The rotary embedding, of as many elements of a head as the table has."""
        table = context.table
        width, turn = table.shape[-1], rope if self.options.rotary else _turned
        if width == self.head:
            return turn(x, context.positions, table, self.style)
        first = turn(x[..., :width].contiguous(), context.positions, table, self.style)
        return torch.cat([first, x[..., width:]], -1)

    def _attend(self, h, context):
        cache, table = context.cache, context.table
        few = self._few(context)
        plain = self.style == "half" and table.shape[-1] == self.head
        at_once = few and plain and self.options.rotary and context.absolute and cache.format.turns
        if at_once and self.q_norm is None:
            q, k, v = cache.append_all(self.index, self.qkv(h), table), None, None
        else:
            q, k, v = self._heads(h)
            q = self._turn(q, context)
            k = k if at_once else self._turn(k, context)
            if isinstance(cache, PagedCache):
                cache.append(self.index, k, v, table if at_once else None, context.starts, context.new)
        return self._attended(q, k, v, context)

    def _few(self, context):
        return isinstance(context.cache, PagedCache) and context.even and context.new <= self.few_queries

    def _attended(self, q, k, v, context):
        cache = context.cache
        if self._few(context):
            out, lse = attention_decode(
                q.view(cache.batch, context.new, self.heads, self.head), cache.data[self.index], cache.table,
                cache.lengths, cache.format, window=self.window, scale=self.scale, cap=self.cap, early=True,
            )  # fmt: skip
            out, lse = out.flatten(0, 1), lse.flatten(0, 1)
        elif context.attend is not None:
            out, lse = context.attend(self, q, k, v), None
        else:
            out, lse = attention(
                q, k, v, context.starts, context.starts, longest=context.new, scale=self.scale,
                left=self.window - 1 if self.window else -1, right=0, cap=self.cap,
            )  # fmt: skip
        if self.sinks is not None and lse is not None:
            out = with_sinks(out, lse, self.sinks)
        return out.reshape(q.shape[0], self.heads * self.head)
