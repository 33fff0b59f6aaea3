"""What serving engines share: weights cut by rank as they are read, against whole ones, and configurations."""

import json

import pytest
from conftest import NO_TORCH, torch

if torch is None:
    pytest.skip(NO_TORCH, allow_module_level=True)

from torch_kit import close, tvm_pack, weights_of  # noqa: E402

import tilusvm  # noqa: E402
from tilusvm import nn, ops, quantize, storage  # noqa: E402
from tilusvm.engines import cache, layers, loader, scheme  # noqa: E402
from tilusvm.engines.parts import Packed, Rows, cut_weight  # noqa: E402

CPU = torch.device("cpu")
LAYOUTS = [("u4", 64, True), ("u3", 128, False), ("f6_e3m2", 32, False), ("i5", 16, False), ("nf4", 64, False),
           ("u2", 0, True)]  # fmt: skip


def made(inputs, outputs, type="u4", group=64, zeros=False, seed=0):
    """A quantized layer of random weights, and its tensors as storage.save writes them."""
    torch.manual_seed(seed)
    linear = nn.Linear.from_float(torch.nn.Linear(inputs, outputs, bias=False), type, group, zeros=zeros)
    names = ("packed", "scales", "zeros")
    return linear, {name: getattr(linear, name) for name in names if getattr(linear, name) is not None}


def rank_of(kind, tensors, axis, begin, end, whole):
    """The layer of a rank whose part of the axis is from begin to end; whole: inputs and outputs of all ranks."""
    sizes = {"in": whole[0], "out": whole[1], axis: end - begin}
    cut = {name: kind.cut(name, tensor, axis, begin, end) for name, tensor in tensors.items()}
    return kind.linear(cut, sizes["in"], sizes["out"], torch.float16)


@pytest.mark.parametrize("type,group,zeros", LAYOUTS)
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_outputs_of_ranks(type, group, zeros, ranks):
    """192 outputs are whole granules of 64 for one rank alone; of 2 and 4 they begin and end within one."""
    linear, tensors = made(256, 192, type, group, zeros)
    size = 192 // ranks
    whole = linear.dequantize()
    for rank in range(ranks):
        part = rank_of(Packed(type, group), tensors, "out", rank * size, (rank + 1) * size, (256, 192))
        assert torch.equal(part.dequantize(), whole[rank * size : (rank + 1) * size])
        x = torch.randn(3, 256).half()
        close(part(x), x.double() @ part.dequantize().double().t(), 2e-3)


@pytest.mark.parametrize("type,group,zeros", LAYOUTS)
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_inputs_of_ranks(type, group, zeros, ranks):
    """The ranks' products add up to the whole one."""
    linear, tensors = made(512, 64, type, group, zeros)
    size = 512 // ranks
    x = torch.randn(3, 512).half()
    total = torch.zeros(3, 64, dtype=torch.float64)
    for rank in range(ranks):
        begin, end = rank * size, (rank + 1) * size
        part = rank_of(Packed(type, group), tensors, "in", begin, end, (512, 64))
        assert torch.equal(part.dequantize(), linear.dequantize()[:, begin:end])
        total += part(x[:, begin:end].contiguous()).double()
    close(total, x.double() @ linear.dequantize().double().t(), 4e-3)


def test_inputs_within_a_group():
    _, tensors = made(256, 64, "u4", 128)
    with pytest.raises(ValueError, match="must be whole groups of 128"):
        Packed("u4", 128).cut("packed", tensors["packed"], "in", 64, 128)
    with pytest.raises(ValueError, match="act-order"):
        Packed("u4", 128).cut("order", torch.arange(256).int(), "in", 0, 128)


def test_sizes_that_are_filled_up():
    """Of 200 inputs and 100 outputs, which the file has filled up to 256 and 104."""
    linear, tensors = made(200, 100, "u4", 64)
    part = rank_of(Packed("u4", 64), tensors, "out", 50, 100, (200, 100))
    assert torch.equal(part.dequantize(), linear.dequantize()[50:])
    last = rank_of(Packed("u4", 64), tensors, "in", 128, 200, (200, 100))
    assert torch.equal(last.dequantize(), linear.dequantize()[:, 128:])


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    """A layer of GPTQ, in a file as tvm-pack --from writes it: 3 bits are no whole bytes of 8 columns' multiples."""
    folder = tmp_path_factory.mktemp("imported")
    torch.manual_seed(0)
    theirs = torch.nn.Module()
    theirs.up = torch.nn.Module()
    theirs.up.register_buffer("qweight", torch.randint(-(2**31), 2**31, (512 // 8, 192)).int())
    theirs.up.register_buffer("qzeros", torch.randint(0, 2**31, (2, 192 // 8)).int())
    theirs.up.register_buffer("scales", torch.rand(2, 192).half())
    storage.save(theirs, folder / "gptq")
    tvm_pack("--from=gptq", str(folder / "gptq"), "-o", str(folder / "tilus"))
    return theirs, folder / "tilus"


def gptq_weights(module, k, n):
    shifts = 4 * torch.arange(8)
    codes = (module.qweight[:, None] >> shifts[:, None] & 15).reshape(k, n)
    zeros = (module.qzeros[..., None] >> shifts & 15).reshape(-1, n) + 1
    groups = torch.arange(k) // (k // zeros.shape[0])
    return ((codes - zeros[groups]) * module.scales.float()[groups]).t()


@pytest.mark.parametrize("axis,ranks", [("out", 1), ("out", 2), ("out", 4), ("in", 2), ("in", 4)])
def test_imported_layers_of_ranks(imported, axis, ranks):
    """Of groups of 256, ranks of 128 inputs have half a group."""
    theirs, folder = imported
    exact = gptq_weights(theirs.up, 512, 192)
    (name, kind), = scheme.described(str(folder)).items()
    assert name == "up" and isinstance(kind, Rows) and kind.type == "u4"
    file, = storage.files_of(folder)
    tensors = {entry.rpartition(".")[2]: file.tensor(entry) for entry in file.entries}
    size = (192 if axis == "out" else 512) // ranks
    for rank in range(ranks):
        begin, end = rank * size, (rank + 1) * size
        part = rank_of(kind, tensors, axis, begin, end, (512, 192))
        assert torch.equal(part.dequantize(), cut_weight(exact, axis, begin, end))


def test_rows_that_are_no_whole_bytes():
    """Of 3 bits the columns 10 to 22 begin and end within bytes."""
    codes = torch.randint(0, 8, (64, 24), dtype=torch.uint8)
    scales = torch.rand(1, 24).half() + 0.5
    said = {"shape": "64,24", "group": "64", "type": "u3", "zero": "mid", "scale": "f16", "packing": "rows"}
    strings = quantize.bits_of_codes(codes, 3)
    part = rank_of(Rows("a", json.dumps(said), "file"), {"packed": strings, "scales": scales}, "out", 10, 22, (64, 24))
    exact = weights_of(codes, scales, None, "u3", 64).t()
    assert torch.equal(part.dequantize().double(), exact[10:22])


class Parameter(loader.PartsParameter):
    def __init__(self, parts, name, rank):
        self.parts, self.tensor_name, self.tp_rank = parts, name, rank


@pytest.mark.parametrize("source", ["plain", "packed"])
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_a_layer_of_queries_keys_and_values(source, ranks):
    """8 heads of queries share 2 of keys and values, which 4 ranks have twice: the product is that of the whole."""
    sizes, head = {"q": 512, "k": 128, "v": 128}, 64
    weights = {name: torch.randn(size, 128) / 11 for name, size in sizes.items()}
    whole = {}
    for name, weight in weights.items():
        linear = torch.nn.Linear(128, sizes[name], bias=False)
        linear.weight.data.copy_(weight)
        whole[name] = nn.Linear.from_float(linear, "u4", 64)
    copies = max(ranks // 2, 1)
    own = {"q": 512 // ranks, "k": max(128 // ranks, head), "v": max(128 // ranks, head)}
    for rank in range(ranks):
        parts = layers.LinearParts(scheme.Scheme(group=64), list("qkv"), 128, list(own.values()), torch.float16, CPU)
        for name in "qkv":
            tensors = {"weight": weights[name]}
            if source == "packed":
                tensors = {"packed": whole[name].packed, "scales": whole[name].scales}
            for tensor, value in tensors.items():
                param = Parameter(parts, tensor, rank)
                param.load_qkv_weight(loaded_weight=value, shard_id=name, num_heads=copies)
        linear, = parts.finish()
        begins = {"q": rank * own["q"], "k": rank // copies * own["k"], "v": rank // copies * own["v"]}
        exact = [whole[name].dequantize()[begins[name] : begins[name] + own[name]] for name in "qkv"]
        assert torch.equal(linear.dequantize(), torch.cat(exact))


def test_layers_that_do_not_fit_together():
    """Of two types, or of outputs within a granule: several products, whose outputs come one after the other."""
    kinds = scheme.Scheme(type={"a": "u4", "b": "u6"}, group=64)
    parts = layers.LinearParts(kinds, ["a", "b"], 64, [40, 64], torch.float16, CPU)
    weights = [torch.randn(40, 64), torch.randn(64, 64)]
    for i, weight in enumerate(weights):
        parts.take(i, "weight", weight, "out", 0, weight.shape[0])
    found = parts.finish()
    assert [linear.type for linear in found] == ["u4", "u6"]
    layers.set_bias(found, torch.arange(104).half())
    x = torch.randn(2, 3, 64).half()
    exact = torch.cat([linear.dequantize().double() for linear in found])
    close(layers.product(found, x), x.double() @ exact.t() + torch.arange(104), 2e-3)


def test_what_has_not_come_is_named():
    parts = layers.LinearParts(scheme.Scheme(), ["model.up"], 128, [64], torch.bfloat16, CPU)
    with pytest.raises(ValueError, match="neither its weight nor its packed weights") as caught:
        parts.finish()
    assert "in the layer model.up" in caught.value.__notes__
    _, tensors = made(128, 64, "u4", 128)
    for name, tensor in tensors.items():
        parts.take(0, name, tensor, "out", 0, 64)
    with pytest.raises(ValueError, match="serve it with --dtype float16"):
        parts.finish()


def test_random_weights_are_the_same_for_a_seed():
    made_ = []
    for seed in (0, 0, 1):
        parts = layers.LinearParts(scheme.Scheme(), ["a"], 128, [64], torch.float16, CPU)
        parts.fill(seed)
        made_.append(parts.finish()[0].dequantize())
    assert torch.equal(made_[0], made_[1]) and not torch.equal(made_[0], made_[2])
    assert 0.5 < made_[0].std() * 128**0.5 < 1.5


def stacked(weights, name, rank, ranks):
    """A rank's part of the outputs."""
    return weights[name].chunk(ranks, 1)[rank]


@pytest.mark.parametrize("ranks", [1, 2])
def test_experts_of_ranks(ranks):
    """The sum over the ranks of a mixture is the mixture, computed expert by expert in float64."""
    experts, hidden, width = 4, 128, 256
    torch.manual_seed(3)
    weights = {"w1": (width, hidden), "w3": (width, hidden), "w2": (hidden, width)}
    weights = {name: torch.randn(experts, *shape) / shape[1] ** 0.5 for name, shape in weights.items()}
    x, index = torch.randn(7, hidden).half(), torch.randint(0, experts, (7, 2))
    index[0, 1] = -1  # an expert of another rank
    factors = torch.rand(7, 2)
    names = {"w1": "e.{}.gate", "w3": "e.{}.up", "w2": "e.{}.down"}
    total = torch.zeros(7, hidden, dtype=torch.float64)
    exact = torch.zeros(7, hidden, dtype=torch.float64)
    for rank in range(ranks):
        parts = layers.ExpertParts(
            scheme.Scheme(group=64), names, experts, hidden, width // ranks, torch.float16, CPU
        )
        for shard, stack in weights.items():
            for i in range(experts):
                parts.take(i, shard, "weight", stack[i], rank, ranks)
        before, down = parts.finish()
        assert len(before) == 1 and before[0].has_turns and before[0].out_features == 2 * width // ranks
        gates = stacked(weights, "w1", rank, ranks), stacked(weights, "w3", rank, ranks)
        close(before[0].dequantize(), torch.stack(gates, 2).flatten(1, 2), 0.2)
        total += layers.mixture(before, down, x, factors, index).double()
        both, last = before[0].dequantize().double(), down.dequantize().double()
        for token in range(7):
            for i, factor in zip(index[token].tolist(), factors[token].tolist()):
                if i >= 0:
                    gate, up = (both[i] @ x[token].double()).view(-1, 2).unbind(-1)
                    exact[token] += factor * (last[i] @ (torch.nn.functional.silu(gate) * up))
    close(total, exact, 6e-3)


def test_configurations():
    found = scheme.Scheme.from_config({"quant_method": "tilusvm", "type": {"*.down": "u6", "*": "u4"}, "skip": ["a.*"]})
    assert [found.type_of(name) for name in ("b.down", "b.up", "a.up", "x.a.up")] == ["u6", "u4", None, None]
    assert found.quantizes(["b.down", "b.up"]) and not found.quantizes(["a.up"])
    with pytest.raises(ValueError, match="b.up is quantized and a.up is not"):
        found.quantizes(["b.up", "a.up"])
    with pytest.raises(TypeError, match="did you mean group"):
        scheme.Scheme.from_config({"groups": 64})
    with pytest.raises(ValueError, match="type must be"):
        scheme.Scheme.from_config({"type": "u9"})
    with pytest.raises(tilusvm.UnsupportedError, match="quantized by mxfp4: tvm-pack --from=auto MODEL -o FOLDER"):
        scheme.Scheme.from_config({"quant_method": "mxfp4"})
    with pytest.raises(tilusvm.UnsupportedError, match="'quark', which is not supported"):
        scheme.Scheme.from_config({"quant_method": "quark"})


def test_what_the_headers_say(tmp_path):
    """Of a folder of storage.save each layer has its own type; of a plain one, or of none, there is nothing to say."""
    model = torch.nn.Sequential()
    model.up, model.down = torch.nn.Linear(64, 64), torch.nn.Linear(64, 64)
    storage.save(model, tmp_path / "plain")
    tilusvm.quantize_(model.half(), {"up": "u6", "down": "u4"}, group=64, progress=False)
    storage.save(model, tmp_path / "packed")
    assert scheme.described(str(tmp_path / "plain")) == {} == scheme.described("no/such/folder")
    layers_ = scheme.described(str(tmp_path / "packed"))
    assert {name: kind.type for name, kind in layers_.items()} == {"up": "u6", "down": "u4"}
    renamed = scheme.Scheme(layers=layers_).renamed(lambda name: None if name == "down" else f"model.{name}")
    assert list(renamed.layers) == ["model.up"] and renamed.skip == ("model.lm_head",)


def test_types_of_caches():
    assert cache.types_of(None) == {"k_type": None, "v_type": None, "k_zeros": False, "v_zeros": False}
    assert cache.types_of("k8v4") == cache.types_of("u8,u4")
    assert cache.types_of("k16v3")["k_type"] is None
    assert cache.types_of("f8_e4m3,u2+zeros") == {
        "k_type": "f8_e4m3", "v_type": "u2", "k_zeros": False, "v_zeros": True,
    }  # fmt: skip
    for text, message in [("u9", "type must be"), ("u4,u4,u4", "not 3"), ("u4+x", "only zeros may stand")]:
        with pytest.raises(ValueError, match=message):
            cache.types_of(text)
    assert cache.token_bytes(cache.types_of(None), 128) == 512
    assert cache.token_bytes(cache.types_of("u4"), 128) == 2 * (64 + 2)
    for text in ("k8v4", "u3,u2+zeros", "k16v4"):
        types = cache.types_of(text)
        shape = cache.format_for(types, torch.float16, 64, 32).shape(3, 2)
        assert 4 * torch.Size(shape).numel() == 3 * 2 * 32 * cache.token_bytes(types, 64)
    assert ops.packed_shape("u4", 64, 64, 64) == (1, 1, 2048)
