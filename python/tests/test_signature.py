"""What operators have from the parameters of kernels: arguments, results, shapes; and an operator of a program that the
package has none of."""

import pytest
from conftest import NO_TORCH, torch

if torch is None:
    pytest.skip(NO_TORCH, allow_module_level=True)

from test_ops import NAMES, examples  # noqa: E402
from torch_kit import close  # noqa: E402

from tilusvm import ops  # noqa: E402
from tilusvm._registry import FLOATS, ROWS, operator  # noqa: E402
from tilusvm._signature import _solve  # noqa: E402

NUMBERS = {"/ 32": "/ group", "64]": "head]", "2 * n": "2n", "24]": "experts]"}  # of the examples, in docstrings
DELTA = {"64, 128]": "d, dv]", "64]": "d]", "128]": "dv]"}
OWN_NUMBERS = {
    "gated_delta_update": DELTA, "gated_delta_chunks": DELTA, "gated_delta_states": DELTA,
    "state_space": {"64, 128]": "p, n]", "64]": "p]", "128]": "n]"}, "causal_conv": {"3, ": "taps - 1, ", "4]": "taps]"},
    "attention": {"longest, 128": "longest, block"}, "mla_append": {},
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES[:-1])
def test_docstrings_have_the_shapes(name):
    """Of all tensors, as the kernel declares them, but for what functions lay out: packed weights, caches."""
    made = getattr(ops, name).operator
    shapes = made.find(*made._whole(examples()[name], {})).shapes
    others = {"kv_append": ["attention_decode"], "qkv_append": ["kv_append", "attention_decode"]}  # that it refers to
    others |= dict.fromkeys(["gated_delta_chunks", "gated_delta_states", "state_space", "causal_conv"],
                            ["gated_delta_update"])  # fmt: skip
    others |= dict.fromkeys(["matmul_lowbit_add", "matmul_lowbit_addend", "matmul_lowbit_normed"], ["matmul_lowbit"])
    others["qkv_lowbit"] = ["matmul_lowbit", "matmul_lowbit_normed"]
    told = " ".join(getattr(ops, each).__doc__ for each in [name, *others.get(name, [])])
    told = " ".join(told.split())
    for argument in shapes.keys() - {"packed", "cache"} - set(made.flat):
        shape = shapes[argument].replace("(max)", "max")
        for number, word in OWN_NUMBERS.get(name, NUMBERS).items():
            shape = shape.replace(number, word)
        assert shape in told, (argument, shape)


@pytest.mark.parametrize(
    "expression, value, known, found",
    [
        ("_n", "s[0]", "", ("_n", 5)), ("2 * _n", "s[0]", "", ("_n", 2)), ("_n - 1", "s[0]", "", ("_n", 6)),
        ("(_a + 2 * _b) * 64", "s[1]", "_b", ("_a", 4)), ("_n // 8", "s[0]", "", ("_n", 40)),
        ("cdiv(_n, 64)", "s[0]", "", None), ("_a + _b", "s[0]", "", None), ("_n", "s[0]", "_n", None),
        ("8 - _n", "s[0]", "", None),
    ],
)  # fmt: skip
def test_extents_are_solved_for(expression, value, known, found):
    name_and_source = _solve(expression, value, {known: ""})
    if found is None:
        assert name_and_source is None
    else:
        name, source = name_and_source
        assert (name, eval(source, {"s": (5, 512), "_b": 2})) == found


@operator("layer_norm", T=("x", FLOATS), names={"w": "weight", "b": "bias"}, shapes=ROWS)
def own_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, *, eps: float = 1e-5) -> torch.Tensor:
    """Of the test."""


def test_an_operator_is_a_declaration():
    """Calls, the schema, fake tensors, autocast and refusals come of it."""
    torch.manual_seed(1)
    x, weight, bias = torch.randn(2, 3, 72), torch.randn(72), torch.randn(72)
    exact = torch.nn.functional.layer_norm(x.double(), (72,), weight.double(), bias.double())
    close(own_norm(x, weight, bias), exact, 1e-5)
    close(own_norm(x[0], weight, bias, eps=1.0), torch.nn.functional.layer_norm(x[0], (72,), weight, bias, 1.0), 1e-5)
    op = torch.ops.tilusvm.own_norm.default
    assert str(op._schema) == (
        "tilusvm::own_norm(Tensor x, Tensor weight, Tensor bias, float eps=1.0000000000000001e-05) -> Tensor"
    )
    torch.library.opcheck(op, (x, weight, bias), test_utils=("test_schema", "test_faketensor"))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert own_norm(x, weight.half(), bias).dtype == torch.float32
    for bad, message in [
        ((x, weight.half(), bias), "weight must be torch.float32, not torch.float16"),
        ((x, weight[:64], bias), r"weight must have the shape \[72\], not \[64\]"),
        ((x, weight[None], bias), r"weight must have the shape \[72\], not \[1, 72\]"),
        ((x.int(), weight, bias), "x must be torch.float16 or torch.bfloat16 or torch.float32, not torch.int32"),
        ((x.transpose(0, 1), weight, bias), r"x must be contiguous; its strides are \[72, 216, 1\]: pass x.contig"),
        ((x, None, bias), "weight must be a tensor, not NoneType"),
        ((x, weight, bias.to("meta")), "bias must be on cpu, not on meta"),
    ]:
        with pytest.raises((TypeError, ValueError), match=f"own_norm: {message}"):
            own_norm(*bad)


def test_what_a_kernel_writes_is_declared():
    words = {"T": ("x", FLOATS), "names": {"w": "weight"}, "shapes": ROWS}

    @operator("rms_norm", "add_rms_norm", **words)
    def unsaid(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
        """Of the test."""

    @operator("rms_norm", **words)
    def forgotten(x: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
        """Of the test."""

    x = torch.ones(2, 64)
    with pytest.raises(RuntimeError, match=r"unsaid: the kernel writes \['residual'\], not \(\)"):
        unsaid(x, x.clone(), torch.ones(64))
    with pytest.raises(RuntimeError, match="forgotten: no argument is the kernel's w"):
        forgotten(x)


def test_autocast_leaves_what_is_written():
    """The others become of its type, and the sum is in it, not in a copy."""
    torch.manual_seed(2)
    x, residual, weight = torch.randn(2, 64), torch.randn(2, 64).half(), torch.randn(64)
    total = residual + x.half()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = ops.add_rms_norm(x, residual, weight)
    assert torch.equal(residual, total)
    assert torch.equal(y, ops.rms_norm(total, weight.half()))
