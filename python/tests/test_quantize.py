"""Codes, scales, packing, and models, against plain computations of each."""

import warnings

import pytest
from conftest import NO_TORCH, needs_gpu, torch

if torch is None:
    pytest.skip(NO_TORCH, allow_module_level=True)

from torch_kit import FLOATS, TYPES, UNSIGNED, number, weights_of  # noqa: E402

from tilusvm import nn, quantize  # noqa: E402
from tilusvm._formats import bits_of_codes, codes_of_bits, format_of  # noqa: E402


@pytest.mark.parametrize("type", TYPES)
def test_numbers(type):
    theirs = format_of(type).numbers()
    for code in range(1 << int(type[1])):
        ours = number(type, code)
        assert ours is None and not torch.isfinite(theirs[code]) or theirs[code] == ours


@pytest.mark.parametrize("type", TYPES)
def test_nearest_codes(type):
    """Every number has its own code; what lies between two goes to the nearer, halfway to the even one, beyond to the
    last."""
    known = sorted((number(type, c), c) for c in range(1 << int(type[1])) if number(type, c) is not None)
    fmt = format_of(type)
    numbers = torch.tensor([x for x, _ in known], dtype=torch.float64)
    assert torch.equal(fmt.numbers().double()[fmt.encode(numbers).long()], numbers)
    for (low, low_code), (high, _) in zip(known, known[1:]):
        if low == high:
            continue  # -0 and 0
        middle, step = (low + high) / 2, (high - low) / 1024
        near = fmt.encode(torch.tensor([middle - step, middle, middle + step], dtype=torch.float64))
        values = [number(type, int(c)) for c in near]
        assert values[0] == low and values[2] == high
        even = low if (low_code if type[0] == "f" else int(low)) % 2 == 0 else high
        assert values[1] == even
    ends = fmt.encode(torch.tensor([1e30, -1e30], dtype=torch.float64))
    assert [number(type, int(c)) for c in ends] == [known[-1][0], known[0][0]]


@pytest.mark.parametrize("bits", range(1, 9))
def test_bit_strings(bits):
    codes = torch.randint(0, 1 << bits, (5, 24), dtype=torch.uint8)
    strings = bits_of_codes(codes, bits)
    assert strings.shape == (5, 3 * bits)
    for row, string in zip(codes, strings):
        whole = sum(int(byte) << 8 * i for i, byte in enumerate(string))
        assert [whole >> bits * i & (1 << bits) - 1 for i in range(24)] == row.tolist()
    assert torch.equal(codes_of_bits(strings, bits), codes)


@pytest.mark.parametrize("group", [0, 32, 64, 128])
@pytest.mark.parametrize("type", ["u1", "u3", "i5", "i4", "f6_e3m2", "u8"])
def test_packing_and_back(type, group):
    torch.manual_seed(0)
    codes = torch.randint(0, 1 << int(type[1]), (256, 72), dtype=torch.uint8)
    assert torch.equal(quantize.unpack(quantize.pack(codes, type, group), type, group, 72), codes)


@needs_gpu
@pytest.mark.parametrize("type, group", [("u3", 64), ("i4", 128), ("f6_e3m2", 32)])
def test_packing_on_a_gpu(type, group):
    codes = torch.randint(0, 1 << int(type[1]), (256, 72), dtype=torch.uint8)
    packed = quantize.pack(codes.cuda(), type, group)
    assert torch.equal(packed.cpu(), quantize.pack(codes, type, group))
    assert torch.equal(quantize.unpack(packed, type, group, 72).cpu(), codes)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("method", ["absmax", "mse"])
@pytest.mark.parametrize("type", ["u2", "u4", "u8", "i3", "f4_e2m1", "f8_e4m3", "f6_e5m0"])
def test_codes_times_a_scale_come_back(type, method, dtype):
    """Weights that are numbers of the type times a scale, the largest among them, are quantized without an error."""
    torch.manual_seed(1)
    all_numbers = [x for x in (number(type, c) for c in range(1 << int(type[1]))) if x is not None]
    numbers = torch.tensor(all_numbers, dtype=torch.float64)
    w = numbers[torch.randint(0, len(numbers), (8, 128))]
    w[:, 0], w[:, 1] = numbers.max(), numbers.min()
    scale = 2.0 ** (torch.randint(-3, 3, (8, 1))) / max(abs(numbers.max()), 1) ** 0.5
    scale = scale.to(dtype).double()
    codes, scales, _ = quantize.quantize_weight((w * scale).float(), type, dtype=dtype, scales=method)
    assert torch.equal(weights_of(codes, scales, None, type, 128).t(), w * scale)


def mean_error(w, type, group=128, importance=None, **options):
    codes, scales, zeros = quantize.quantize_weight(w, type, group, importance=importance, **options)
    back = weights_of(codes, scales, zeros, type, group).t()
    error = (w.double() - back) ** 2
    return float((error if importance is None else error * importance).mean())


@pytest.mark.parametrize("type, zeros", [(t, False) for t in TYPES] + [(t, True) for t in UNSIGNED])
def test_the_search_is_better(type, zeros):
    torch.manual_seed(2)
    w = torch.randn(16, 256)
    least = {2: 0.45, 3: 0.8, 4: 0.9}.get(int(type[1]), 1.0) if type[0] != "f" else 1.0
    least = 1.0 if zeros else least
    assert mean_error(w, type, zeros=zeros) <= least * mean_error(w, type, zeros=zeros, scales="absmax")


def test_two_bits_are_near_the_optimum():
    """Of normal weights the best uniform quantizer of four levels, which has no zero, leaves 0.1188 of the variance
    (Max, 1960)."""
    torch.manual_seed(3)
    assert mean_error(torch.randn(64, 1024), "u2", zeros=True) < 1.15 * 0.1188


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    "type, zeros", [(t, False) for t in TYPES if t[0] != "i"] + [(t, True) for t in UNSIGNED] + [("i4", False)]
)
def test_what_a_gpu_does_is_what_the_library_does(type, zeros, dtype):
    """In torch's operations: the same by absmax; by the search, whose candidates are others, errors about as small."""
    torch.manual_seed(9)
    w, importance = torch.randn(32, 256), torch.rand(256) ** 4
    form = format_of(type)
    for method, counts in [("absmax", None), ("mse", None), ("mse", importance)]:
        arguments = (w, form, 64, zeros, dtype, method, counts)
        library, ours = quantize._quantize_by_library(*arguments), quantize._quantize_by_torch(*arguments)
        if method == "absmax":
            assert all(a is None or torch.equal(a, b) for a, b in zip(library, ours))
            continue
        errors = []
        for strings, scales, points in (library, ours):
            back = weights_of(codes_of_bits(strings, form.bits), scales, points, type, 64).t()
            errors.append(float(((w - back) ** 2 * (1 if counts is None else counts)).sum()))
        assert errors[1] < 1.1 * errors[0]


def test_importance_counts():
    torch.manual_seed(4)
    w, importance = torch.randn(32, 256), torch.rand(256) ** 8 * 100
    plain = quantize.quantize_weight(w, "u3")
    back = weights_of(*plain[:2], None, "u3", 128).t()
    assert mean_error(w, "u3", importance=importance) < 0.9 * float(((w - back) ** 2 * importance).mean())


def test_odd_sizes_are_filled_up_with_zeros():
    codes, scales, _ = quantize.quantize_weight(torch.randn(5, 100), "u4", 64)
    assert codes.shape == (128, 8) and scales.shape == (2, 8)
    w = weights_of(codes, scales, None, "u4", 64)
    assert (w[100:] == 0).all() and (w[:, 5:] == 0).all()


def test_what_cannot_be_quantized():
    w = torch.randn(8, 128)
    for bad, arguments, message in [
        (w, {"type": "u9"}, "u1 to u8"),
        (w, {"type": "f4_e2m2"}, "f4_e2m2"),
        (w, {"group": 8}, "group must be"),
        (w, {"type": "f6_e5m0", "group": 16}, "group must be 32 or more for f6_e5m0"),
        (w, {"type": "i4", "zeros": True}, "zeros"),
        (w, {"scales": "best"}, "mse or absmax"),
        (w[0], {}, "matrix"),
        (w * 1e9, {}, "bfloat16 has a wider range"),
        (w, {"importance": torch.ones(5)}, "importance must be 128"),
    ]:
        with pytest.raises(ValueError, match=message):
            quantize.quantize_weight(bad, **arguments)
    with pytest.raises(TypeError, match="dtype"):
        quantize.quantize_weight(w, dtype=torch.float32)
    for value in (float("nan"), float("inf")):
        w = torch.randn(8, 128)
        w[3, 7] = value
        with pytest.raises(ValueError, match=r"\[3, 7\]"):
            quantize.quantize_weight(w)
    with pytest.raises(ValueError, match="meta"):
        quantize.pack(torch.zeros(128, 8, dtype=torch.uint8, device="meta"), "u4")
    with pytest.raises(ValueError, match="multiple of 128"):
        quantize.pack(torch.zeros(64, 8, dtype=torch.uint8), "u4")


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(64, 96)
        self.down = torch.nn.Linear(96, 64, bias=False)
        self.again = self.up
        self.head = torch.nn.Linear(64, 8)

    def forward(self, x):
        return self.head(self.down(torch.nn.functional.relu(self.up(x))))


def test_models():
    from tilusvm import nn

    torch.manual_seed(5)
    model = Model().half()
    steps = []
    result = quantize.quantize_(
        model, {"*down": "i8", "*": "u8"}, 32, skip=["head"], progress=lambda *step: steps.append(step)
    )
    assert result is model
    assert model.up.type == "u8" and model.down.type == "i8" and model.again is model.up
    assert type(model.head) is torch.nn.Linear and model.down.bias is None and model.up.dtype == torch.float16
    assert steps[0][:2] == (0, 3) and steps[-1][:2] == (3, 3) and {s[2] for s in steps} == {"up", "down", "again", ""}
    assert isinstance(model.up, nn.Linear)


def test_models_that_cannot_be():
    with pytest.raises(TypeError, match="skip"):
        quantize.quantize_(Model(), "u4", skip="head")
    with pytest.raises(ValueError, match="from_float"):
        quantize.quantize_(torch.nn.Linear(64, 64))
    with pytest.raises(ValueError, match=r"no pattern that a layer's name fits: \['\*.up'\]; there are "):
        quantize.quantize_(Model(), {"*.up": "u4"})
    with pytest.raises(ValueError, match="importance names layers that there are not: upp; there are "):
        quantize.quantize_(Model(), "u4", 32, importance={"upp": torch.ones(64)})
    with pytest.warns(UserWarning, match="'lm_head', to skip"):
        quantize.quantize_(Model(), "u4", 32, skip=["lm_head"], progress=False)
    model = Model()
    model.down.weight.data[1, 2] = torch.inf
    with pytest.raises(ValueError, match=r"\[1, 2\]") as error:
        quantize.quantize_(model, "u4", 32)
    assert "in the module down" in error.value.__notes__


def test_every_float_type_is_tested():
    assert len(FLOATS) == 27 and len(set(TYPES)) == 42


class Scaled(torch.nn.Linear):
    """A linear layer that does something else, too."""

    def forward(self, x):
        return 2 * super().forward(x)


class Named(torch.nn.Linear):
    """One that does not."""


def test_modules_that_are_called_otherwise():
    """What has a forward of its own stays, and so does a layer whose weight is read by another."""
    torch.manual_seed(0)
    model = torch.nn.ModuleDict({"scaled": Scaled(64, 8), "named": Named(64, 8)})
    model["attention"] = torch.nn.MultiheadAttention(64, 2, batch_first=True)
    x = torch.randn(2, 3, 64)
    expected = model["scaled"](x), model["attention"](x, x, x)[0]
    with pytest.warns(UserWarning, match=r"scaled, attention.out_proj \(NonDynamicallyQuantizableLinear, Scaled"):
        quantize.quantize_(model, "u8", 32, progress=False)
    assert type(model["named"]) is nn.Linear and type(model["scaled"]) is Scaled
    assert torch.equal(model["scaled"](x), expected[0]) and torch.equal(model["attention"](x, x, x)[0], expected[1])
    for skip in (["scaled", "attention.*"], ["*scaled", "*.out_proj"]):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            quantize.quantize_(model, "u8", 32, skip=skip, progress=False)
    with warnings.catch_warnings():  # nor where no type is for it
        warnings.simplefilter("error")
        again = torch.nn.ModuleDict({"scaled": Scaled(64, 8), "named": Named(64, 8)})
        quantize.quantize_(again, {"named": "u4"}, 32, progress=False)
