"""A tiny Llama of transformers with weights of u4, whose adapters are trained with the gradients of this package's
operators, against the same model with the same weights in float64 and torch's own gradients, step by step."""

import pytest
from conftest import torch

transformers = pytest.importorskip("transformers", reason="transformers cannot be imported")
pytest.importorskip("torch", reason="torch cannot be imported")

from decoder_kit import VOCABULARY, tiny_model  # noqa: E402

import tilusvm  # noqa: E402
from tilusvm import nn, ops  # noqa: E402
from tilusvm.transformers import _attention  # noqa: E402, F401 - transformers knows its attention by name

pytestmark = pytest.mark.transformers
STEPS, RANK = 6, 4


class Adapted(torch.nn.Module):
    """y = layer(x) + B A x, of which A and B are trained."""

    def __init__(self, layer, seed):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.layer = layer
        self.a = torch.nn.Parameter(torch.randn(RANK, layer.in_features, generator=generator) * 0.1)
        self.b = torch.nn.Parameter(torch.randn(layer.out_features, RANK, generator=generator) * 0.02)

    def forward(self, x):
        a, b = (t.to(x.dtype) for t in (self.a, self.b))
        return self.layer(x) + torch.nn.functional.linear(torch.nn.functional.linear(x, a), b)


def adapt(model):
    """Adapters beside the layers of each block; the trained tensors."""
    seed = 0
    for block in model.model.layers:
        for part in (block.self_attn, block.mlp):
            for name, layer in list(part.named_children()):
                if hasattr(layer, "in_features"):
                    setattr(part, name, Adapted(layer, seed))
                    seed += 1
    return [p for p in model.parameters() if p.requires_grad]


def by_operators(model):
    """Norms and gated units of this package in the place of the model's; the attention has its name."""
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):
            module.forward = lambda x, m=module: ops.rms_norm(x.contiguous(), m.weight, m.variance_epsilon)
        elif hasattr(module, "gate_proj"):
            both = lambda x, m=module: torch.cat([m.gate_proj(x), m.up_proj(x)], -1)  # noqa: E731
            module.forward = lambda x, m=module, both=both: m.down_proj(ops.swiglu(both(x)))
    return model


def losses_of(model, trained, ids, loss_of):
    optimizer, losses = torch.optim.SGD(trained, lr=0.5), []
    for _ in range(STEPS):
        loss = loss_of(model(ids).logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def models():
    ours, exact = tiny_model("llama"), tiny_model("llama").double()
    tilusvm.quantize_(ours, "u4", 32, progress=False)
    for (name, layer), other in zip(ours.named_modules(), exact.modules()):
        if isinstance(layer, nn.Linear):
            other.weight.data = layer.dequantize(torch.float64)
        elif hasattr(layer, "weight"):
            other.weight.data = layer.weight.data.double()
    exact.set_attn_implementation("eager")
    ours.set_attn_implementation("tilusvm")
    return by_operators(ours), exact


@pytest.mark.filterwarnings("error:attention is left to torch")
def test_adapters_are_trained_as_by_torch():
    ours, exact = models()
    trained, expected = adapt(ours), adapt(exact)
    for parameter in expected:
        parameter.data = parameter.data.double()
    layers = [m for m in ours.modules() if isinstance(m, nn.Linear)]
    packed = [m.packed.clone() for m in layers]
    ids = torch.randint(2, VOCABULARY, (2, 17), generator=torch.Generator().manual_seed(1))
    found = losses_of(ours, trained, ids, lambda x, y: ops.cross_entropy(x.contiguous(), y.int()))
    wanted = losses_of(exact, expected, ids, torch.nn.functional.cross_entropy)
    assert found == pytest.approx(wanted, rel=5e-3)
    assert found[-1] < 0.8 * found[0] and all(b < a for a, b in zip(found, found[1:]))
    # tiles of many rows round weights times scales to f16, which steps add up: 0.052 at most, 0.02 by others
    for one, other in zip(trained, expected):
        assert (one - other).abs().max() <= 0.06 * other.abs().max()
    assert len(layers) == 15 and all(torch.equal(a, m.packed) for a, m in zip(packed, layers))
