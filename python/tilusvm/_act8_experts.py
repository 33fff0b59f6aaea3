"""Products of activations of 8 and of 4 bits by stacks of matrices, of which each row takes one: see experts."""

from __future__ import annotations

from ._act8 import A8, SCALED, check_a8_weights, check_scaled_extents, check_scaled_types
from ._expert_rows import check_offsets
from ._registry import need, operator
from ._torch import torch

__all__ = ["matmul_lowbit_a8_experts", "matmul_scaled_experts"]


def _check_scaled(op, a, offsets, b, group, by_group, alpha, type_b):
    check_scaled_types(op, a, b, group, by_group, alpha, type_b, 3)
    need(op, "a", a, dim=2)
    check_scaled_extents(op, a, b, group, type_b)
    check_offsets(op, "b", b, offsets)


@operator("matmul_scaled", **SCALED, EXPERTS=True, check=_check_scaled)
def matmul_scaled_experts(
    a: torch.Tensor, offsets: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor,
    bias: torch.Tensor | None = None, *, group: int = 128, out_dtype: torch.dtype = torch.bfloat16,
    by_group: bool = False, alpha: torch.Tensor | None = None, type_b: str = "f4_e2m1",
) -> torch.Tensor:  # fmt: skip
    """Rows offsets[e] to offsets[e + 1] - 1 of a times matrix e of a stack, as ops.matmul_scaled multiplies them, for
    all e: [m, n].

    a: [m, k]; offsets: i32 [experts + 1], as of matmul_experts: rows of no matrix are undefined in the result; b, [1 to
    512 experts, n, k], scale_b and bias, f32 [experts, n]: as of ops.matmul_scaled, with a first dimension of experts;
    int8 also with group 0. scale_a, group, by_group: as there, of the rows of a; alpha: f32 [experts].
    """


def _check_a8(op, a, offsets, packed, scales, levels, group):
    check_a8_weights(op, a, packed, scales, levels, group, 4)
    need(op, "a", a, dim=2)
    check_offsets(op, "packed", packed, offsets)


@operator("matmul_lowbit_a8", **A8, EXPERTS=True, check=_check_a8)
def matmul_lowbit_a8_experts(
    a: torch.Tensor, offsets: torch.Tensor, packed: torch.Tensor, scale_a: torch.Tensor, scales: torch.Tensor,
    levels: torch.Tensor | None = None, zeros: torch.Tensor | None = None, bias: torch.Tensor | None = None, *,
    type: str = "u4", group: int = 128, out_dtype: torch.dtype = torch.float16,
) -> torch.Tensor:  # fmt: skip
    """Rows offsets[e] to offsets[e + 1] - 1 of a times matrix e of a stack, as ops.matmul_lowbit_a8 multiplies them,
    for all e: [m, n].

    a: [m, k]; scale_a: f32 [m, 1]; offsets: i32 [experts + 1], as of matmul_experts; packed, of 1 to 512 experts,
    scales, levels, zeros and bias, f32 [experts, n]: as of ops.matmul_lowbit_a8, with a first dimension of experts.
    """
