"""Adapters of peft beside quantized layers: trained on the CPU, against the same step by torch with the weights that
the codes stand for; saved and loaded."""

import copy

import pytest
from conftest import NO_TORCH, torch

if torch is None:
    pytest.skip(NO_TORCH, allow_module_level=True)
peft = pytest.importorskip("peft", reason="peft cannot be imported")

import transformers  # noqa: E402
from decoder_kit import tiny_model  # noqa: E402
from torch_kit import DEVICES  # noqa: E402

import tilusvm  # noqa: E402
from tilusvm import lora, nn  # noqa: E402
from tilusvm.transformers import TilusConfig  # noqa: E402


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(64)
        self.up, self.down = torch.nn.Linear(64, 128), torch.nn.Linear(128, 64)

    def forward(self, x):
        x = self.norm(x.float()).to(x.dtype)
        return self.down(torch.nn.functional.silu(self.up(x)))


def config():
    return peft.LoraConfig(r=4, lora_alpha=8, target_modules=["up", "down"], init_lora_weights=False)


@pytest.fixture(params=DEVICES)
def models(request):
    """Quantized ones with an adapter, and ones of torch in f32 with the same weights and adapter."""
    torch.manual_seed(2)
    ours = Model().to(request.param)
    tilusvm.quantize_(ours, "u4", 32, progress=False)
    exact = Model().to(request.param)
    for name in ("up", "down"):
        layer, theirs = getattr(ours, name), getattr(exact, name)
        theirs.weight.data, theirs.bias.data = layer.dequantize(), layer.bias.float()
    ours, exact = peft.get_peft_model(ours, lora.register(config())), peft.get_peft_model(exact, config())
    for name, parameter in exact.named_parameters():
        if "lora_" in name:
            parameter.data.copy_(ours.get_parameter(name))
    return ours, exact, request.param


def step(model, x, target):
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    loss = (model(x).float() - target).square().mean()
    loss.backward()
    optimizer.step()
    return loss.item()


def test_a_step_of_training(models):
    ours, exact, device = models
    assert isinstance(ours.base_model.model.up, lora.LoraLinear)
    assert isinstance(ours.base_model.model.up.base_layer, nn.Linear)
    trained = {name for name, parameter in ours.named_parameters() if parameter.requires_grad}
    assert trained == {name for name, parameter in exact.named_parameters() if "lora_" in name}
    before = copy.deepcopy(ours.base_model.model.up.base_layer.state_dict())
    x, target = torch.randn(6, 64, device=device), torch.randn(6, 64, device=device)
    losses = [step(ours, x.half(), target) for _ in range(3)]
    assert losses == pytest.approx([step(exact, x, target) for _ in range(3)], rel=5e-3) and losses[2] < losses[0]
    for name in trained:
        a, b = ours.get_parameter(name), exact.get_parameter(name)
        assert (a - b).abs().max() <= 5e-3 * b.abs().max(), name
    after = ours.base_model.model.up.base_layer.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_saved_and_loaded(models, tmp_path):
    ours, _, device = models
    x = torch.randn(3, 64, device=device).half()
    with torch.no_grad():
        y = ours(x)
        ours.save_pretrained(tmp_path)
        plain = ours.unload()
        assert isinstance(plain.up, nn.Linear) and not torch.equal(plain(x), y)
        again = lora.register(peft.LoraConfig.from_pretrained(tmp_path))
        assert torch.equal(peft.PeftModel.from_pretrained(plain, tmp_path, config=again)(x), y)


def test_it_is_not_merged(models):
    with pytest.raises(ValueError, match="an adapter cannot be merged into low-precision weights"):
        models[0].merge_and_unload()


def test_transformers_trains(tmp_path):
    """Its Trainer takes a model that was quantized as it was loaded, and changes the adapter alone."""
    torch.manual_seed(3)
    tiny_model("llama").save_pretrained(tmp_path)
    how = TilusConfig("u4", 32)
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, quantization_config=how, dtype=torch.float16)
    adapted = lora.register(peft.LoraConfig(r=4, target_modules=["q_proj", "down_proj"]))
    model = peft.get_peft_model(model, adapted)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    given = transformers.TrainingArguments(
        tmp_path / "runs", max_steps=1, learning_rate=1e-2, use_cpu=True, report_to=[], disable_tqdm=True
    )
    tokens = torch.arange(2, 10)
    trainer = transformers.Trainer(model, given, train_dataset=[{"input_ids": tokens, "labels": tokens}])
    assert 0 < trainer.train().training_loss < 20
    changed = {name for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])}
    assert changed == {name for name in before if "lora_B" in name}  # A's gradient is that of B, which is 0 at first
