"""Linear attention and state space models in layers of transformers: the mixers of Qwen3-Next and of Mamba 2.

A mixer stays the module that it is, with its parameters, caches and name; its class becomes one that computes between
its projections by this package's operators, and as before where they do not serve: padding, packed sequences, gradients,
other types than halves, caches of another kind.
"""

from __future__ import annotations

import torch

from .._registry import HALVES
from ..ops import causal_conv, gated_delta, gated_rms_norm, state_space

__all__ = ["take_mixer"]


class _Mixer:
    """What both have in common."""

    def forward(self, hidden_states, cache=None, attention_mask=None, cache_params=None, **words):
        cache = cache_params if cache is None else cache  # before transformers 5.24
        if not self._serves(hidden_states, cache, attention_mask, words):
            return super().forward(hidden_states, cache, attention_mask, **words)
        batch, new, _ = hidden_states.shape
        device = hidden_states.device
        starts = torch.arange(batch + 1, dtype=torch.int32, device=device) * new
        slots = torch.arange(batch, dtype=torch.int32, device=device)
        return self._mixed(hidden_states, cache, starts, slots).to(hidden_states.dtype)

    def _serves(self, x, cache, mask, words):
        caches = ("get_conv_state", "get_recurrent_state", "update_conv_state", "update_recurrent_state")
        known = cache is None or all(hasattr(cache, name) for name in caches)
        recording = getattr(cache, "is_recording_past", lambda index: False)
        return (
            x.dtype in HALVES
            and x.shape[1] > 0
            and known
            and not recording(self.layer_idx)
            and (mask is None or mask.dim() == 2 and bool(mask[:, -x.shape[1] :].all()))
            and all(words.get(name) is None for name in ("cu_seq_lens_q", "seq_idx"))
            and not (torch.is_grad_enabled() and (x.requires_grad or self.conv1d.weight.requires_grad))
        )

    def _convolved(self, x, cache):
        """Of x [batch, new, channels], and what the cache has before it: [batch * new, channels]."""
        batch, new, channels = x.shape
        weight = self.conv1d.weight.squeeze(1)
        if cache is not None:
            size = self.conv_kernel_size
            x = cache.update_conv_state(x.transpose(1, 2), self.layer_idx, conv_kernel_size=size).transpose(1, 2)
        whole = x.shape[1]
        starts = torch.arange(batch + 1, dtype=torch.int32, device=x.device) * whole
        none = torch.full((batch, 1), -1, dtype=torch.int32, device=x.device)
        state = x.new_zeros(1, weight.shape[1] - 1, channels)
        rows = x.reshape(batch * whole, channels).contiguous()
        y = causal_conv(rows, weight, starts, none.view(-1), none, state, self.conv1d.bias, longest=whole)
        return y.view(batch, whole, channels)[:, whole - new :].reshape(batch * new, channels)

    def _state(self, cache, *shape, device):
        """The state to begin with, f32, which the operators write to."""
        before = None if cache is None else cache.get_recurrent_state(self.layer_idx)
        if before is None:
            return torch.zeros(shape, dtype=torch.float32, device=device)
        return before.to(torch.float32, copy=True).contiguous()


def _parts(x, sizes, widths):
    """Columns of x [rows, n] as heads [rows, size / width, width]."""
    return [
        part.reshape(x.shape[0], -1, width).contiguous() for part, width in zip(x.split(sizes, -1), widths, strict=True)
    ]


class _DeltaNet(_Mixer):
    """By the gated delta rule."""

    PARTS = (
        "in_proj_qkvz", "in_proj_ba", "conv1d", "A_log", "dt_bias", "norm", "out_proj", "fix_query_key_value_ordering",
    )  # fmt: skip

    @staticmethod
    def fits(module):
        return module.head_k_dim in (64, 128) and module.head_v_dim in (64, 128)

    def _mixed(self, x, cache, starts, slots):
        batch, new, _ = x.shape
        q, k, v, z, b, a = self.fix_query_key_value_ordering(self.in_proj_qkvz(x), self.in_proj_ba(x))
        state = self._state(cache, batch, self.num_v_heads, self.head_k_dim, self.head_v_dim, device=x.device)
        rows = self._convolved(torch.cat([t.reshape(batch, new, -1) for t in (q, k, v)], -1), cache)
        sizes = [self.key_dim, self.key_dim, self.value_dim]
        q, k, v = _parts(rows, sizes, [self.head_k_dim, self.head_k_dim, self.head_v_dim])
        g = -self.A_log.float().exp() * torch.nn.functional.softplus(a.float() + self.dt_bias.float())
        g, beta = (t.float().reshape(batch * new, -1).contiguous() for t in (g, b.sigmoid()))
        out = gated_delta(q, k, v, g, beta, starts, slots, slots, state, longest=new, normalize=True)
        if cache is not None:
            cache.update_recurrent_state(state, self.layer_idx)
        weight = self.norm.weight.to(x.dtype)
        out = gated_rms_norm(out, z.reshape(out.shape).contiguous(), weight, self.norm.variance_epsilon)
        return self.out_proj(out.view(batch, new, -1))


class _SpaceMixer(_Mixer):
    """By a state space model."""

    PARTS = ("in_proj", "conv1d", "A_log", "dt_bias", "D", "norm", "out_proj", "time_step_limit", "n_groups")

    @staticmethod
    def fits(module):
        return module.head_dim in (32, 64, 128) and module.ssm_state_size in (64, 128)

    def _mixed(self, x, cache, starts, slots):
        batch, new, _ = x.shape
        heads, wide, columns = self.num_heads, self.n_groups * self.ssm_state_size, self.ssm_state_size
        inner = heads * self.head_dim
        gate, rows, dt = self.in_proj(x).split([inner, inner + 2 * wide, heads], -1)
        state = self._state(cache, batch, heads, self.head_dim, columns, device=x.device)
        rows = self._convolved(rows, cache)
        values, b, c = _parts(rows, [inner, wide, wide], [self.head_dim, columns, columns])
        rate, skip, bias = -self.A_log.float().exp(), self.D.float(), self.dt_bias.float()
        least, most = self.time_step_limit
        y = state_space(
            values, dt.reshape(batch * new, heads).contiguous(), rate, b, c, starts, slots, slots.view(-1, 1), state,
            skip.contiguous(), bias.contiguous(), softplus=True, least=float(least), most=float(most),
        )  # fmt: skip
        if cache is not None:
            cache.update_recurrent_state(state, self.layer_idx)
        y, gate = y.view(batch, new, inner), gate.contiguous()
        if self.n_groups == 1 and inner <= 8192:
            y = gated_rms_norm(y, gate, self.norm.weight.to(x.dtype), self.norm.variance_epsilon, True)
        else:
            y = self.norm(y, gate).to(x.dtype)
        return self.out_proj(y)


def take_mixer(module):
    """Makes a mixer compute by this package, in place; what it is, or None for another module, or one of sizes that the
    programs do not have, or that is found to compute something else."""
    for kind, name in ((_DeltaNet, "the gated delta rule"), (_SpaceMixer, "state space models")):
        if not all(hasattr(module, part) for part in (*kind.PARTS, "layer_idx", "conv_kernel_size", "activation")):
            continue
        taps, channels = module.conv_kernel_size, module.conv1d.in_channels
        if not kind.fits(module) or module.activation != "silu" or not 2 <= taps <= 4 or channels % 8:
            return None
        own = type(module)
        weight = module.conv1d.weight
        x = torch.randn(1, 20, module.hidden_size, generator=torch.Generator().manual_seed(2))
        x = x.to(weight.device, weight.dtype)
        with torch.no_grad():
            wanted = module(x)
            module.__class__ = type(own.__name__, (kind, own), {})
            if weight.dtype in HALVES and not weight.is_meta:
                found = module(x)
                if (found - wanted).abs().max() > 3e-2 * wanted.abs().max():
                    module.__class__ = own
                    return None
        return name
    return None
