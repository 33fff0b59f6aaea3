"""A decoder layer of this package's kernels, in the place of one of transformers that is made of the parts of _parts;
routers and experts of mixtures stay modules of the model.

    x, residual -> norm(residual += [norm](x)) -> q, k, v -> norms of heads -> rotary embedding -> cache, attention
                -> projection -> norm(residual += [norm](x)) -> gate, up -> activation -> down -> x, residual

What a layer adds to the residual is added where the next norm reads it, in one launch, so that a layer gives two
tensors; of Gemma it is normalized before, by weights of the layer that gave it.
"""

from __future__ import annotations

import copy
import math

import torch

from .. import nn, parallel
from .._attention import check_heads
from .._fused import FEWEST_ROWS
from ..ops import FEW_ROWS, INNER_COLUMNS, add_rms_norm, attention, attention_decode, rms_norm, rope, swiglu
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
    each; fuse: of few rows products with what stands before and behind them; addends: so, too, where norms stand behind
    products, as in Gemma 2 and 3, which is fewer launches, but no less time on an H100."""

    def __init__(self, *, norms=True, rotary=True, mlp=True, attention=True, merge=True, fuse=True, addends=False):
        self.norms, self.rotary, self.mlp, self.attention, self.merge = norms, rotary, mlp, attention, merge
        self.fuse, self.addends = fuse and merge, addends


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
        self._parted = None

    def parted(self):
        """(gain, lift): the weights as a gain of at most 1, which is exact, and the power of two that takes it back. So
        no element of a residual times its gain is beyond the type."""
        if self._parted is None or self._parted[0].device != self.weight.device:
            most = float(self.weight.detach().abs().max())
            lift = 2.0 ** max(math.ceil(math.log2(most)), 0) if 0 < most < math.inf else 1.0
            self._parted = (self.weight.detach() / lift).contiguous(), lift
        return self._parted

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
    if type(layer) is parallel.RowParallelLinear:
        layer, own = copy.copy(layer), early(layer.linear)
        layer._modules = {**layer._modules, "linear": own}  # a copy shares them with what it was copied from
        return layer
    if type(layer) is not nn.Linear:
        return layer
    layer = copy.copy(layer)
    layer.early = True
    return layer


def _own(layer):
    """Of a layer that has a part of the outputs on each rank: this rank's."""
    is_part = isinstance(layer, parallel.ColumnParallelLinear) and not layer.gather_output
    return layer.linear if is_part else layer


def _unsummed(layer):
    """Of a layer whose outputs are sums over the ranks, what this rank adds to them."""
    return layer.linear if isinstance(layer, parallel.RowParallelLinear) else layer


def _adds(layer):
    """Does the layer take add_to?"""
    return type(layer) in (nn.Linear, parallel.RowParallelLinear) and layer.fuses


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
        return self.joined(self.each(x))

    def each(self, x):
        """What the parts give."""
        return [part(x) for part in self.parts]

    @staticmethod
    def joined(found):
        return found[0] if len(found) == 1 else torch.cat(found, -1)

    @property
    def product(self):
        """The one layer of products of few rows that it is; None where it is none."""
        only = self.parts[0] if len(self.parts) == 1 else None
        return only if type(only) is nn.Linear and only.fuses else None

    def pair(self):
        """Has outputs i and i + n / 2 be neighbours, where it is one layer of products of few rows; is it so?"""
        layer = self.product
        if layer is None or layer.packed.is_meta or layer.out_features % 16:
            return False
        half = torch.arange(layer.out_features // 2, device=layer.packed.device)
        self.parts[0] = layer.rearranged(torch.stack([half, half + half.shape[0]], 1).flatten())
        return True

    def split(self, found):
        """Of what the parts give the output of each layer, contiguous."""
        if len(found) > 1 or len(self.sizes) == 1:
            return found
        views = found[0].split(self.sizes, -1)
        if found[0].shape[0] == 1:
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
    """A gated unit of transformers by swiglu, of its parts; merge: gate and up as one product; pairs: whose outputs are
    rearranged, so that of few rows it is the activation's launch, too."""

    def __init__(self, unit, merge, fused=True, pairs=True):
        super().__init__()
        parts = [_own(part) for part in unit.first]
        half = sum(part.out_features for part in parts) // 2
        self.gate_up, self.down = _Side(parts, merge, [half, half]), early(unit.down)
        self.act, self.activation = unit.function, unit.activation if fused else None
        self.pairs = self.activation is not None and merge and pairs and self.gate_up.pair()

    def gated(self, x, squares=None, **words):
        """What goes to down, of few rows [rows, n]; squares, words: of matmul_lowbit_normed."""
        return self.gate_up.product.normed(x, squares, gate=self.activation, **words)

    def _is_few(self, x):
        weights = self.gate_up.parts[0]
        asks = torch.is_grad_enabled() and x.requires_grad
        return x.dim() == 2 and x.shape[0] <= FEW_ROWS and x.dtype is weights.dtype and not asks

    def forward(self, x):
        if self.pairs and self._is_few(x):
            return self.down(self.gated(x))
        both = self.gate_up(x)
        if self.activation is not None:
            return self.down(swiglu(both.contiguous(), self.activation, self.pairs))
        gate, up = both.chunk(2, -1)
        return self.down(self.act(gate) * up)


class Few:
    """Few rows between products that have the norm before and the sum behind them: residual, which is written in place;
    h, what the next product takes, with squares (None: it is normed). Where norms stand behind products, too, the last
    product is an addend, of the norm `after`, which the next launch adds, and h has two rows of a token."""

    def __init__(self, residual, first, after):
        self.residual, self.h, self.squares = residual, first(residual), None
        self.after, self.addend, self.sums = after, None, None
        if after is not None:
            self.addend = torch.zeros_like(residual)
            self.sums = residual.new_zeros(4, residual.shape[0], -(-residual.shape[1] // 64), dtype=torch.float32)

    def blank(self):
        """Itself as behind a sum, with zeros in its place, for launches whose results nobody reads."""
        rows, columns = self.residual.shape
        self.squares, self.h = self.sums, self.residual
        if self.after is None:
            self.squares = self.residual.new_zeros(rows, -(-columns // 64), dtype=torch.float32)
        else:
            self.h = torch.cat([self.residual, self.residual])
        return self

    def words(self, norm):
        """Of the product behind the norm."""
        return {"eps": norm.eps, "lift": norm.parted()[1], **(self._of_addend() if self.squares is not None else {})}

    def _of_addend(self):
        return {} if self.after is None else {"addend_eps": self.after.eps, "addend_lift": self.after.parted()[1]}

    def add(self, layer, x, norm, after):
        """layer(x), normed by `after` if that is there, to the residual, of which the next product wants the norm."""
        gain = norm.parted()[0]
        if after is None:
            self.squares, self.h = layer.add_to(self.residual, x, gain)
            return
        self.squares, h = layer.addend_to(
            self.residual, self.addend, x, self.sums, self.after.parted()[0], after.parted()[0], gain,
            **self._of_addend(),
        )  # fmt: skip
        self.h, self.sums, self.after = h.view(-1, h.shape[-1]), self.squares, after

    def chosen(self, choose):
        """Of some rows alone; choose: a function of tensors of a row each."""
        rows = self.residual.shape[0]
        planes = self.squares if self.after is None else self.squares.transpose(0, 1).reshape(rows, -1)
        h, planes, self.residual = choose(self.h.view(rows, -1), planes, self.residual)
        if self.after is None:
            self.h, self.squares = h, planes
            return
        self.h = h.reshape(-1, self.residual.shape[1])
        self.squares = planes.view(planes.shape[0], 4, -1).transpose(0, 1).contiguous()
        self.addend = choose(self.addend)[0]


class Block(torch.nn.Module):
    """Of a decoder layer, whose weights it takes; rotary: the model's. Unknown where its parts are."""

    #: So many new tokens of a sequence at most go through attention_decode, which reads the cache; more, attention.
    few_queries = 8
    #: Does the product of few rows append to the cache, where it can?
    appends = True

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
            self.unit = GatedUnit(parts.unit, options.merge, options.mlp, options.fuse)

        def norm(found):
            return None if found is None else Norm(found, options.norms)

        self.q_norm, self.k_norm, self.wide_norms = norm(parts.q_norm), norm(parts.k_norm), parts.wide_norms
        self.before, self.after_attention, self.before_mlp, self.after_mlp = map(norm, parts.norms)
        self._gains = None

    def cache_of(self, config, batch, max_tokens, **words):
        """A cache for a model of such blocks."""
        return PagedCache(config, batch, max_tokens, kv_heads=self.kv_heads, **words)

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
        x = self.out(self._attend(self.qkv.each(h), context))
        h = self._added(self.before_mlp, x, residual, self.after_attention)
        return self._mlp(h), residual

    # ---- few rows, in few launches ----

    def fuses(self):
        """Is the layer, but for what is between its projections, four products of few rows, with the norm before and
        the sum behind them in the same launches?"""
        after = [norm for norm in (self.after_attention, self.after_mlp) if norm is not None]
        norms = [self.before, self.before_mlp, *after]
        plain = all(norm is not None and norm.reference is None for norm in norms)
        ends = (self.out, getattr(self.unit, "down", None))
        return (
            plain
            and not (after and any(isinstance(end, parallel.RowParallelLinear) for end in ends))
            and (not after or len(after) == 2 and self.options.addends)
            and self.options.fuse
            and self.unit is not None
            and self.unit.pairs
            and self.qkv.product is not None
            and all(map(_adds, ends))
        )

    def pair_heads(self):
        """Has the elements that are turned together be neighbours in queries and keys, alike, which leaves their
        products what they are: so a product of few rows turns them, and appends; norms them before, too."""
        if self.style != "half" or self.q_norm is not None and not self._norms_heads():
            return
        head = torch.arange(self.head).view(2, -1).t().flatten()
        for norm in filter(None, (self.q_norm, self.k_norm)):
            norm.weight = torch.nn.Parameter(norm.weight.detach()[head.to(norm.weight.device)], False)
        turned = self.heads + self.kv_heads
        order = (torch.arange(turned)[:, None] * self.head + head).flatten()
        layer = self.qkv.product
        rest = torch.arange(turned * self.head, layer.out_features)
        self.qkv.parts[0] = layer.rearranged(torch.cat([order, rest]).to(layer.packed.device))
        self.style = "interleaved"

    def _norms_heads(self):
        """Are the norms of heads those that a product of few rows has behind it?"""
        plain = all(norm is not None and norm.reference is None for norm in (self.q_norm, self.k_norm))
        return plain and not self.wide_norms and self.q_norm.eps == self.k_norm.eps and 256 % self.head == 0

    @property
    def rows_of_token(self):
        """Rows of a token in products of few rows: the residual's, and where norms stand behind products the addend's
        that is not in it yet."""
        return 1 if self.after_mlp is None else 2

    @property
    def few_rows(self):
        """Up to so many rows such products take no longer: those of a token are in one tile, of the smallest where it
        has two."""
        return FEW_ROWS if self.rows_of_token == 1 else FEWEST_ROWS // 2

    def run_few(self, state, context, following):
        """As run, of few rows, where fuses() says so: state is the layer's, and becomes that of the next, whose first
        norm is `following`."""
        if self._appends(context):
            x = self._attended(self._appended(state, context), None, None, context)
        else:
            x = self._attend([self.qkv.product.normed(state.h, state.squares, **state.words(self.before))], context)
        state.add(self.out, x, self.before_mlp, self.after_attention)
        x = self.unit.gated(state.h, state.squares, **state.words(self.before_mlp))
        state.add(self.unit.down, x, following, self.after_mlp)

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
        jobs += [lambda: self._attend(self.qkv.each(x), context), lambda: self._attended(*heads, context)]
        jobs.append(lambda: _unsummed(self.out)(flat))  # ranks sum in one order: no thread may
        if self.mixture is not None:
            return jobs if self._exchanges() else [*jobs, lambda: self._mlp(x)]
        if rows <= self.few_rows and self.fuses():
            return [*jobs, *self._few_launches(x, flat, context)]
        unit, half = self.unit, x.new_zeros(rows, self.unit.gate_up.sizes[0])
        jobs += [lambda: unit.gate_up(x), lambda: _unsummed(unit.down)(half)]
        wide = x.new_zeros(rows, 2 * half.shape[1])
        return [*jobs, lambda: swiglu(wide, unit.activation, unit.pairs)] if unit.activation else jobs

    def _few_launches(self, x, attended, context):
        """Those of run_few but attention."""
        state = Few(x.clone(), self.before, self.after_mlp).blank()
        wide = x.new_zeros(x.shape[0], _unsummed(self.unit.down).in_features)
        words = state.words(self.before)

        def product():
            if self._appends(context):
                self._appended(state, context)
            else:
                self.qkv.product.normed(state.h, state.squares, **words)

        def sums(layer, given):
            if type(layer) is nn.Linear:
                Few(x.clone(), self.before, self.after_mlp).add(layer, given, self.before, self.after_mlp)
            else:
                layer.linear(given)

        return [
            product, lambda: sums(self.out, attended), lambda: sums(self.unit.down, wide),
            lambda: self.unit.gated(state.h, state.squares, **words),
        ]  # fmt: skip

    def _exchanges(self):
        """Do the ranks exchange tokens within the mixture?"""
        return any(isinstance(module, parallel.ExpertParallel) for module in self.mixture.modules())

    def _mlp(self, h):
        if self.mixture is None:
            return self.unit(h)
        found = self.mixture(h[None])  # some give the router's scores, too
        return (found[0] if isinstance(found, tuple) else found).reshape(h.shape)

    def _heads(self, found):
        tokens = found[0].shape[0]
        q, k, v = self.qkv.split(found)
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

    def _attend(self, found, context):
        """found: what the parts of qkv give."""
        cache, table = context.cache, context.table
        few = self._few(context)
        plain = table.shape[-1] == self.head
        at_once = few and plain and self.options.rotary and context.absolute and cache.format.turns
        if at_once and self.q_norm is None:
            q, k, v = cache.append_all(self.index, self.qkv.joined(found), table, self.style), None, None
        else:
            q, k, v = self._heads(found)
            q = self._turn(q, context)
            k = k if at_once else self._turn(k, context)
            if isinstance(cache, PagedCache):
                table = table if at_once else None
                cache.append(self.index, k, v, table, context.starts, context.new, self.style)
        return self._attended(q, k, v, context)

    def _appended(self, state, context):
        """The queries [rows, heads, head], behind the launch that appends keys and values."""
        cache, words = context.cache, {}
        if (cache.format.k_type, cache.format.v_type) != (None, None):
            words["format"] = cache.format
        if self.q_norm is not None:
            words |= {"gains": self._gains_of_heads(), "heads_eps": self.q_norm.eps}
        q = self.qkv.product.append_to(
            cache.data[self.index], cache.table, cache.lengths, context.table, state.h, state.squares,
            heads=self.heads, **state.words(self.before), **words,
        )  # fmt: skip
        return q.view(-1, self.heads, self.head)

    def _gains_of_heads(self):
        """Of queries and of keys, f32 [2, head]."""
        if self._gains is None or self._gains.device != self.q_norm.weight.device:
            self._gains = torch.stack([norm.weight.detach().float() for norm in (self.q_norm, self.k_norm)])
        return self._gains

    def _appends(self, context):
        """Does the product of few rows turn queries and keys, and append?"""
        form = context.cache.format
        by_pairs = self.q_norm is None and (form.k_type, form.v_type) == (None, None)
        return (
            self.appends
            and self.style == "interleaved"
            and (self.q_norm is None or self._norms_heads())
            and (by_pairs or 256 % self.head == 0)
            and context.table.shape[-1] == self.head
            and self.options.rotary
            and self._few(context)
            and not form.k_channels
            and self.qkv.product.dtype is form.dtype
        )

    def _few(self, context):
        return isinstance(context.cache, PagedCache) and context.even and context.new <= self.few_queries

    @property
    def wide_sinks(self):
        """As the operators take them, f32."""
        return None if self.sinks is None else self.sinks.float()

    def _attended(self, q, k, v, context):
        cache = context.cache
        if self._few(context):
            out, _ = attention_decode(
                q.view(cache.batch, context.new, self.heads, self.head), cache.data[self.index], cache.table,
                cache.lengths, cache.format, window=self.window, scale=self.scale, cap=self.cap, early=True,
                sinks=self.wide_sinks,
            )  # fmt: skip
        elif context.attend is not None:
            out = context.attend(self, q, k, v)
        else:
            out, _ = attention(
                q, k, v, context.starts, context.starts, longest=context.new, scale=self.scale,
                left=self.window - 1 if self.window else -1, right=0, cap=self.cap, sinks=self.wide_sinks,
            )  # fmt: skip
        return out.reshape(q.shape[0], self.heads * self.head)
