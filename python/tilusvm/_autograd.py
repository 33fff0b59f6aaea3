"""torch.autograd through the operators: which tensors each one saves, and the operators that give its gradients.

Formulas are made of operators, so that torch.compile sees them, and memory holds no more than they say. Gradients have
no gradients: a second backward is refused. Where a tensor's gradient is not asked for, it is not computed.
"""

from __future__ import annotations

from ._torch import torch

from . import _backward as gradients
from . import ops
from ._narrow import widened
from ._registry import library


def _dense(tensor):
    """As the operators take it: a gradient may come as a view, or expanded of one number."""
    tensor = tensor.contiguous()
    whole = torch.compiler.is_compiling() or not isinstance(tensor, torch.Tensor) or tensor.is_meta
    return tensor if whole or type(tensor) is not torch.Tensor or not tensor.data_ptr() % 16 else tensor.clone()


def _register(operator, setup, backward):
    """setup: what an operator saves, of its arguments and its result; backward: of ctx and the result's gradients the
    gradients of the arguments by name."""
    made = operator.operator
    names = made.names

    def setup_context(ctx, inputs, output):
        setup(ctx, dict(zip(names, inputs)), output)

    def run(ctx, *results):
        found = backward(ctx, *results)
        return tuple(found.get(name) for name in names)

    torch.library.register_autograd(f"tilusvm::{made.name}", run, setup_context=setup_context, lib=library)


def _refuse(operator, of):
    """Of an operator that gives gradients of another: it has none."""
    made = operator.operator

    def run(ctx, *results):
        raise RuntimeError(
            f"{of} has a gradient, but no gradient of its gradient: {made.name} is not differentiable; leave out "
            f"create_graph, or compute {of} with torch's own operators"
        )

    torch.library.register_autograd(f"tilusvm::{made.name}", run, lib=library)


# ---- row by row ----

def _parts(x):
    """Blocks that add up gradients of weights: of 132 multiprocessors each is to have some, the more the shorter rows
    are. The number is that of the shape alone, and so are the bits of the result."""
    n = x.shape[-1]
    return max(min(132 * max(min(8192 // n, 16), 1), x.numel() // n), 1)


def _rms_setup(ctx, given, _):
    ctx.save_for_backward(given["x"], given["weight"])
    ctx.eps = given["eps"]


def _rms_backward(ctx, y_grad):
    x, weight = ctx.saved_tensors
    x_grad, shares = gradients.rms_norm_backward(x, weight, _dense(y_grad), ctx.eps, _parts(x))
    found = {"x": x_grad}
    if ctx.needs_input_grad[1]:
        found["weight"] = gradients.column_sums(shares.flatten(1), weight.dtype)
    return found


def _layer_backward(ctx, y_grad):
    x, weight = ctx.saved_tensors
    x_grad, shares = gradients.layer_norm_backward(x, weight, _dense(y_grad), ctx.eps, _parts(x))
    found = {"x": x_grad}
    if ctx.needs_input_grad[1] or ctx.needs_input_grad[2]:
        sums = gradients.column_sums(shares.flatten(1), weight.dtype)
        n = x.shape[-1]
        found |= {"weight": sums[:n].clone(), "bias": sums[n:].clone()}
    return found


def _swiglu_setup(ctx, given, _):
    ctx.save_for_backward(given["x"])
    ctx.activation, ctx.pairs = given["activation"], given["pairs"]


def _swiglu_backward(ctx, y_grad):
    (x,) = ctx.saved_tensors
    if not ctx.pairs:
        return {"x": gradients.swiglu_backward(x, _dense(y_grad), ctx.activation)}
    halves = x.unflatten(-1, (-1, 2)).transpose(-1, -2).flatten(-2)
    found = gradients.swiglu_backward(halves, _dense(y_grad), ctx.activation)
    return {"x": found.unflatten(-1, (2, -1)).transpose(-1, -2).flatten(-2)}


def _rope_setup(ctx, given, _):
    ctx.save_for_backward(given["positions"], given["table"])
    ctx.style, ctx.inverse = given["style"], given["inverse"]


def _rope_backward(ctx, y_grad):
    positions, table = ctx.saved_tensors
    return {"x": ops.rope(_dense(y_grad), positions, table, ctx.style, not ctx.inverse)}


# ---- the loss, and tables ----


def _loss_setup(ctx, given, output):
    ctx.save_for_backward(given["logits"], given["labels"], output[1])
    ctx.options = given["ignore"], given["smoothing"], given["z"]
    ctx.mark_non_differentiable(output[1])


def _loss_backward(ctx, loss_grad, _):
    logits, labels, lse = ctx.saved_tensors
    return {"logits": gradients.cross_entropy_backward(logits, labels, lse, _dense(loss_grad), *ctx.options)}


def _embedding_setup(ctx, given, _):
    ctx.save_for_backward(given["ids"])
    ctx.rows, ctx.each = given["table"].shape[0], given["each"]


def _embedding_backward(ctx, y_grad):
    ids, order = (ctx.saved_tensors[0].flatten() // ctx.each).sort(stable=True)
    starts = torch.searchsorted(ids, torch.arange(ctx.rows + 1, dtype=torch.int32, device=ids.device), out_int32=True)
    y_grad = _dense(y_grad)
    return {"table": gradients.embedding_backward(y_grad.view(ids.shape[0], y_grad.shape[-1]), order.int(), starts)}


# ---- attention ----


def _attention_setup(ctx, given, output):
    tensors = [given[name] for name in ("q", "k", "v", "q_starts", "k_starts", "slopes", "sinks")]
    ctx.save_for_backward(*tensors, *output)
    ctx.refused = "of pages" if given["table"] is not None else None
    if given["q"].dtype.itemsize == 1 or output[0].dtype != given["q"].dtype:
        ctx.refused = "of 8 bits"
    if given["chosen"] is not None:
        ctx.refused = "of chosen blocks"
    ctx.scale = given["q"].shape[-1] ** -0.5 if given["scale"] is None else given["scale"]
    ctx.longest, ctx.mask = given["longest"], (given["left"], given["right"], given["cap"])
    # sequences of queries and keys are the same, or else one may have all keys
    ctx.keys = given["longest"] if given["q_starts"] is given["k_starts"] else given["k"].shape[0]
    ctx.set_materialize_grads(False)


def _attention_backward(ctx, o_grad, lse_grad):
    if ctx.refused:
        raise RuntimeError(f"attention: keys and values {ctx.refused} have no gradients")
    q, k, v, q_starts, k_starts, slopes, sinks, o, lse = ctx.saved_tensors
    if o_grad is None and lse_grad is None:
        return {}
    o_grad = torch.zeros_like(o) if o_grad is None else _dense(o_grad)
    lse_grad = lse_grad if lse_grad is None else _dense(lse_grad)
    left, right, cap = ctx.mask
    words = {"scale": ctx.scale, "left": left, "right": right, "cap": cap, "slopes": slopes}
    q_grad, sums = gradients.attention_backward_queries(
        q, k, v, o, o_grad, lse, q_starts, k_starts, longest=ctx.longest, lse_grad=lse_grad, **words
    )
    found = {"q": q_grad}
    if ctx.needs_input_grad[1] or ctx.needs_input_grad[2]:
        found["k"], found["v"] = gradients.attention_backward_keys(
            q, k, v, o_grad, sums, q_starts, k_starts, longest=ctx.keys, **words
        )
    if sinks is not None:  # a key whose value is zero: its weight, times what the row's others have in common
        common = -(o_grad.float() * o.float()).sum(-1)
        common = common if lse_grad is None else common + lse_grad
        found["sinks"] = (torch.exp(sinks - lse) * common).sum(0)
    return found


# ---- products with weights of low-precision types ----

_CHUNK = 1 << 24  #: weights that are floats at a time, or a group of rows


def _lowbit_setup(ctx, given, _):
    ctx.save_for_backward(*(given[name] for name in ("packed", "scales", "zeros", "multiplier")))
    ctx.type, ctx.group, ctx.dtype = given["type"], given["group"], given["x"].dtype


def _lowbit_backward(ctx, y_grad):
    packed, scales, zeros, multiplier = ctx.saved_tensors
    found = {}
    if ctx.needs_input_grad[4]:
        found["bias"] = y_grad.flatten(0, -2).sum(0, dtype=torch.float32).to(ctx.dtype)
    if ctx.needs_input_grad[0]:
        y_grad = y_grad if multiplier is None else y_grad * multiplier
        found["x"] = lowbit_product(_dense(y_grad.to(ctx.dtype)), packed, scales, zeros, ctx.type, ctx.group)
    return found


def lowbit_product(y, packed, scales, zeros, type, group):
    """y @ W^T for packed weights W [k, n], a run of rows of W at a time as floats."""
    each, n, scales = ops.group_rows(group), scales.shape[1], widened(scales, y.dtype)
    k = packed.shape[1] * each
    step = max(_CHUNK // max(n, 1) // each, 1) * each
    parts = []
    for first in range(0, k, step):
        rows = min(step, k - first)
        weight = gradients.dequantize_rows(
            packed, scales, zeros, first=first, rows=rows, type=type, group=group, out_dtype=y.dtype
        )
        parts.append(torch.nn.functional.linear(y, weight))
    return parts[0] if len(parts) == 1 else torch.cat(parts, -1)


_register(ops.rms_norm, _rms_setup, _rms_backward)
_register(ops.layer_norm, _rms_setup, _layer_backward)
_register(ops.swiglu, _swiglu_setup, _swiglu_backward)
_register(ops.rope, _rope_setup, _rope_backward)
_register(gradients.cross_entropy_rows, _loss_setup, _loss_backward)
_register(ops.embedding, _embedding_setup, _embedding_backward)
_register(ops.attention, _attention_setup, _attention_backward)
_register(ops.matmul_lowbit, _lowbit_setup, _lowbit_backward)
for _operator, _of in (
    (gradients.rms_norm_backward, "rms_norm"),
    (gradients.layer_norm_backward, "layer_norm"),
    (gradients.column_sums, "rms_norm"),
    (gradients.swiglu_backward, "swiglu"),
    (gradients.cross_entropy_backward, "cross_entropy"),
    (gradients.embedding_backward, "embedding"),
    (gradients.attention_backward_queries, "attention"),
    (gradients.attention_backward_keys, "attention"),
):
    _refuse(_operator, _of)
