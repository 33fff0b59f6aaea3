"""Stacks of experts whose activations have 8 or 4 bits: against float64, in models of transformers, and as files of
others have them. What activations become is computed here by the formats' definitions."""

import copy
import json
import pickle

import pytest
from conftest import NO_TORCH, torch

if torch is None:
    pytest.skip(NO_TORCH, allow_module_level=True)

from microscaled_kit import values, whole_scale  # noqa: E402
from test_experts import config_of, mixture_of, mlp_of  # noqa: E402
from torch_kit import DEVICES, close  # noqa: E402

from tilusvm import experts, nn, ops, parallel, quantize_, storage  # noqa: E402

F8 = torch.float8_e4m3fn
#: type, group, activations, words
STACKS = [
    ("i8", 0, "i8", {}), ("f8_e4m3", 0, "f8_e4m3", {}), ("f8_e4m3", 128, "f8_e4m3", {}), ("u4", 128, "i8", {}),
    ("u4", 32, "f8_e4m3", {"zeros": True}), ("i3", 0, "i8", {}), ("f4_e2m1", 64, "f8_e4m3", {}),
    ("f8_e4m3", 32, "mxfp8", {}), ("f4_e2m1", 32, "mxfp4", {}), ("f4_e2m1", 16, "nvfp4", {}),
]  # fmt: skip


def stack(device="cpu", type="u4", group=128, activations="i8", *, count=4, k=256, n=136, bias=True, **words):
    torch.manual_seed(0)
    weight, more = torch.randn(count, n, k, device=device), torch.randn(count, n, device=device)
    return experts.Experts.from_float(
        weight, type, group, bias=more if bias else None, activations=activations, **words
    )  # fmt: skip


def rounded(x, activations, group=0, step=None, whole=None):
    """What x becomes, in float64. step: a static scale, of all or of each row; whole: nvfp4's of all of x."""
    if activations in ("nvfp4", "mxfp4", "mxfp8"):
        return values(x.float(), activations, whole)
    most = 448.0 if activations == "f8_e4m3" else 127.0
    groups = x.float().unflatten(-1, (-1, group or x.shape[-1]))
    # (a tensor divides exactly; of a number torch multiplies by the reciprocal, on a GPU)
    scale = groups.abs().amax(-1, keepdim=True) / torch.full_like(groups[..., :1], most) if step is None else step
    scale = torch.where(scale == 0, 1.0, scale)
    numbers = (groups / scale).clamp(-most - (activations == "i8"), most)
    numbers = numbers.to(F8) if activations == "f8_e4m3" else numbers.round()
    return (numbers.double() * scale).flatten(-2)


def blocks_of(made):
    return 128 if made.has_blocks else 0


def expected(made, x, index):
    """Row by row, in f64; zeros for what is no expert."""
    whole = whole_scale(x.float()) if made.activations == "nvfp4" else None
    weights, rows = made.dequantize().double(), []
    for row, i in zip(rounded(x, made.activations, blocks_of(made), whole=whole), index.flatten().tolist()):
        y = torch.zeros(made.out_features, dtype=torch.float64, device=x.device)
        if 0 <= i < made.experts:
            y = weights[i] @ row + (0 if made.bias is None else made.bias[i].double())
        rows.append(y)
    return torch.stack(rows)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("type, group, activations, words", STACKS)
def test_each_row_has_its_expert(device, type, group, activations, words, dtype):
    """Few rows and many; some belong to no expert, and one has no rows. Tokens that are rounded before they are spread
    give the same bits."""
    dtype = getattr(torch, dtype)
    made = stack(device, type, group, activations, dtype=dtype, **words)
    assert isinstance(made, experts.Experts8) and made.dtype == dtype
    draw = torch.Generator().manual_seed(1)
    for count in (1, 5, 40, 150) if device == "cuda" else (20,):
        x = torch.randn(count, 256, generator=draw).to(device, dtype)
        index = torch.randint(-1, 6, (count,), generator=draw).to(device)
        index[index == 2] = 0
        index[0] = 3
        y = made(x, index)
        close(y, expected(made, x, index), 2e-3 if dtype == torch.float16 else 1.6e-2)
        assert y.dtype == dtype
        pairs = torch.randint(-1, 4, (count, 2), generator=draw).to(device)
        rows = experts.rows_of(pairs, 4)
        twice = made(x.repeat_interleave(2, 0), pairs.flatten())
        assert torch.equal(rows.gather(made.of_tokens(x, rows)), twice)
    none = torch.zeros(0, 3, dtype=torch.int64, device=device)
    assert made.of_tokens(x[:0], experts.rows_of(none, 4)).shape == (0, 136)


@pytest.mark.parametrize("device", DEVICES)
def test_bytes_are_spread_as_they_are(device):
    """Of all patterns, among them those that a float has for NaN."""
    rows = experts.rows_of(torch.tensor([2, 0, 1, 1, 0, 3], device=device), 4)
    x = torch.arange(256, device=device).repeat(3, 3)[:, :256].contiguous()
    x = torch.cat([x, x.flip(1), x * 77 % 256], 1).to(torch.uint8)
    for dtype in (torch.uint8, torch.int8, F8):
        found = rows.spread(x.view(dtype), 2)
        assert found.dtype == dtype and torch.equal(found.view(torch.uint8), x[rows.rows.long() // 2])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("type, group, activations", [("i8", 0, "i8"), ("f8_e4m3", 0, "f8_e4m3"),
                                                      ("u4", 128, "i8"), ("f4_e2m1", 16, "nvfp4")])  # fmt: skip
def test_scales_of_each_expert(device, type, group, activations):
    """Static scales of activations, and what inputs are multiplied by: each expert has its own."""
    made = stack(device, type, group, activations)
    draw = torch.Generator().manual_seed(3)
    made.input_scale = (torch.rand(4, generator=draw) * 0.02 + 0.01).to(device)
    made.smoothing = (torch.rand(4, 256, generator=draw) + 0.5).to(device)
    if activations == "nvfp4":
        made.input_scale /= 300
    x, index = torch.randn(12, 256, generator=draw).to(device).half(), torch.arange(12, device=device) % 5 - 1
    y = torch.zeros(12, 136, dtype=torch.float64, device=device)
    for row, i in enumerate(index.tolist()):
        if i >= 0:
            one, step = made.linear(i), made.input_scale[i]
            smooth = x[row].float() * made.smoothing[i]
            whole = step.reshape(1) if activations == "nvfp4" else None
            weights = one.dequantize().double() / made.smoothing[i].double()
            y[row] = weights @ rounded(smooth, activations, step=step, whole=whole) + one.bias.double()
    close(made(x, index), y, 2e-3)
    rows = experts.rows_of(torch.stack([index, index.flip(0)], 1), 4)
    assert torch.equal(rows.gather(made.of_tokens(x, rows))[::2], made(x, index))
    assert not made.rounds_alike


def test_a_stack_is_a_module():
    made = stack()
    x, index = torch.randn(3, 256).half(), torch.tensor([3, 0, 3])
    y = made(x, index)
    for other in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert torch.equal(other(x, index), y)
    other = experts.Experts8(4, 256, 136, type="u4", activations="i8")
    other.load_state_dict(made.state_dict())
    assert torch.equal(other(x, index), y)
    one = made.linear(3)
    assert type(one) is nn.Linear8 and torch.equal(one.dequantize(), made.dequantize()[3])
    assert torch.equal(one(x[2:]), y[2:])
    again = experts.Experts8.from_linears(made.linear(i) for i in range(4))
    assert torch.equal(again(x, index), y)
    numbers = ops.quantize_rows(x[[1, 0, 2]], torch.int8)
    assert torch.equal(made(numbers, experts.rows_of(torch.tensor([0, 3, 3]), 4)), y[[1, 0, 2]])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(made(x.float(), index), y)
    assert made.bfloat16().dtype == torch.bfloat16 and made.scales.dtype == torch.float32
    assert repr(made).startswith("Experts8(experts=4, in_features=256") and "activations=i8" in repr(made)
    with pytest.raises(RuntimeError, match="activations of i8, in the state .* activations of f8_e4m3"):
        made.load_state_dict(stack(activations="f8_e4m3").state_dict())
    asked = x.clone().requires_grad_()
    with pytest.raises(NotImplementedError, match="no gradient"):
        made(asked, index).sum().backward()


@pytest.mark.parametrize("device", DEVICES)
def test_compiled_without_graph_breaks(device):
    made = stack(device)
    compiled = torch.compile(made, fullgraph=True, backend="inductor" if device == "cuda" else "aot_eager")
    for rows in (3, 40):
        x, index = torch.randn(rows, 256, device=device).half(), torch.arange(rows, device=device) % 4
        assert torch.equal(compiled(x, index), made(x, index))


@pytest.mark.parametrize("type, group, activations", [("u4", 128, "i8"), ("i8", 0, "i8")])
def test_operators_are_torchs(type, group, activations):
    """Schemas, and what torch.compile sees."""
    made, rows = stack(type=type, group=group, activations=activations), experts.rows_of(torch.tensor([3, 0, 3]), 4)
    kind = made.packed.dtype if made.is_wide else torch.int8
    a, scales = ops.quantize_rows(torch.randn(3, 256), kind, blocks_of(made))
    words, given = {"group": group, "out_dtype": torch.float16}, (a, rows.offsets, made.packed, scales, made.scales)
    name = "matmul_scaled_experts" if made.is_wide else "matmul_lowbit_a8_experts"
    words |= {} if made.is_wide else {"type": type}
    operator, function = getattr(torch.ops.tilusvm, name).default, getattr(experts, name)
    whole = function.operator._whole(given, words)
    torch.library.opcheck(operator, whole, test_utils=("test_schema", "test_faketensor"))
    assert torch.equal(operator(*whole), function(*given, **words))


def test_what_is_refused():
    made, wide = stack(), stack(type="i8", group=0)
    x, index, rows = torch.randn(3, 256).half(), torch.tensor([3, 0, 3]), experts.rows_of(torch.tensor([3, 0, 3]), 4)
    (a, scales), offsets = ops.quantize_rows(x), rows.offsets
    layers = [made.linear(0), wide.linear(0)]
    static = [nn.Linear8(256, 8, type="i8", group=0, activations="i8", static=flag) for flag in (True, False)]
    scaled, narrow = experts.matmul_scaled_experts, experts.matmul_lowbit_a8_experts
    for call, message in [
        (lambda: made(x[:, :64], index), r"Experts8: x must have the shape \[rows, 256\]"),
        (lambda: made(x, index[:2]), "for each of 3 rows, not 2"),
        (lambda: made((a, scales), index), "experts must be ExpertRows beside numbers, not Tensor"),
        (lambda: made([1.0], index), "x must be a tensor, not list"),
        (lambda: experts.Experts8(0, 128, 8), "experts must be a number"),
        (lambda: experts.Experts8(2, 100, 8), "in_features must be a multiple of 128"),
        (lambda: experts.Experts8(2, 128, 8, activations="i4"), "activations must be i8, f8_e4m3"),
        (lambda: experts.Experts8.from_linears([nn.Linear(64, 64)]), "layers must be nn.Linear8, not Linear"),
        (lambda: experts.Experts8.from_linears(layers), "type of expert 1 is i8, not u4"),
        (lambda: experts.Experts8.from_linears(static), "input_scale of expert 1 is none, and others have one"),
        (lambda: experts.Experts8.from_linears(static[::-1]), "input_scale of expert 0 is none, and others have one"),
        (lambda: narrow(a, offsets, made.packed, scales, made.scales[:, :1].clone()), "scales must have the shape"),
        (lambda: narrow(a, offsets[:-1], made.packed, scales, made.scales), r"offsets must have the shape \[5\]"),
        (lambda: narrow(a, offsets.long(), made.packed, scales, made.scales), r"offsets must be torch\.int32"),
        (lambda: narrow(a[None], offsets, made.packed, scales, made.scales), "a must have 2 dimensions"),
        (lambda: narrow(a, offsets, made.packed[0], scales, made.scales), "packed must have 4 dimensions"),
        (lambda: scaled(a, offsets, wide.packed, scales, wide.scales, group=32), "int8 goes with group 128 or 0"),
        (lambda: scaled(a, offsets, wide.packed[0], scales, wide.scales, group=0), "b must have 3 dimensions"),
        (lambda: scaled(a, offsets, wide.packed, scales, wide.scales[0], group=0), "scale_b must have the shape"),
        (lambda: scaled(a[:, :128].contiguous(), offsets, wide.packed, scales, wide.scales, group=0), "256 columns"),
        (lambda: scaled(a, offsets[1:], wide.packed, scales, wide.scales, group=0), r"offsets must have the shape"),
    ]:
        with pytest.raises((TypeError, ValueError), match=message):
            call()


# ---- models of transformers ----

SIZES = dict(
    hidden_size=128, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2, head_dim=64, vocab_size=32,
    max_position_embeddings=32, num_experts_per_tok=2, pad_token_id=0, bos_token_id=1, eos_token_id=None,
)  # fmt: skip
FAMILIES = {
    "mixtral": dict(intermediate_size=256, num_local_experts=4),
    "qwen3_moe": dict(intermediate_size=128, moe_intermediate_size=128, num_experts=4),
    "gpt_oss": dict(intermediate_size=128, num_local_experts=4, layer_types=["full_attention"]),
    "deepseek_v3": dict(
        intermediate_size=128, moe_intermediate_size=128, n_routed_experts=8, n_shared_experts=1, n_group=4,
        topk_group=2, num_experts_per_tok=4, first_k_dense_replace=0, q_lora_rank=128, kv_lora_rank=128,
        qk_rope_head_dim=16, qk_nope_head_dim=32, v_head_dim=64, head_dim=16,
    ),
}  # fmt: skip
IDS = torch.arange(1, 25).view(2, 12)
QUANTIZED = [("f8_e4m3", 128, "f8_e4m3"), ("u4", 128, "i8"), ("i8", 0, "i8"), ("f4_e2m1", 32, "f8_e4m3"),
             ("f8_e4m3", 32, "mxfp8"), ("f4_e2m1", 16, "nvfp4")]  # fmt: skip


def model_of(family, dtype=torch.float16):
    return mixture_of(config_of(family, SIZES | FAMILIES[family]), dtype, spread=0.1)


def mixture_in_float64(mixture, module, x, index, shares):
    """What the experts make of tokens: weights as the codes stand for, activations rounded, the unit that of `module`,
    of transformers. Of a product each row is rounded by itself, of nvfp4 by one scale for all."""
    between = copy.copy(module)
    between._parameters = {}
    y = torch.zeros(x.shape, dtype=torch.float64, device=x.device)

    def product(stack, x, i, name):
        bias = module._parameters.get(f"{name}_bias")
        whole = whole_scale(wholes[name].float()) if stack.activations == "nvfp4" else None
        made = rounded(x, stack.activations, blocks_of(stack), whole=whole) @ stack.dequantize()[i].double().T
        return made if bias is None else made + bias[i].double().to(x.device)

    def unit(h):
        h = h.to(x.dtype)
        return between._apply_gate(h)

    pairs = [(t, j, i) for t, row in enumerate(index.tolist()) for j, i in enumerate(row)]
    wholes = {"gate_up_proj": x}
    hidden = {p: unit(product(mixture.gate_up_proj, x[p[0]][None], p[2], "gate_up_proj")) for p in pairs}
    wholes["down_proj"] = torch.cat(list(hidden.values()))
    for (t, j, i), h in hidden.items():
        y[t] += shares[t, j].double() * product(mixture.down_proj, h, i, "down_proj")[0]
    return y


@pytest.mark.transformers
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("type, group, activations", QUANTIZED)
@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_models(family, type, group, activations, device, tmp_path):
    """quantize_, what save wrote, loaded, and the mixture by itself, also of rows that are sorted."""
    model = model_of(family)
    words = {"activations": activations, "skip": ["lm_head", "*self_attn*"], "progress": False}
    quantized = quantize_(copy.deepcopy(model), type, group, **words).to(device)
    mixture = mlp_of(quantized).experts
    assert isinstance(mixture.gate_up_proj, experts.Experts8) and isinstance(mixture.down_proj, experts.Experts8)
    draw = torch.Generator().manual_seed(2)
    x = torch.randn(6, 128, generator=draw).to(device).half()
    index = torch.stack([torch.randperm(4, generator=draw)[:2] for _ in range(6)]).to(device)
    shares = torch.rand(6, 2, generator=draw).to(device)
    wanted = mixture_in_float64(mixture, mlp_of(model).experts, x, index, shares)
    close(mixture(x, index, shares), wanted, 2e-2 if type == "f4_e2m1" else 1e-2)
    sorted_x, ends = x[[0, 1, 2, 3]], torch.arange(1, mixture.num_experts + 1, device=device).clamp(max=4).int()
    alone = mixture(sorted_x, torch.arange(4, device=device)[:, None], torch.ones(4, 1, device=device))
    close(mixture.expanded(sorted_x, ends), alone, 1e-3)
    logits = quantized(IDS.to(device)).logits
    assert torch.equal(copy.deepcopy(quantized)(IDS.to(device)).logits, logits)
    storage.save(quantized, tmp_path)
    other = storage.load(model_of(family).to("meta"), tmp_path, device=device)
    assert torch.equal(mlp_of(other).experts.down_proj.packed, mixture.down_proj.packed)
    assert torch.equal(other(IDS.to(device)).logits, logits)


@pytest.mark.transformers
@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_from_pretrained(family, tmp_path):
    """TilusConfig(activations=...): as quantize_ does, and what save_pretrained wrote, loaded."""
    transformers = pytest.importorskip("transformers")
    from tilusvm.transformers import TilusConfig

    load = transformers.AutoModelForCausalLM.from_pretrained
    model_of(family).save_pretrained(tmp_path / "plain")
    how = TilusConfig("f8_e4m3", 128, activations="f8_e4m3")
    quantized = load(tmp_path / "plain", quantization_config=how, dtype=torch.float16)
    assert isinstance(mlp_of(quantized).experts.down_proj, experts.Experts8)
    assert sum(isinstance(module, nn.Linear8) for module in quantized.modules()) >= 4
    plain = load(tmp_path / "plain", dtype=torch.float16)
    logits = quantized(IDS).logits
    assert (logits - plain(IDS).logits).norm() < 0.3 * logits.norm()
    quantized.save_pretrained(tmp_path / "quantized")
    again = load(tmp_path / "quantized", dtype=torch.float16)
    assert torch.equal(again(IDS).logits, logits)
    with pytest.raises(ValueError, match="activations must be"):
        TilusConfig("u4", activations="i4")


@pytest.mark.transformers
def test_quantize_refuses_before_it_begins():
    """Sizes that no stack has."""
    model = model_of("mixtral")
    mlp_of(model).experts.down_proj = torch.nn.Parameter(torch.zeros(4, 128, 96, dtype=torch.float16))
    with pytest.raises(ValueError, match="multiple of 128") as caught:
        quantize_(model, "i8", 0, activations="i8", progress=False)
    assert caught.value.__notes__ == ["in the module model.layers.0.mlp.experts.down_proj"]
    assert not any(isinstance(module, nn.LowBit) for module in model.modules())


@pytest.mark.transformers
@torch.no_grad()
def test_a_rank_has_its_share():
    model = quantize_(model_of("mixtral"), "u4", 128, activations="i8", skip=["lm_head"], progress=False)
    mixture = mlp_of(model).experts
    x, shares = torch.randn(5, 128).half(), torch.rand(5, 2)
    index = torch.tensor([[0, 3], [1, 2], [2, 0], [3, 1], [1, 0]])
    parts = [parallel.shard_experts(mixture, rank, 2) for rank in range(2)]
    assert all(part.down_proj.experts == 2 for part in parts)
    made = sum(part(x, index - 2 * rank, shares).float() for rank, part in enumerate(parts))
    close(made, mixture(x, index, shares), 2e-3)
