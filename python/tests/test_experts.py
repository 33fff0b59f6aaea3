"""Stacks of experts: against their own weights one by one, in models of transformers, and as others quantized them."""

import copy
import json
import pickle

import numpy
import pytest
from conftest import NO_TORCH, torch

if torch is None:
    pytest.skip(NO_TORCH, allow_module_level=True)

from test_checkpoint import gptq, number, write  # noqa: E402
from torch_kit import DEVICES, close, tvm_pack  # noqa: E402

from tilusvm import experts, nn, ops, quantize_, storage  # noqa: E402


def stack(device="cpu", type="u4", group=64, *, count=4, k=128, n=72, bias=True, **words):
    torch.manual_seed(0)
    weight, more = torch.randn(count, n, k, device=device), torch.randn(count, n, device=device)
    return experts.Experts.from_float(weight, type, group, bias=more if bias else None, **words)


def expected(made, x, index):
    """Row by row, in f64; zeros for what is no expert."""
    weights, rows = made.dequantize().double(), []
    for row, i in zip(x.double(), index.flatten().tolist()):
        y = torch.zeros(made.out_features, dtype=torch.float64, device=x.device)
        if 0 <= i < made.experts:
            y = weights[i] @ row
            if made.bias is not None:
                y = y + made.bias[i, : made.out_features].double()
        rows.append(y)
    return torch.stack(rows)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "type, group, dtype, words",
    [
        ("u4", 64, "float16", {}), ("u3", 32, "float16", {"zeros": True}), ("f4_e2m1", 32, "bfloat16", {}),
        ("nf4", 64, "float16", {}), ("f6_e3m2", 128, "bfloat16", {}), ("u8", 0, "float16", {}),
    ],
)  # fmt: skip
def test_each_row_has_its_expert(device, type, group, dtype, words):
    """Few rows and many; some belong to no expert, and one has no rows."""
    made = stack(device, type, group, dtype=getattr(torch, dtype), **words)
    draw = torch.Generator().manual_seed(1)
    for rows in (1, 5, 40, 150) if device == "cuda" else (5, 40):
        x = torch.randn(rows, 128, generator=draw).to(device, made.dtype)
        index = torch.randint(-1, 6, (rows,), generator=draw).to(device)
        index[index == 2] = 0
        index[0] = 3
        close(made(x, index), expected(made, x, index), 2e-3 if dtype == "float16" else 1.6e-2)


@pytest.mark.parametrize("device", DEVICES)
def test_gates(device):
    """Of columns 2j and 2j + 1."""
    made, x, index = stack(device), torch.randn(20, 128, device=device).half(), torch.arange(20, device=device) % 4
    a, b = expected(made, x, index).unflatten(1, (-1, 2)).unbind(-1)
    close(made(x, index, gate="silu"), torch.nn.functional.silu(a) * b, 3e-3)
    clamped = a.clamp(max=7) * torch.sigmoid(1.702 * a.clamp(max=7)) * (b.clamp(-7, 7) + 1)
    close(made(x, index, gate="clamped"), clamped, 3e-3)
    with pytest.raises(ValueError, match="gate must be"):
        made(x, index, gate="relu")


@pytest.mark.parametrize("device", DEVICES)
def test_rows_of_tokens(device):
    """Few, which the product gathers, and many, which are copied, are the same products."""
    made, draw = stack(device), torch.Generator().manual_seed(4)
    for tokens in (1, 7, 40):
        x = torch.randn(tokens, 128, generator=draw).to(device, torch.float16)
        index = torch.randint(-1, 4, (tokens, 3), generator=draw).to(device)
        rows = experts.rows_of(index, 4)
        close(rows.gather(made.of_tokens(x, rows)), expected(made, x.repeat_interleave(3, 0), index), 2e-3)
    none = torch.zeros(0, 3, dtype=torch.int64, device=device)
    assert made.of_tokens(x[:0], experts.rows_of(none, 4)).shape == (0, 72)


@pytest.mark.parametrize("device", DEVICES)
def test_weights_that_are_read_early(device):
    """The same bits, of few rows and many, and of none; offsets that gather rows are not read early."""
    made, draw = stack(device, n=200), torch.Generator().manual_seed(5)
    for count in (0, 3, 30, 90):
        x = torch.randn(count, 128, generator=draw).to(device, torch.float16)
        rows = experts.rows_of(torch.randint(0, 4, (count,), generator=draw).to(device), 4)
        assert torch.equal(made(x, rows, early=True), made(x, rows))
    with pytest.raises(ValueError, match="early goes without rows"):
        experts.matmul_experts(
            x, rows.offsets, made.packed, made.scales, type="u4", group=64, rows=rows.rows, early=True
        )  # fmt: skip


def test_sizes_that_are_no_multiples():
    made = stack(k=100, n=33)
    x, index = torch.randn(20, 100).half(), torch.arange(20) % 4
    close(made(x, index), expected(made, x, index), 2e-3)
    assert made.dequantize().shape == (4, 33, 100)


def test_rows():
    """Each expert's rows stand side by side, each row at a place of its own, in their order; those of none are last."""
    for index in (torch.randint(-2, 9, (200,)), torch.zeros(17).long(), torch.arange(60) % 7, torch.tensor([[3], [9]])):
        rows, flat = experts.rows_of(index, 7), index.flatten()
        assert rows.offsets[0] == 0 and rows.offsets[-1] == ((flat >= 0) & (flat < 7)).sum()
        for e in range(7):
            assert torch.equal(rows.rows[rows.offsets[e] : rows.offsets[e + 1]], (flat == e).nonzero()[:, 0].int())
        is_own = (flat >= 0) & (flat < 7)
        assert torch.equal(rows.rows[rows.places[is_own]], torch.arange(len(flat)).int()[is_own])
        assert (rows.places[~is_own] == len(flat)).all()
        x = torch.randn(len(flat), 4)
        assert torch.equal(rows.gather(rows.spread(x)), x * is_own[:, None])


def test_a_stack_is_a_module():
    made = stack()
    x, index = torch.randn(3, 128).half(), torch.tensor([3, 0, 3])
    y = made(x, index)
    for other in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert torch.equal(other(x, index), y)
    other = experts.Experts(4, 128, 72, type="u4", group=64)
    other.load_state_dict(made.state_dict())
    assert torch.equal(other(x, index), y)
    one = made.linear(3)
    assert type(one) is nn.Linear and torch.equal(one.dequantize(), made.dequantize()[3])
    again = experts.Experts.from_linears(made.linear(i) for i in range(4))
    assert torch.equal(again(x, index), y)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(made(x.float(), index), y)
    assert "experts=4, in_features=128" in repr(made)


@pytest.mark.parametrize("device", DEVICES)
def test_compiled_without_graph_breaks(device):
    """Few rows and many."""
    made = stack(device)
    compiled = torch.compile(made, fullgraph=True, backend="inductor" if device == "cuda" else "aot_eager")
    for rows in (3, 40):
        x, index = torch.randn(rows, 128, device=device).half(), torch.arange(rows, device=device) % 4
        assert torch.equal(compiled(x, index), made(x, index))


def test_what_is_refused():
    made = stack()
    x, index = torch.randn(3, 128).half(), torch.tensor([3, 0, 3])
    for call, message in [
        (lambda: made(x.float(), index), r"x must be torch\.float16"),
        (lambda: made(x[:, :64], index), r"x must have the shape \[rows, 128\]"),
        (lambda: made(x, index[:2]), "for each of 3 rows, not 2"),
        (lambda: made(x, index.float()), "index must be of integers"),
        (lambda: made(x, index.to("meta")), "on cpu|meta"),
        (lambda: experts.Experts(0, 8, 8), "experts must be a number"),
        (lambda: experts.Experts(2, 64, 64, type="f4_e2m1", zeros=True), "zeros goes with unsigned"),
        (lambda: experts.Experts.from_float(torch.ones(4, 4)), "3 dimensions"),
        (lambda: experts.Experts.from_linears([]), "one at least"),
        (lambda: experts.Experts.from_linears([nn.Linear(64, 64), nn.Linear(64, 72)]), "out_features of expert 1"),
        (lambda: experts.matmul_experts(x, index.int(), made.packed, made.scales, type="u4", group=64), "shape .5."),
        (lambda: experts.matmul_experts(x, torch.zeros(5), made.packed, made.scales, type="u4", group=64), "offsets must be torch.int32"),
        (lambda: experts.Experts(513, 8, 8), "from 1 to 512"),
        (lambda: experts.MixtureOfExperts(torch.nn.Linear(2, 2)), "the experts of a mixture"),
    ]:
        with pytest.raises((TypeError, ValueError, RuntimeError), match=message):
            call()


# ---- models of transformers ----

SIZES = dict(
    hidden_size=64, num_hidden_layers=1, num_attention_heads=1, num_key_value_heads=1, head_dim=64, vocab_size=32,
    max_position_embeddings=32, num_experts_per_tok=2, pad_token_id=0, bos_token_id=1, eos_token_id=None,
)  # fmt: skip
FAMILIES = {
    "mixtral": dict(intermediate_size=96, num_local_experts=4),
    "qwen3_moe": dict(intermediate_size=96, moe_intermediate_size=96, num_experts=4),
    "qwen2_moe": dict(
        intermediate_size=96, moe_intermediate_size=64, shared_expert_intermediate_size=64, num_experts=4
    ),
    "gpt_oss": dict(intermediate_size=96, num_local_experts=4, layer_types=["full_attention"]),
    "deepseek_v3": dict(
        intermediate_size=96, moe_intermediate_size=64, n_routed_experts=16, n_shared_experts=1, n_group=4,
        topk_group=2, num_experts_per_tok=4, first_k_dense_replace=0, q_lora_rank=32, kv_lora_rank=32,
        qk_rope_head_dim=16, qk_nope_head_dim=32, v_head_dim=32, head_dim=16,
    ),
    "qwen3_next": dict(
        intermediate_size=96, moe_intermediate_size=64, shared_expert_intermediate_size=64, num_experts=8,
        num_experts_per_tok=3, layer_types=["full_attention"], norm_topk_prob=True, decoder_sparse_step=1,
        use_cache=False,
    ),
}  # fmt: skip
IDS = torch.arange(1, 25).view(2, 12)


def mixture_of(config, dtype=torch.float16, spread=0.2):
    """A causal model of random weights, in float16 or bfloat16, without gradients."""
    transformers = pytest.importorskip("transformers", reason="transformers cannot be imported")
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype).eval().requires_grad_(False)
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1 or "bias" in name:
            parameter.normal_(0.0, spread)
    return model


def config_of(family, words):
    transformers = pytest.importorskip("transformers", reason="transformers cannot be imported")
    transformers.logging.set_verbosity_error()
    return transformers.AutoConfig.for_model(family, **words)


def model_of(family):
    model = mixture_of(config_of(family, SIZES | FAMILIES[family]))
    for name, buffer in model.named_buffers():
        if name.endswith("e_score_correction_bias"):
            buffer.normal_(0.0, 0.1)
    return model


def mlp_of(model):
    return model.model.layers[0].mlp


def exact(model, quantized):
    """The model with the weights that the codes stand for, in f32, by transformers' own experts."""
    model = copy.deepcopy(model).float()
    model.set_experts_implementation("eager")
    ours, theirs = mlp_of(quantized).experts, mlp_of(model).experts
    for name in experts.stacks_of(theirs):
        weight = getattr(ours, name).dequantize()
        theirs._parameters[name].copy_(weight.mT if getattr(theirs, "is_transposed", False) else weight)
    for name, module in quantized.named_modules():
        if isinstance(module, (nn.Linear, nn.Linear8)):
            model.get_submodule(name).weight.copy_(module.dequantize())
    return model


@pytest.mark.transformers
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("family", FAMILIES)
def test_models(family, device, tmp_path):
    """quantize_, and what save and save_pretrained wrote, loaded."""
    model = model_of(family)
    quantized = quantize_(copy.deepcopy(model), {"*.down_proj": "u6", "*": "u4"}, 32, skip=["lm_head"], progress=False)
    mixture = mlp_of(quantized).experts
    assert type(mixture) is experts.MixtureOfExperts
    assert (mixture.gate_up_proj.type, mixture.down_proj.type) == ("u4", "u6")
    wanted = exact(model, quantized)(IDS).logits
    quantized.to(device)
    logits = quantized(IDS.to(device)).logits
    close(logits.cpu(), wanted, 0.01)
    if device == "cuda":
        graph, x = torch.cuda.CUDAGraph(), torch.randn(1, 3, 64, device="cuda").half()
        block = mlp_of(quantized)
        want = block(x)
        with torch.cuda.graph(graph):
            found = block(x)
        graph.replay()
        first = (found[0], want[0]) if isinstance(found, tuple) else (found, want)
        assert torch.equal(*first)
    assert torch.equal(copy.deepcopy(quantized)(IDS.to(device)).logits, logits)
    storage.save(quantized, tmp_path)
    other = storage.load(model_of(family).to("meta"), tmp_path, device=device)
    assert torch.equal(mlp_of(other).experts.down_proj.packed, mixture.down_proj.packed)
    assert torch.equal(other(IDS.to(device)).logits, logits)


def gate_of(model):
    block = mlp_of(model)
    return getattr(block, "gate", None) or block.router


def chosen(weights, ids, experts):
    return torch.zeros(len(ids), experts, device=ids.device).scatter_(1, ids.long(), weights.float())


@pytest.mark.transformers
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("family", FAMILIES)
def test_routers(family, device):
    """A router that is found out gives what it gave, and the sort; copies, gradients and compiled blocks."""
    model = model_of(family)
    assert "forward" not in vars(gate_of(model))
    quantized = quantize_(model, "u8", 32, skip=["lm_head"], progress=False).to(device)
    x = torch.randn(37, 64, generator=torch.Generator().manual_seed(5)).to(device, torch.float16)
    for gate in (gate_of(quantized), gate_of(copy.deepcopy(quantized)), pickle.loads(pickle.dumps(gate_of(quantized)))):
        if family == "deepseek_v3" and not isinstance(type(gate).forward(gate, x), tuple):
            assert "forward" not in vars(gate)  # of versions of transformers that choose in the block
            return
        logits, weights, routes = gate(x)
        wanted_logits, wanted_weights, ids = type(gate).forward(gate, x)
        assert isinstance(routes, ops.Routes) and weights.dtype == wanted_weights.dtype
        close(logits, wanted_logits, 1e-3)
        experts = logits.shape[1]
        found, wanted = chosen(weights, routes.ids, experts), chosen(wanted_weights, ids, experts)
        alike = ((found - wanted).abs() < 3e-3).all(-1)  # two experts of equal logits may change places
        assert alike.double().mean() > 0.9
    asked = gate_of(quantized)(x.clone().requires_grad_())
    assert torch.is_tensor(asked[2]) and asked[1].requires_grad
    block = mlp_of(quantized)
    compiled = torch.compile(block, fullgraph=True, backend="aot_eager")
    first = [y[0] if isinstance(y, tuple) else y for y in (block(x[None]), compiled(x[None]))]
    assert torch.equal(*first)


@pytest.mark.transformers
def test_a_router_of_its_own_stays():
    """Whatever it has the names of."""
    model = model_of("mixtral")
    gate = gate_of(model)

    class Doubled(type(gate)):
        def forward(self, x):
            logits, weights, ids = super().forward(x)
            return logits, 2 * weights + 0.01, ids

    gate.__class__ = Doubled
    quantized = quantize_(copy.deepcopy(model), "u8", 32, skip=["lm_head"], progress=False)
    assert "forward" not in vars(gate_of(quantized))
    close(quantized(IDS).logits, exact(model, quantized)(IDS).logits, 0.01)


@pytest.mark.transformers
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("family", ["mixtral", "qwen2_moe", "qwen3_moe"])
def test_decoders(family, device):
    """Around the experts the package's kernels, in place and by the Decoder, whose steps a CUDA graph replays."""
    from tilusvm.transformers import Decoder, accelerate_

    model = quantize_(model_of(family), "u4", 32, skip=["lm_head"], progress=False).to(device)
    ids = IDS.to(device)
    wanted = model(ids).logits
    decoder = Decoder(model, 2, 32, page=16)
    decoder.prepare(12)
    close(decoder.forward(ids[:, :8]), wanted[:, 7], 0.01)
    for i in range(8, 12):
        logits = decoder.forward(ids[:, i : i + 1])
    close(logits, wanted[:, 11], 0.01)
    assert decoder.generate(ids, 3).shape == (2, 15) and (device == "cuda") == (decoder.graph is not None)
    close(accelerate_(model)(ids).logits, wanted, 0.01)


@pytest.mark.transformers
@pytest.mark.parametrize("family", ["mixtral", "gpt_oss"])
def test_from_pretrained(family, tmp_path):
    transformers = pytest.importorskip("transformers", reason="transformers cannot be imported")
    from tilusvm.transformers import TilusConfig

    model_of(family).save_pretrained(tmp_path / "plain")
    load = transformers.AutoModelForCausalLM.from_pretrained
    config = TilusConfig("u4", group=32, zeros=True)
    quantized = load(tmp_path / "plain", quantization_config=config, dtype=torch.float16)
    assert mlp_of(quantized).experts.down_proj.zeros is not None
    logits = quantized(IDS).logits
    close(logits, exact(model_of(family), quantized)(IDS).logits, 0.01)
    quantized.save_pretrained(tmp_path / "quantized")
    again = load(tmp_path / "quantized", dtype=torch.float16)
    assert torch.equal(again(IDS).logits, logits)


# ---- quantized by others ----


def theirs(model, folder, layers, quantization):
    """A folder of the model's checkpoint whose experts are those of layers, by the names that hubs have them under."""
    model.save_pretrained(folder)
    files = [storage.File(path) for path in sorted(folder.glob("*.safetensors"))]
    tensors = {name: file.tensor(name) for file in files for name in file.entries if ".experts." not in name}
    for name, tensor in tensors.items():
        half = tensor.dtype == torch.bfloat16
        tensors[name] = ("BF16", tensor.view(torch.int16).numpy()) if half else tensor.numpy()
    write(folder / "model.safetensors", tensors | layers)
    said = json.loads((folder / "config.json").read_text()) | {"quantization_config": quantization}
    (folder / "config.json").write_text(json.dumps(said))


def gpt_oss(count, hidden, inner):
    """MXFP4 as gpt-oss has it: [experts, outputs, inputs / 32, 16 bytes], gate and up by turns; biases; the weights."""
    draw, tensors, weights = numpy.random.default_rng(3), {}, {}
    values = numpy.array([number("f4_e2m1", code) for code in range(16)])
    for name, n, k in (("gate_up_proj", 2 * inner, hidden), ("down_proj", hidden, inner)):
        codes, scales = draw.integers(0, 16, (count, n, k)), draw.integers(118, 124, (count, n, k // 32))
        blocks = (codes[..., ::2] | codes[..., 1::2] << 4).astype(numpy.uint8)
        tensors[f"{name}_blocks"] = blocks.reshape(count, n, k // 32, 16)
        tensors[f"{name}_scales"] = scales.astype(numpy.uint8)
        tensors[f"{name}_bias"] = draw.standard_normal((count, n)).astype(numpy.float16)
        weights[name] = (values[codes] * 2.0 ** (scales - 127.0).repeat(32, -1)).transpose(0, 2, 1)
    return tensors, weights


@pytest.mark.transformers
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("pretrained", [False, True])
def test_gpt_oss(tmp_path, device, pretrained):
    """A stack of all experts, whose scales are the file's."""
    model = model_of("gpt_oss").bfloat16()
    tensors, weights = gpt_oss(4, 64, 96)
    theirs(model, tmp_path / "theirs", {f"model.layers.0.mlp.experts.{n}": t for n, t in tensors.items()},
           {"quant_method": "mxfp4"})  # fmt: skip
    found = imported(tmp_path, model, device, pretrained)
    block = mlp_of(found).experts
    assert (block.down_proj.type, block.down_proj.group, block.down_proj.dtype) == ("f4_e2m1", 32, torch.bfloat16)
    assert block.gate_up_proj.scale_dtype == block.down_proj.scale_dtype == torch.uint8
    for name, weight in weights.items():
        assert torch.equal(getattr(block, name).dequantize().double().cpu(), torch.from_numpy(weight).mT)
        mlp_of(model).experts._parameters[name].copy_(torch.from_numpy(weight))
        mlp_of(model).experts._parameters[f"{name}_bias"].copy_(torch.from_numpy(tensors[f"{name}_bias"]))
    check(model, found, device, 0.03)


@pytest.mark.transformers
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "family, pretrained, mixed", [("mixtral", False, False), ("mixtral", True, True), ("qwen3_moe", True, False)]
)
def test_lists_of_experts(tmp_path, family, pretrained, mixed, device):
    """Experts one by one, of GPTQ; with act-order each expert and matrix has its own order of inputs."""
    model = model_of(family)
    names = ("w1", "w3", "w2") if family == "mixtral" else ("gate_proj", "up_proj", "down_proj")
    prefix = "model.layers.0." + ("block_sparse_moe" if family == "mixtral" else "mlp")
    layers, weights = {}, {"gate_up_proj": [], "down_proj": []}
    for expert in range(4):
        both = []
        for i, (name, k, n) in enumerate(zip(names, (64, 64, 96), (96, 96, 64))):
            tensors, weight = gptq(k, n, 32, 4, mixed=mixed, seed=10 * expert + i)
            layers |= {f"{prefix}.experts.{expert}.{name}.{last}": value for last, value in tensors.items()}
            both.append(torch.from_numpy(weight.T.copy()))
        weights["gate_up_proj"].append(torch.cat(both[:2]))
        weights["down_proj"].append(both[2])
    theirs(model, tmp_path / "theirs", layers, {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": mixed})
    found = imported(tmp_path, model, device, pretrained)
    block = mlp_of(found).experts
    assert (block.down_proj.order is not None) == mixed
    for name, each in weights.items():
        mlp_of(model).experts._parameters[name].copy_(torch.stack(each))
    assert torch.equal(block.down_proj.dequantize().double().cpu(), torch.stack(weights["down_proj"]))
    check(model, found, device, 0.01)


def imported(folder, model, device, pretrained):
    tvm_pack("--from=auto", folder / "theirs", "-o", folder / "ours")
    if not pretrained:
        return storage.load(copy.deepcopy(model).to("meta"), folder / "ours", device=device)
    import transformers

    from tilusvm.transformers import TilusConfig  # noqa: F401: from_pretrained knows these folders by it

    return transformers.AutoModelForCausalLM.from_pretrained(folder / "ours", dtype=model.dtype).to(device)


def check(model, found, device, tolerance):
    """Of the mixture, and the whole: norms and the like of the file's type, too."""
    draw = torch.Generator().manual_seed(2)
    x = torch.randn(2, 9, 64, generator=draw).to(found.dtype)
    model = model.float()
    model.set_experts_implementation("eager")
    wanted, ours = mlp_of(model)(x.float()), mlp_of(found)(x.to(device))
    wanted, ours = (y[0] if isinstance(y, tuple) else y for y in (wanted, ours))
    close(ours.cpu(), wanted, tolerance)
    close(found(IDS.to(device)).logits.cpu(), model(IDS).logits, 3 * tolerance)


@pytest.mark.transformers
def test_lists_that_are_not_whole(tmp_path):
    model = model_of("mixtral")
    layers = {}
    for expert in (0, 1, 3):
        for name, k, n in zip(("w1", "w3", "w2"), (64, 64, 96), (96, 96, 64)):
            tensors = gptq(k, n, 32, 4)[0]
            layers |= {f"model.layers.0.block_sparse_moe.experts.{expert}.{name}.{x}": v for x, v in tensors.items()}
    theirs(model, tmp_path / "theirs", layers, {"quant_method": "gptq", "bits": 4, "group_size": 32})
    with pytest.raises(KeyError, match=r"of the 4 experts of model.layers.0.mlp.experts .* of \[0, 1, 3\]"):
        imported(tmp_path, model, "cpu", False)
