"""Routers of transformers by ops.route: the choice of experts and the sort by expert that follows, in one launch.

A router is a module that gives (logits, weights, indices) of hidden states. What its forward computes is found out by
trying it on a few tokens; nothing but that says which family it is of.
"""

from __future__ import annotations

import copy
import itertools

from ._route import Routes, check_routing, route
from ._torch import torch

_TOKENS = 48  #: on which a router is tried
_BIAS = "e_score_correction_bias"  #: of the choice alone, as DeepSeek-V3 and its like call it


class Router:
    """The forward of a router: logits by torch, what follows by ops.route. Its indices are Routes, which
    MixtureOfExperts takes. Where a gradient is asked for it is the router's own."""

    def __init__(self, gate: torch.nn.Module, words: dict, wide: bool, gives: tuple):
        """words: those of ops.route; wide: logits are computed in f32; gives: of the first result, is it the softmax of
        the logits, and its type, and that of the weights; None for that of the hidden states."""
        self.gate, self.words, self.wide, self.gives = gate, words, wide, gives

    def __call__(self, hidden_states: torch.Tensor):
        gate = self.gate
        if torch.is_grad_enabled() and (hidden_states.requires_grad or gate.weight.requires_grad):
            return type(gate).forward(gate, hidden_states)
        logits = _logits(gate, hidden_states, self.wide)
        correction = getattr(gate, _BIAS, None)
        routes = Routes(*route(logits.contiguous(), None if correction is None else correction.float(), **self.words))
        is_share, *types = self.gives
        first, last = (hidden_states.dtype if each is None else each for each in types)
        told = logits.softmax(-1, dtype=torch.float32) if is_share else logits
        return told.to(first), routes.weights.to(last), routes


def _logits(gate, hidden_states, wide):
    x, weight, bias = hidden_states.reshape(-1, gate.weight.shape[1]), gate.weight, getattr(gate, "bias", None)
    if wide:
        x, weight, bias = x.float(), weight.float(), None if bias is None else bias.float()
    return torch.nn.functional.linear(x, weight, bias)


def _tried(gate, dtype, seed):
    """A copy of the router with random numbers for its tensors, on the CPU, and what it makes of random tokens."""
    generator = torch.Generator().manual_seed(seed)
    made = copy.copy(gate)
    for kind in ("_parameters", "_buffers"):
        tensors = getattr(gate, kind)
        fresh = {n: None if t is None else torch.randn(t.shape, generator=generator) for n, t in tensors.items()}
        if isinstance(fresh.get("weight"), torch.Tensor):
            fresh["weight"] *= fresh["weight"].shape[-1] ** -0.5
        made.__dict__[kind] = {n: t if t is None or n == _BIAS else t.to(dtype) for n, t in fresh.items()}
    made.__dict__.pop("forward", None)
    x = torch.randn(_TOKENS, gate.weight.shape[1], generator=generator).to(dtype)
    return made, x, made(x)


def _dense(ids, weights, experts):
    return torch.zeros(len(ids), experts).scatter_(1, ids.long(), weights.float())


def _candidates(gate, top):
    """Words of ops.route that the router may be of, by the names that transformers has for them."""
    groups = next((n for n in (getattr(gate, name, None) for name in ("num_group", "n_group")) if n), 1)
    scales = {1.0, float(getattr(gate, "routed_scaling_factor", None) or 1.0)}
    groupings = [{}]
    if groups > 1:
        groupings += [{"groups": groups, "top_groups": gate.topk_group, "group_best": best} for best in (1, 2)]
    for score, renormalize, scale, grouping in itertools.product(
        ("softmax", "sigmoid"), (True, False), sorted(scales), groupings
    ):
        yield {"top": top, "score": score, "renormalize": renormalize, "scale": scale, **grouping}


def _how(gate):
    """Of a router tried in bf16: wide and gives of Router; None where it gives something else."""
    made, x, (told, weights, _) = _tried(gate, torch.bfloat16, 2)
    for wide, is_share in itertools.product((False, True), repeat=2):
        logits = _logits(made, x, wide)
        found = (logits.softmax(-1, dtype=torch.float32) if is_share else logits).to(told.dtype)
        if torch.allclose(found.float(), told.float(), rtol=1e-4, atol=1e-6):
            types = (None if each.dtype is torch.bfloat16 else each.dtype for each in (told, weights))
            return wide, (is_share, *types)
    return None


@torch.no_grad()
def router_of(gate: torch.nn.Module) -> Router | None:
    """The Router that gives what the module gives; None where there is none, or it is no router."""
    weight = gate._parameters.get("weight")
    if weight is None or weight.dim() != 2 or gate._modules or not isinstance(getattr(gate, "top_k", None), int):
        return None
    experts = weight.shape[0]
    try:
        made, x, (told, weights, ids) = _tried(gate, torch.float32, 1)
        how = _how(gate)
        if how is None or told.shape != (_TOKENS, experts) or ids.dim() != 2 or ids.shape != weights.shape:
            return None
        wanted = _dense(ids, weights, experts)
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError):
        return None
    for words in _candidates(gate, ids.shape[1]):
        try:
            check_routing("route", experts, words["top"], *(words.get(n, d) for n, d in _GROUPS.items()))
        except (TypeError, ValueError):
            continue
        _, found, routes = Router(made, words, *how)(x)
        if torch.allclose(_dense(routes.ids, found, experts), wanted, rtol=1e-4, atol=1e-6):
            return Router(gate, words, *how)
    return None


_GROUPS = {"groups": 1, "top_groups": 1, "group_best": 2}


def give_routers(model: torch.nn.Module, is_mixture) -> torch.nn.Module:
    """Gives the routers of a model beside modules for which is_mixture holds the forward of a Router, in place; those
    that are none by ops.route stay as they are."""
    known: dict[tuple, Router | None] = {}
    for owner in list(model.modules()):
        children = dict(owner.named_children())
        if not any(is_mixture(child) for child in children.values()):
            continue
        for gate in children.values():
            if is_mixture(gate) or "forward" in gate.__dict__ or gate._parameters.get("weight") is None:
                continue
            plain = {n: v for n, v in vars(gate).items() if isinstance(v, (bool, int, float, str))}
            key = type(gate), tuple(gate.weight.shape), tuple(sorted(plain.items()))
            if key not in known:
                known[key] = router_of(gate)
            if found := known[key]:
                gate.forward = Router(gate, found.words, found.wide, found.gives)
    return model
