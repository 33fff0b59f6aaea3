"""Decoder, PagedCache and accelerate_ together: what they take, what they refuse and when; against transformers."""

import pytest
from conftest import torch

transformers = pytest.importorskip("transformers", reason="transformers cannot be imported")
pytest.importorskip("torch", reason="torch cannot be imported")

from decoder_kit import padded, tiny_model, tokens_of  # noqa: E402
from torch_kit import DEVICES  # noqa: E402

from tilusvm.ops import CacheFormat  # noqa: E402
from tilusvm.transformers import Decoder, Options, PagedCache, accelerate_  # noqa: E402
from tilusvm.transformers._cache import ARGUMENT  # noqa: E402

pytestmark = pytest.mark.transformers
transformers.logging.set_verbosity_error()


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.no_grad():
        yield


@pytest.fixture(params=DEVICES)
def device(request):
    return request.param


def near(ours, exact, part=0.01):
    assert (ours.float() - exact.float()).abs().max() < part * exact.abs().max()


# ---- accelerate_, and then Decoder ----


@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_decoder_of_an_accelerated_model(family, device):
    ids, _ = padded(tokens_of(11, 11), device)
    expected = tiny_model(family, device, torch.float32)(ids).logits
    model = accelerate_(tiny_model(family, device), merge=False)
    decoder = Decoder(model, 2, 32, page=16, consume=True)
    assert all(block is layer for block, layer in zip(decoder.blocks, model.model.layers))
    near(decoder.forward(ids[:, :10]), expected[:, 9])
    near(decoder.forward(ids[:, 10:]), expected[:, 10])
    near(model(ids).logits, expected)  # goes on to work as before
    with pytest.raises(ValueError, match="has been accelerated: its options are those of accelerate_"):
        Decoder(model, 2, 32, options=Options(norms=False))


def test_accelerate_behind_a_decoder():
    model, ids = tiny_model(), torch.tensor([tokens_of(5)[0]])
    expected = model(ids).logits
    near(Decoder(model, 1, 16, page=16).forward(ids), expected[:, -1])
    near(accelerate_(model)(ids).logits, expected)
    model = tiny_model()
    Decoder(model, 1, 16, page=16, consume=True)
    for again in (lambda: accelerate_(model), lambda: Decoder(model, 1, 16)):
        with pytest.raises(ValueError, match="layer 0 of the model has no attention: has a Decoder with consume=True"):
            again()


# ---- sizes of heads ----


@pytest.mark.parametrize("head", [32, 48, 112])
def test_heads_that_attention_does_not_take(head):
    """They are refused at once, and nothing of the model is changed; torch can have them."""
    ids, wanted = torch.tensor([tokens_of(5)[0]]), f"layer 0 .* heads of 64, 80, 96, 128 or 256 .* not {head}, {head}"
    model = tiny_model(head_dim=head)
    expected = model(ids).logits
    with pytest.raises(ValueError, match=f"{wanted}: attention=False leaves it to torch"):
        accelerate_(model)
    with pytest.raises(ValueError, match=wanted):
        Decoder(model, 1, 16)
    assert torch.equal(model(ids).logits, expected)
    near(accelerate_(model, attention=False)(ids).logits, expected)


@pytest.mark.parametrize("head", [80, 256])
def test_heads_that_it_takes(head, device):
    ids, _ = padded(tokens_of(9), device)
    model = tiny_model(device=device, head_dim=head)
    expected = tiny_model(device=device, dtype=torch.float32, head_dim=head)(ids).logits
    decoder = Decoder(model, 1, 16, page=16)
    near(decoder.forward(ids[:, :8]), expected[:, 7])
    near(decoder.forward(ids[:, 8:]), expected[:, 8])  # of 80 elements keys are turned before they are appended
    near(accelerate_(model)(ids).logits, expected)


def test_an_activation_that_is_not_known():
    ids = torch.tensor([tokens_of(5)[0]])
    model = tiny_model(hidden_act="relu")
    expected = model(ids).logits
    with pytest.raises(ValueError, match="activation is relu, not one of silu, .*: mlp=False leaves it to torch"):
        accelerate_(model)
    near(Decoder(model, 1, 16, options=Options(mlp=False)).forward(ids), expected[:, -1])
    near(accelerate_(model, mlp=False)(ids).logits, expected)


# ---- the cache ----


def test_where_a_cache_is(device):
    """With the model, or where the first keys are."""
    model, ids = accelerate_(tiny_model(device=device, seed=1)), padded(tokens_of(6, seed=1), device)[0]
    where = next(model.parameters()).device
    expected = model.generate(ids, max_new_tokens=3, do_sample=False)
    cache = PagedCache(model, 1, 16, page=16)
    assert cache.table.device == cache.lengths.device == cache.data[0].device == where
    caches = [cache, PagedCache(model.config, 1, 16, page=16)]
    for cache in caches:
        assert torch.equal(model.generate(ids, max_new_tokens=3, do_sample=False, **{ARGUMENT: cache}), expected)
        assert cache.lengths.device == where and cache.lengths.tolist() == [8] and cache.get_seq_length() == 8
    assert PagedCache(tiny_model(dtype=torch.bfloat16), 1, 16).format.dtype == torch.bfloat16
    late = PagedCache(model.config, 1, 16, page=16)
    late.advance(2)
    keys = torch.ones(2, 1, 64, dtype=torch.float16, device=device)
    late.append(0, keys, keys)
    assert late.lengths.device == where and late.lengths.tolist() == [2] and late.data[0].any()
    with torch.device("meta"):
        assert PagedCache(model.config, 1, 16).lengths.device.type == "meta"
    elsewhere = PagedCache(model.config, 1, 16, device="meta")
    with pytest.raises(ValueError, match="the PagedCache is on meta, not on"):
        model(ids, **{ARGUMENT: elsewhere})


@pytest.mark.parametrize(
    "words, message", [
        ({"type": "u3"}, "no cache has u3 for heads of 80 elements: a lane's share of KGROUP keys must be whole"),
        ({"type": "i4", "zeros": True}, "no cache has i4 for heads of 80 elements: KZEROS goes with unsigned"),
        ({"type": "nf4"}, "not codes of a table, as nf4"), ({"batch": True}, "batch must be a number from 1, not True"),
    ],
)  # fmt: skip
def test_caches_that_there_are_not(words, message):
    model = tiny_model(head_dim=80)
    with pytest.raises(ValueError, match=message):
        PagedCache(model.config, **{"batch": 1, "max_tokens": 16, **words})
    if "type" in words:
        words = dict(words, cache=words["type"])
        del words["type"]
        with pytest.raises(ValueError, match=message):
            Decoder(model, 1, 16, **words)
    CacheFormat(head=80, k_type="u4", v_type="u8").check()


def test_positions_up_to_the_last_one(device):
    """max_tokens need be no whole pages, and another cache may be longer than the first."""
    ids = padded(tokens_of(21), device)[0]
    expected = tiny_model(device=device, dtype=torch.float32)(ids).logits
    decoder = Decoder(tiny_model(device=device), 1, 10, page=16)
    with pytest.raises(ValueError, match="the cache holds 10 tokens of a sequence, not 11"):
        decoder.forward(ids[:, :11])
    assert decoder.cache.tokens == 0
    decoder.serve(1, 21, page=16)
    for begin, end in [(0, 2), (2, 20), (20, 21)]:  # more than attend to the cache at once, and one
        near(decoder.forward(ids[:, begin:end]), expected[:, end - 1])
    with pytest.raises(ValueError, match="holds 21 tokens"):
        decoder.forward(ids[:, :1])


def quantized(x, bits):
    """x in f16 as the cache has it, by the definition of its types, of each token and head: f8_e4m3, or unsigned codes
    of so many bits with zero points."""
    if bits is None:
        scale = (x.abs().amax(-1, keepdim=True) / 448).clamp(min=2.0**-14).half().float()
        return (x / scale).to(torch.float8_e4m3fn).float() * scale
    low, high, most = x.amin(-1, keepdim=True), x.amax(-1, keepdim=True), x.abs().amax(-1, keepdim=True)
    scale = torch.maximum((high - low) / (2**bits - 1), most / 2048).clamp(min=2.0**-14).half().float()
    zero = (-low / scale).half().float()
    return ((x / scale + zero).round().clamp(0, 2**bits - 1) - zero) * scale


@pytest.mark.parametrize("type, bits", [("f8_e4m3", None), ("u8", 8), ("u4", 4)])
def test_low_bit_caches(type, bits, device):
    """The last token sees what quantization leaves of keys and values: those of the model in f32, quantized anew."""

    class Quantizing(transformers.DynamicCache):
        now = False

        def update(self, keys, values, *args, **kwargs):
            keys, values = super().update(keys, values, *args, **kwargs)
            return (quantized(keys, bits), quantized(values, bits)) if self.now else (keys, values)

    ids = padded(tokens_of(14, 14), device)[0]
    exact, cache = tiny_model(device=device, dtype=torch.float32), Quantizing()
    plain = exact(ids).logits[:, -1]
    exact(ids[:, :-1], **{ARGUMENT: cache})
    cache.now = True
    expected = exact(ids[:, -1:], **{ARGUMENT: cache}).logits[:, -1]
    decoder = Decoder(tiny_model(device=device), 2, 32, page=32, cache=type, zeros=bits is not None)
    decoder.forward(ids[:, :-1])
    logits = decoder.forward(ids[:, -1:])
    effect, rounding = (expected - plain).abs().max(), 0.015 * expected.abs().max()
    assert (logits - expected).abs().max() < max(0.5 * effect, rounding)
