"""Checkpoints of NVIDIA's Model Optimizer: small ones, quantized here by its definitions, loaded as they lie.

Names and shapes of tensors are those of its export (modelopt/torch/export/quant_utils.py, layers' state), and so are
both forms of the configuration (convert_hf_config.py). What a layer gives is computed in float64: weights, and inputs
multiplied by pre_quant_scale and rounded."""

import json

import pytest
from conftest import NO_TORCH, torch

if torch is None:
    pytest.skip(NO_TORCH, allow_module_level=True)

from microscaled_kit import F8, SCALES, codes_of, rounded, values, whole_scale  # noqa: E402
from torch_kit import DEVICES, close, tvm_pack  # noqa: E402

from tilusvm import UnsupportedError, nn, storage  # noqa: E402
from tilusvm.experts import Experts8, MixtureOfExperts  # noqa: E402
from tilusvm.nn8 import Linear8  # noqa: E402

K, N, STEP = 256, 72, 0.001
FOUR = {"NVFP4": "nvfp4", "NVFP4_AWQ": "nvfp4", "MXFP4": "mxfp4"}


@pytest.fixture(params=DEVICES)
def device(request):
    torch.manual_seed(34)
    return request.param


# ---- Model Optimizer ----


def microscaled(weight, kind):
    """What weights become, and their tensors."""
    scale = whole_scale(weight) if kind == "nvfp4" else None
    numbers, steps = rounded(weight, kind, scale)
    packed = numbers.float().to(F8) if kind == "mxfp8" else codes_of(numbers)
    stored = (steps.log2() + 127).to(torch.uint8) if scale is None else steps.float().to(SCALES[kind])
    tensors = {"weight": packed, "weight_scale": stored}
    return values(weight, kind, scale), tensors | ({} if scale is None else {"weight_scale_2": scale.reshape(())})


def of_rows(weight, dtype, most, rows=True):
    """A scale for each output, or one of all."""
    scales = weight.abs().amax(1) / most if rows else weight.abs().max() / most
    every = scales[:, None] if rows else scales
    numbers = (weight / every).clamp(-most - 1, most)
    numbers = numbers.to(dtype) if dtype == F8 else numbers.round().to(dtype)
    return numbers.double() * every.double(), {"weight": numbers, "weight_scale": scales}


#: Of each quant_algo: what quantizes weights, how activations are rounded, and whether one scale of them is stored.
ALGORITHMS = {
    "FP8": (lambda w: of_rows(w, F8, 448.0, False), "f8_e4m3", True),
    "FP8_PER_CHANNEL_PER_TOKEN": (lambda w: of_rows(w, F8, 448.0), "f8_e4m3", False),
    "MXFP8": (lambda w: microscaled(w, "mxfp8"), "mxfp8", False),
    "W8A8_SQ_PER_CHANNEL": (lambda w: of_rows(w, torch.int8, 127.0), "i8", True),
    "NVFP4": (lambda w: microscaled(w, "nvfp4"), "nvfp4", True),
    "NVFP4_AWQ": (lambda w: microscaled(w, "nvfp4"), "nvfp4", True),
    "MXFP4": (lambda w: microscaled(w, "mxfp4"), "mxfp4", False),
    "W4A8_MXFP4_FP8": (lambda w: microscaled(w, "mxfp4"), "f8_e4m3", True),
}
SMOOTHED = ("W8A8_SQ_PER_CHANNEL", "NVFP4_AWQ")
STEPS = {"f8_e4m3": 0.01, "i8": 0.03, "nvfp4": STEP}


def quantized(algorithm, weight, smooth=None):
    """The weights that a layer then has, and its tensors. smooth: whether inputs have scales."""
    make, kind, static = ALGORITHMS[algorithm]
    scales = None
    if algorithm in SMOOTHED if smooth is None else smooth:
        scales = (torch.rand(weight.shape[1]) + 0.5).bfloat16()
        weight = weight / scales.float()
    exact, tensors = make(weight)
    if static:
        tensors["input_scale"] = torch.tensor(STEPS[kind])
    if scales is None:
        return exact, tensors
    return exact * scales.double(), {**tensors, "pre_quant_scale": scales}


def rounded_inputs(x, algorithm):
    """x as the layer multiplies it, in float64."""
    _, kind, static = ALGORITHMS[algorithm]
    if kind in SCALES:
        return values(x, kind, torch.tensor([STEP], device=x.device) if static else None)
    x = x.float()
    step = torch.tensor(STEPS[kind], device=x.device) if static else x.abs().amax(-1, keepdim=True) / 448
    if kind == "i8":
        return (x / step).clamp(-128, 127).round().double() * step.double()
    return (x / step).clamp(-448, 448).to(F8).double() * step.double()


def configured(path, said, own=False):
    """The configuration, as config.json has it, or in the file that is Model Optimizer's own."""
    said = {"kv_cache_quant_algo": "FP8", **said}
    producer = {"name": "modelopt", "version": "0.40.0"}
    if own:
        whole = {"producer": producer, "quantization": {**said, "exclude_modules": ["lm_head"]}}
        (path / "hf_quant_config.json").write_text(json.dumps(whole))
        (path / "config.json").write_text(json.dumps({"dtype": "bfloat16"}))
        return
    whole = {"quant_method": "modelopt", "producer": producer, "ignore": ["lm_head"], **said}
    (path / "config.json").write_text(json.dumps({"quantization_config": whole, "dtype": "bfloat16"}))


def written(path, layers):
    """A folder of layers, by name; scales of a cache are beside them, as FP8 caches have them."""
    model = torch.nn.Module()
    for name, tensors in layers.items():
        module = torch.nn.Module()
        for last, tensor in {**tensors, "k_scale": torch.ones(1)}.items():
            if tensor is not None:
                module.register_buffer(last, tensor)
        model.add_module(name, module)
    storage.save(model, path)


def checkpoint(path, algorithm, own=False, smooth=None, **changes):
    """A folder with one quantized layer, and one that is left as it is: their weights, and the bias of the first."""
    exact, tensors = quantized(algorithm, torch.randn(N, K) * 0.1, smooth)
    bias, head = torch.randn(N).bfloat16(), torch.randn(8, N).bfloat16()
    written(path, {"up": {**tensors, "bias": bias, **changes}, "lm_head": {"weight": head}})
    configured(path, {"quant_algo": algorithm}, own)
    return exact, bias.double(), head


def empty():
    with torch.device("meta"):
        model = torch.nn.Module()
        model.up, model.lm_head = torch.nn.Linear(K, N), torch.nn.Linear(N, 8, bias=False)
        return model


# ---- layers ----


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_algorithms(tmp_path, device, algorithm, own):
    weight, bias, head = checkpoint(tmp_path, algorithm, own)
    kind, four = ALGORITHMS[algorithm][1], FOUR.get(algorithm)
    model = storage.load(empty(), tmp_path, device=device, activations=four)
    layer = model.up
    assert isinstance(layer, Linear8) and layer.activations == kind and layer.dtype == torch.bfloat16
    assert (layer.smoothing is not None) == (algorithm in SMOOTHED)
    assert torch.equal(model.lm_head.weight, head.to(device))
    close(layer.dequantize(), weight.to(device), 1e-6)
    x = torch.randn(3, K, device=device).bfloat16()
    scales = 1 if layer.smoothing is None else layer.smoothing
    given = rounded_inputs(x * scales, algorithm)
    close(layer(x), given @ (weight.to(device) / scales).t() + bias.to(device), 1e-2)
    # and once more from a file of ours
    storage.save(model, tmp_path / "saved")
    again = storage.load(empty(), tmp_path / "saved", device=device).up
    assert again.extra_repr() == layer.extra_repr() and torch.equal(again(x), layer(x))


def test_what_smoothing_is_for(device):
    """Inputs of which few are large: their scales go to the weights, and less is lost."""
    weight, x = torch.randn(N, 128) * 0.1, torch.randn(5, 128)
    x[:, ::16] *= 50
    scales = x.abs().amax(0).rsqrt()
    exact = x.double() @ weight.double().t()
    errors = []
    for smooth in (None, scales):
        linear = torch.nn.Linear(128, N, bias=False)
        linear.weight.data.copy_(weight if smooth is None else weight / smooth)
        layer = Linear8.from_float(linear, "f4_e2m1", 16, activations="nvfp4", device=device)
        layer.smoothing = None if smooth is None else smooth.to(device)
        y = layer(x.to(device).half()).double().cpu()
        errors.append(float((y - exact).norm() / exact.norm()))
    assert errors[1] < 0.7 * errors[0]


def test_layers_that_become_one(device):
    layers = []
    for seed in (0, 1):
        linear = torch.nn.Linear(128, 16)
        layers.append(Linear8.from_float(linear, "f8_e4m3", 32, activations="mxfp8", device=device))
        layers[-1].smoothing = torch.rand(128, device=device) + 0.5 if not seed else layers[0].smoothing.clone()
    whole, x = Linear8.cat(layers), torch.randn(3, 128, device=device).half()
    assert torch.equal(whole(x), torch.cat([layer(x) for layer in layers], -1))
    layers[1].smoothing += 1
    with pytest.raises(ValueError, match="scales of each input differ"):
        Linear8.cat(layers)
    state = layers[0].state_dict()
    with pytest.raises(RuntimeError, match="with scales of inputs"):
        Linear8(128, 16, type="f8_e4m3", group=32, activations="mxfp8", device=device).load_state_dict(state)
    same = Linear8(128, 16, type="f8_e4m3", group=32, activations="mxfp8", smooth=True, device=device)
    same.load_state_dict(state)
    assert torch.equal(same(x), layers[0](x)) and "smooth=True" in repr(same)


def test_mxfp8_of_floats(device):
    linear = torch.nn.Linear(K, N).to(device).half()
    layer = nn.Linear.from_float(linear, "f8_e4m3", 32, activations="mxfp8")
    exact = values(linear.weight.detach(), "mxfp8")
    close(layer.dequantize(), exact, 1e-6)
    x = torch.randn(2, 3, K, device=device).half()
    close(layer(x), values(x, "mxfp8") @ exact.t() + linear.bias.double(), 2e-3)
    codes = layer.packed.view(torch.uint8).t().contiguous()
    words = {"type": "f8_e4m3", "group": 32, "activations": "mxfp8"}
    same = Linear8.from_codes(codes, layer.scales.t().contiguous(), bias=layer.bias, **words)
    assert torch.equal(same(x), layer(x))
    with pytest.raises(ValueError, match="group of f8_e4m3 must be 32"):
        Linear8(K, N, type="f8_e4m3", group=128, activations="mxfp8")


# ---- models ----


def test_an_algorithm_for_each_layer(tmp_path, device):
    """MIXED_PRECISION."""
    model, layers, exact = torch.nn.Module(), {}, {}
    for name, algorithm in (("q", "FP8"), ("k", "MXFP8"), ("v", "NVFP4")):
        exact[name], layers[name] = quantized(algorithm, torch.randn(N, K))
        model.add_module(name, torch.nn.Linear(K, N, bias=False, device="meta"))
    written(tmp_path, layers)
    said = {"q": {"quant_algo": "FP8"}, "k": {"quant_algo": "MXFP8", "group_size": 32},
            "v": {"quant_algo": "NVFP4", "group_size": 16}}  # fmt: skip
    configured(tmp_path, {"quant_algo": "MIXED_PRECISION", "quantized_layers": said})
    loaded = storage.load(model, tmp_path, device=device, activations="nvfp4")
    assert [loaded.get_submodule(n).activations for n in "qkv"] == ["f8_e4m3", "mxfp8", "nvfp4"]
    for name, weight in exact.items():
        close(loaded.get_submodule(name).dequantize(), weight.to(device), 1e-6)
    said["v"] = {"quant_algo": "W4A16_NVFP4", "group_size": 16}
    configured(tmp_path, {"quant_algo": "MIXED_PRECISION", "quantized_layers": said})
    with pytest.raises(UnsupportedError, match="layer v .modelopt.*activations have 16 bits.*tvm-pack"):
        storage.load(model, tmp_path)
    del said["v"]
    configured(tmp_path, {"quant_algo": "MIXED_PRECISION", "quantized_layers": said})
    with pytest.raises(UnsupportedError, match="layer v .modelopt.*no group of the configuration"):
        storage.load(model, tmp_path)


def saved(path, files):
    """A folder of modules, by names with dots, each a dict of tensors."""
    whole = torch.nn.Module()
    for owner, tensors in files.items():
        module = whole
        for part in owner.split("."):
            module = module._modules.setdefault(part, torch.nn.Module())
        for last, tensor in tensors.items():
            module.register_buffer(last, tensor)
    storage.save(whole, path)


@pytest.mark.transformers
@torch.no_grad()
@pytest.mark.parametrize("algorithm", ["NVFP4", "MXFP4", "MXFP8"])
def test_experts(tmp_path, algorithm):
    """Of Qwen3 MoE, which files have one by one: their activations are rounded as those of linear layers are."""
    pytest.importorskip("transformers")
    from decoder_kit import tiny_model

    words = {"intermediate_size": 128, "moe_intermediate_size": 128, "num_experts": 3, "num_experts_per_tok": 2}
    words |= {"num_hidden_layers": 1, "hidden_size": 128}
    model, files, weights = tiny_model("qwen3_moe", dtype=torch.bfloat16, **words), {}, {}
    for name, tensor in model.state_dict().items():
        owner, last = name.rsplit(".", 1)
        if not owner.endswith(("experts", "_proj")):
            files[owner] = {last: tensor}
            continue
        parts = {owner: tensor} if owner.endswith("_proj") else {}
        if last == "gate_up_proj":
            for i, (gate, up) in enumerate(matrix.chunk(2) for matrix in tensor):
                parts |= {f"{owner}.{i}.gate_proj": gate, f"{owner}.{i}.up_proj": up}
        elif last == "down_proj":
            parts = {f"{owner}.{i}.down_proj": matrix for i, matrix in enumerate(tensor)}
        for part, matrix in parts.items():
            weights[part], files[part] = quantized(algorithm, matrix.float())
    saved(tmp_path, files)
    configured(tmp_path, {"quant_algo": algorithm})
    with torch.device("meta"):
        loaded = type(model)(model.config)
    storage.load(loaded, tmp_path, activations=FOUR.get(algorithm))
    layer = loaded.model.layers[0]
    assert isinstance(layer.self_attn.q_proj, Linear8) and isinstance(layer.mlp.experts, MixtureOfExperts)
    owner, mixture = "model.layers.0.mlp.experts", layer.mlp.experts
    for expert in range(3):
        gate, up, down = (weights[f"{owner}.{expert}.{kind}_proj"] for kind in ("gate", "up", "down"))
        both = mixture.gate_up_proj if hasattr(mixture, "gate_up_proj") else None
        found = both.dequantize()[expert].chunk(2) if both else [
            stack.dequantize()[expert] for stack in (mixture.gate_proj, mixture.up_proj)
        ]  # fmt: skip
        close(torch.cat(list(found)), torch.cat([gate, up]), 4e-3)
        close(mixture.down_proj.dequantize()[expert], down, 4e-3)
    x = torch.randn(4, 128).bfloat16()
    chosen, shares = torch.tensor([[0, 1], [2, 0], [1, 2], [0, 2]]), torch.rand(4, 2)
    y = torch.zeros(4, 128, dtype=torch.float64)
    assert isinstance(mixture.down_proj, Experts8) and mixture.down_proj.activations == algorithm.lower()
    inputs = rounded_inputs(x, algorithm)
    for token, (pair, share) in enumerate(zip(chosen.tolist(), shares.double())):
        for expert, part in zip(pair, share):
            gate, up, down = (weights[f"{owner}.{expert}.{kind}_proj"] for kind in ("gate", "up", "down"))
            gate, up = ((each @ inputs[token]).bfloat16().double() for each in (gate, up))
            h = (torch.nn.functional.silu(gate) * up).bfloat16()
            y[token] += part * (down @ rounded_inputs(h, algorithm))
    close(mixture(x, chosen, shares), y, 2e-2)


def test_experts_with_scales_of_inputs(tmp_path):
    torch.manual_seed(5)
    model = torch.nn.Module()
    model.experts = torch.nn.Module()
    model.experts.num_experts = 1
    model.experts.gate_up_proj = torch.nn.Parameter(torch.zeros(1, 256, 128))
    model.experts.down_proj = torch.nn.Parameter(torch.zeros(1, 128, 128))
    names = ("gate_proj", "up_proj", "down_proj")
    saved(tmp_path, {f"experts.0.{name}": quantized("NVFP4_AWQ", torch.randn(128, 128))[1] for name in names})
    configured(tmp_path, {"quant_algo": "NVFP4_AWQ"})
    storage.load(model, tmp_path, activations="nvfp4")
    x = torch.randn(4, 128).bfloat16()
    for name in names:
        stack = getattr(model.experts, name)
        weights = (stack.dequantize()[0] / stack.smoothing[0]).double()
        exact = rounded_inputs(x * stack.smoothing[0], "NVFP4_AWQ") @ weights.T
        close(stack(x, torch.zeros(4).long()), exact, 1e-2)


@pytest.mark.transformers
@torch.no_grad()
def test_a_model_of_transformers(tmp_path):
    """Llama, calibrated, with a cache in FP8 and a head that is left out: its logits are those of a model whose
    projections multiply rounded inputs by the files' weights in float64."""
    pytest.importorskip("transformers")
    from decoder_kit import tiny_model, tokens_of

    model = tiny_model(dtype=torch.bfloat16, hidden_size=128, intermediate_size=256)
    tokens, steps = torch.tensor(tokens_of(6)), {}
    projections = {name: module for name, module in model.named_modules() if name.endswith("_proj")}
    for name, module in projections.items():
        module.register_forward_pre_hook(lambda _, x, name=name: steps.__setitem__(name, whole_scale(x[0])))
    model(tokens)
    exact, files = {}, {}
    for name, tensor in model.state_dict().items():
        owner, last = name.rsplit(".", 1)
        tensors = {last: tensor}
        if owner in projections:
            exact[owner], tensors = quantized("NVFP4", tensor.float())
            tensors["input_scale"] = steps[owner].reshape(())
        if owner.endswith(("k_proj", "v_proj")):
            tensors[f"{owner[-6]}_scale"] = torch.ones(1)
        files[owner] = tensors
    saved(tmp_path, files)
    configured(tmp_path, {"quant_algo": "NVFP4", "group_size": 16}, own=True)
    with torch.device("meta"):
        loaded = type(model)(model.config)
    y = storage.load(loaded, tmp_path, activations="nvfp4").eval()(tokens).logits
    assert isinstance(loaded.model.layers[0].self_attn.k_proj, Linear8)
    for name, module in projections.items():
        module.forward = lambda x, w=exact[name], g=steps[name]: (values(x, "nvfp4", g) @ w.t()).to(x.dtype)
    close(y, model(tokens).logits, 0.05)


@pytest.mark.transformers
@torch.no_grad()
def test_from_pretrained(tmp_path, monkeypatch):
    """As storage.load has them; 4 bits where the device multiplies these."""
    transformers = pytest.importorskip("transformers")
    from decoder_kit import tiny_model, tokens_of

    import tilusvm.transformers  # noqa: F401

    load, tokens = transformers.AutoModelForCausalLM.from_pretrained, torch.tensor(tokens_of(6))
    model = tiny_model(dtype=torch.bfloat16, hidden_size=128, intermediate_size=256, num_hidden_layers=1)
    model.save_pretrained(tmp_path)
    plain = json.loads((tmp_path / "config.json").read_text())
    for algorithm in ("NVFP4", "FP8"):
        files = {}
        for name, tensor in model.state_dict().items():
            owner, last = name.rsplit(".", 1)
            own = quantized(algorithm, tensor.float())[1] if last == "weight" and "_proj" in owner else {last: tensor}
            files[owner] = own | ({"k_scale": torch.ones(1)} if owner.endswith("k_proj") else {})
        saved(tmp_path, files)
        said = {"quant_method": "modelopt", "quant_algo": algorithm, "ignore": ["lm_head"]}
        (tmp_path / "config.json").write_text(json.dumps({**plain, "quantization_config": said}))
        if algorithm == "NVFP4":
            with pytest.raises(UnsupportedError, match="have 4 bits.*tvm-pack --from=auto"):
                load(tmp_path, dtype=torch.bfloat16)
            monkeypatch.setattr(storage, "four_of", lambda activations, device: ("nvfp4", "mxfp4"))
        found = load(tmp_path, dtype=torch.bfloat16)
        assert isinstance(found.model.layers[0].self_attn.k_proj, Linear8)
        with torch.device("meta"):
            other = type(model)(model.config)
        expected = storage.load(other, tmp_path, activations=FOUR.get(algorithm)).eval()(tokens).logits
        assert torch.equal(found(tokens).logits, expected)
    with pytest.raises(ValueError, match="dtype=torch.bfloat16"):
        load(tmp_path, dtype=torch.float16)
    said["quant_algo"] = "W4A16_NVFP4"
    (tmp_path / "config.json").write_text(json.dumps({**plain, "quantization_config": said}))
    with pytest.raises(UnsupportedError, match="W4A16_NVFP4 for activations of 16 bits: tvm-pack --from=auto"):
        load(tmp_path, dtype=torch.bfloat16)


@pytest.mark.parametrize("algorithm", ["W4A16_NVFP4", "NVFP4"])
def test_weights_alone(tmp_path, algorithm):
    """For activations of 16 bits, by tvm-pack: what the file has of activations and caches is left out."""
    torch.manual_seed(1)
    exact, tensors = quantized("NVFP4", torch.randn(N, K))
    if algorithm != "NVFP4":
        del tensors["input_scale"]
    tensors = {**tensors, "bias": torch.randn(N).bfloat16()}
    written(tmp_path, {"up": tensors, "lm_head": {"weight": torch.randn(8, N)}})
    configured(tmp_path, {"quant_algo": algorithm})
    with pytest.raises(UnsupportedError, match="tvm-pack --from=auto"):
        storage.load(empty(), tmp_path)
    tvm_pack("--from=auto", str(tmp_path), "-o", str(tmp_path / "own"))
    layer = storage.load(empty(), tmp_path / "own").up
    assert type(layer) is nn.Linear and layer.type == "f4_e2m1"
    close(layer.dequantize(), exact, 1e-3)


# ---- what is not taken ----


@pytest.mark.parametrize(
    "algorithm, said",
    [
        ("W4A8_AWQ", "scales of groups and of all"), ("W4A8_NVFP4_FP8", "scales of 16 inputs"),
        ("NVFP4_SVD", "low rank"), ("NVFP9", "its quant_algo is 'NVFP9'; known are FP8, "), ("NVFP4", "have 4 bits"),
        (None, "its quant_algo is None"),
    ],
)  # fmt: skip
def test_algorithms_that_are_refused(tmp_path, algorithm, said):
    torch.manual_seed(2)
    checkpoint(tmp_path, "NVFP4")
    configured(tmp_path, {"quant_algo": algorithm})
    with pytest.raises(UnsupportedError, match=f"layer up .modelopt. cannot .*{said}.*tvm-pack --from=auto"):
        storage.load(empty(), tmp_path)


@pytest.mark.parametrize(
    "algorithm, changes, said",
    [
        ("NVFP4", {"weight_scale_2": None}, "no weight_scale_2"), ("NVFP4", {"input_scale": None}, "no input_scale"),
        ("NVFP4", {"weight_scale_2": torch.tensor(0.0)}, "weight_scale_2 is .*above 0"),
        ("NVFP4", {"weight_scale_2": torch.tensor(float("inf"))}, "weight_scale_2 is .*above 0"),
        ("NVFP4", {"weight_scale": torch.ones(N, 8).to(F8)}, r"weight_scale is .*not \[72, 16\]"),
        ("NVFP4", {"weight": torch.zeros(N, 128).char()}, "weight is torch.int8 .*not torch.uint8"),
        ("NVFP4_AWQ", {"pre_quant_scale": torch.ones(K // 2)}, r"pre_quant_scale is .*\[128\], not \[256\]"),
        ("NVFP4", {"svdquant_lora_a": torch.ones(4, K)}, "tensor 'svdquant_lora_a'"),
        ("MXFP8", {"weight_scale": torch.ones(N, 8)}, r"weight_scale is .*not \[72, 8\]"),
        ("MXFP8", {"weight": torch.zeros(N, K).char()}, "not torch.float8_e4m3fn .out, in."),
        ("FP8", {"input_scale": None}, "no input_scale"),
        ("W4A8_MXFP4_FP8", {"weight": torch.zeros(N, K).to(F8)}, "weight is .*not torch.uint8"),
        ("W4A8_MXFP4_FP8", {"weight_scale": torch.zeros(N, 16).byte()}, r"weight_scale is \[72, 16\], not \[72, 8\]"),
    ],
)  # fmt: skip
def test_damaged(tmp_path, algorithm, changes, said):
    torch.manual_seed(3)
    checkpoint(tmp_path, algorithm, **changes)
    with pytest.raises((ValueError, UnsupportedError), match=f"layer up .modelopt.*{said}"):
        storage.load(empty(), tmp_path, activations=FOUR.get(algorithm))
