"""Experts one by one, as checkpoints of others have them whose activations have 8 or 4 bits: what a mixture gives is
computed here in float64, of the files' weights and of activations rounded as the configuration says."""

import json

import pytest
from conftest import NO_TORCH, torch

if torch is None:
    pytest.skip(NO_TORCH, allow_module_level=True)

from foreign_kit import compressed, fp8  # noqa: E402
from test_checkpoint8 import BLOCK, DEEPSEEK, STATIC, TOKEN, args, compressed_config, write  # noqa: E402
from test_experts8 import rounded  # noqa: E402
from torch_kit import close  # noqa: E402

from tilusvm import storage  # noqa: E402
from tilusvm.experts import Experts8, MixtureOfExperts  # noqa: E402

HIDDEN, INNER, COUNT = 128, 256, 3
KINDS = ("gate_proj", "up_proj", "down_proj")


def int8(k, n):
    codes = torch.randint(-127, 128, (n, k), dtype=torch.int8)
    scales = (torch.rand(n, 1) + 0.5) * 0.003
    return codes.double() * scales.double(), {"weight": codes, "weight_scale": scales}


def blocks_of_compressed(k, n):
    exact, tensors = fp8(k, n, (128, 128))
    return exact, {"weight": tensors["weight"], "weight_scale": tensors["weight_scale_inv"]}


#: Of each: its quantization_config; weights and tensors of k inputs and n outputs; activations, their group, and
#: whether the files have a scale of them.
FORMATS = {
    "DeepSeek": (DEEPSEEK, lambda k, n: fp8(k, n, (128, 128)), "f8_e4m3", 128, False),
    "FP8, blocks": (
        compressed_config(BLOCK, args(8, "float", "group", True, 128), "float-quantized"), blocks_of_compressed,
        "f8_e4m3", 128, False,
    ),
    "FP8, rows": (
        compressed_config(args(8, "float", "channel"), TOKEN["float"], "float-quantized"),
        lambda k, n: fp8(k, n, channels=True), "f8_e4m3", 0, False,
    ),
    "FP8, static": (
        compressed_config(args(8, "float", "tensor"), STATIC["float"], "float-quantized"), fp8, "f8_e4m3", 0, True,
    ),
    "AutoFP8": ({"quant_method": "fp8", "activation_scheme": "dynamic"}, fp8, "f8_e4m3", 0, False),
    "W8A8": (
        compressed_config(args(8, "int", "channel"), TOKEN["int"], "int-quantized"), int8, "i8", 0, False,
    ),
    "W8A8, static": (
        compressed_config(args(8, "int", "channel"), STATIC["int"], "int-quantized"), int8, "i8", 0, True,
    ),
    "W4A8": (
        compressed_config(args(4, "int", "group", size=64), TOKEN["int"], "pack-quantized"), compressed, "i8", 0, False,
    ),
    "Model Optimizer": ({"quant_method": "modelopt", "quant_algo": "FP8"}, fp8, "f8_e4m3", 0, True),
}  # fmt: skip


class Mixture(torch.nn.Module):
    """Experts as transformers has them."""

    def __init__(self):
        super().__init__()
        self.num_experts = COUNT
        self.gate_up_proj = torch.nn.Parameter(torch.zeros(COUNT, 2 * INNER, HIDDEN))
        self.down_proj = torch.nn.Parameter(torch.zeros(COUNT, HIDDEN, INNER))

    def _apply_gate(self, h):
        gate, up = h.chunk(2, -1)
        return torch.nn.functional.silu(gate) * up


def written(path, name, one_step=True):
    """A folder of experts; of each expert's matrices, weights and the scale of their inputs. one_step: have gate and up
    one?"""
    config, make, _, _, is_static = FORMATS[name]
    (path / "config.json").write_text(json.dumps({"quantization_config": config, "dtype": "float16"}))
    sizes, files, weights = {"down_proj": (INNER, HIDDEN)}, {}, {}
    for i in range(COUNT):
        for place, kind in enumerate(KINDS):
            exact, tensors = make(*sizes.get(kind, (HIDDEN, INNER)))
            step = torch.tensor(0.01 + 0.004 * i + (0.03 if kind == "down_proj" else 0 if one_step else 0.002 * place))
            tensors |= {"input_scale": step} if is_static else {}
            files |= {f"experts.{i}.{kind}.{last}": tensor for last, tensor in tensors.items()}
            weights[i, kind] = exact, step if is_static else None
    write(path / "model.safetensors", files)
    return weights


def in_float64(weights, name, x, index, shares):
    _, _, activations, group, _ = FORMATS[name]
    y = torch.zeros(x.shape, dtype=torch.float64)

    def product(x, i, kind):
        weight, step = weights[i, kind]
        return rounded(x[None], activations, group, step=step)[0] @ weight.T

    for t, row in enumerate(index.tolist()):
        for j, i in enumerate(row):
            gate, up = (product(x[t], i, kind).half().double() for kind in KINDS[:2])
            h = (torch.nn.functional.silu(gate) * up).half()
            y[t] += shares[t, j].double() * product(h, i, "down_proj")
    return y


@torch.no_grad()
@pytest.mark.parametrize("name, one_step", [*((name, True) for name in FORMATS), ("FP8, static", False)])
def test_formats(name, one_step, tmp_path):
    torch.manual_seed(7)
    weights = written(tmp_path, name, one_step)
    model = torch.nn.Module()
    model.experts = Mixture()
    storage.load(model, tmp_path)
    mixture = model.experts
    assert isinstance(mixture, MixtureOfExperts) and hasattr(mixture, "gate_up_proj") == one_step
    stacks = [module for module in mixture.modules() if isinstance(module, Experts8)]
    _, _, activations, _, is_static = FORMATS[name]
    assert len(stacks) == (2 if one_step else 3)
    assert {(s.activations, s.experts, s.input_scale is not None) for s in stacks} == {(activations, COUNT, is_static)}
    for i in range(COUNT):
        close(mixture.down_proj.dequantize()[i], weights[i, "down_proj"][0], 1e-6)
    x = torch.randn(6, HIDDEN).half()
    index = torch.tensor([[0, 1], [2, 0], [1, 2], [0, 2], [2, 1], [1, 0]])
    shares = torch.rand(6, 2)
    # what stands between the products is rounded, where a last bit of f16 may decide
    close(mixture(x, index, shares), in_float64(weights, name, x, index, shares), 1e-2)
    storage.save(model, tmp_path / "own")
    again = torch.nn.Module()
    again.experts = Mixture()
    storage.load(again, tmp_path / "own")
    assert torch.equal(again.experts(x, index, shares), mixture(x, index, shares))


def files_of(model, family, quantized):
    """The tensors of a model as the files of its family call them; quantized: of a matrix, those that it becomes."""
    names = ("w1", "w3", "w2") if family == "mixtral" else KINDS
    files = {}
    for name, tensor in model.state_dict().items():
        owner, _, last = name.rpartition(".")
        called = owner.replace("mlp", "block_sparse_moe") if family == "mixtral" else owner
        matrices = {}
        if last == "gate_up_proj":
            for i, pair in enumerate(tensor):
                matrices |= {f"{called}.{i}.{kind}": part for kind, part in zip(names, pair.chunk(2))}
        elif last == "down_proj":
            matrices = {f"{called}.{i}.{names[2]}": part for i, part in enumerate(tensor)}
        elif owner.endswith("_proj") and min(tensor.shape) >= 128:
            matrices = {called: tensor}
        else:
            files[f"{called}.{last}"] = tensor
        for each, matrix in matrices.items():
            files |= {f"{each}.{end}": part for end, part in quantized(matrix.float()).items()}
    return files


def by_blocks(matrix):
    rows = torch.nn.functional.pad(matrix, (0, -matrix.shape[1] % 128, 0, -matrix.shape[0] % 128))
    blocks = rows.unflatten(0, (-1, 128)).unflatten(-1, (-1, 128))
    scales = blocks.abs().amax((1, 3)) / 448
    numbers = (blocks / scales[:, None, :, None]).flatten(2).flatten(0, 1)[: matrix.shape[0], : matrix.shape[1]]
    return {"weight": numbers.to(torch.float8_e4m3fn), "weight_scale_inv": scales}


def by_matrix(matrix):
    scale = matrix.abs().max() / 448
    return {
        "weight": (matrix / scale).to(torch.float8_e4m3fn), "weight_scale": scale, "input_scale": torch.tensor(0.02),
    }  # fmt: skip


@pytest.mark.transformers
@torch.no_grad()
@pytest.mark.parametrize("family", ["deepseek_v3", "mixtral"])
def test_models(family, tmp_path):
    """As the files of a family call its experts: all linear layers and experts in FP8, by blocks."""
    from test_experts import exact, mlp_of
    from test_experts8 import IDS, mixture_in_float64, model_of

    model = model_of(family)
    write(tmp_path / "model.safetensors", files_of(model, family, by_blocks))
    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": DEEPSEEK, "dtype": "float16"}))
    loaded = storage.load(model_of(family).to("meta"), tmp_path)
    mixture = mlp_of(loaded).experts
    assert isinstance(mixture.gate_up_proj, Experts8) and mixture.gate_up_proj.has_blocks
    assert (mixture.down_proj.dequantize() - mlp_of(model).experts.down_proj).norm() < 0.04 * 0.1 * 128 * 256**0.5
    x, index, shares = torch.randn(4, 128).half(), torch.tensor([[0, 1], [3, 0], [2, 1], [1, 3]]), torch.rand(4, 2)
    close(mixture(x, index, shares), mixture_in_float64(mixture, mlp_of(model).experts, x, index, shares), 1e-2)
    wanted = exact(model, loaded)(IDS).logits
    assert (loaded(IDS).logits - wanted).norm() < 0.25 * wanted.norm()  # rounded activations choose some other experts


@pytest.mark.transformers
@torch.no_grad()
@pytest.mark.parametrize("family", ["qwen3_moe", "mixtral"])
def test_from_pretrained(family, tmp_path):
    """Model Optimizer's FP8: what storage.load gives, of names that transformers would make stacks of, too."""
    transformers = pytest.importorskip("transformers")
    from test_experts import mlp_of
    from test_experts8 import IDS, model_of

    import tilusvm.transformers  # noqa: F401

    model = model_of(family)
    write(tmp_path / "model.safetensors", files_of(model, family, by_matrix))
    config = {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["lm_head"]}
    said = {**model.config.to_dict(), "dtype": "float16", "quantization_config": config}
    (tmp_path / "config.json").write_text(json.dumps(said))
    found = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float16)
    wanted = storage.load(model_of(family).to("meta"), tmp_path)
    assert isinstance(mlp_of(found).experts.down_proj, Experts8)
    assert found.state_dict().keys() == wanted.state_dict().keys()
    assert [name for name, _ in found.named_modules()] == [name for name, _ in wanted.named_modules()]
    assert torch.equal(found(IDS).logits, wanted(IDS).logits)
