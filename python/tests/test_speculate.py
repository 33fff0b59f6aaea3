"""Speculative decoding: the tokens of generate are those without a draft, or distributed alike, whatever is drafted."""

import pytest
from conftest import torch

transformers = pytest.importorskip("transformers", reason="transformers cannot be imported")
pytest.importorskip("torch", reason="torch cannot be imported")

from decoder_kit import tiny_model, tokens_of  # noqa: E402
from torch_kit import DEVICES  # noqa: E402

from tilusvm.transformers import Decoder, DraftModel, PromptLookup  # noqa: E402

pytestmark = pytest.mark.transformers
transformers.logging.set_verbosity_error()
LENGTHS = (9, 4, 12)


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.no_grad():
        yield


@pytest.fixture(params=DEVICES)
def device(request):
    return request.param


class Counted(Decoder):
    """Counts the steps of the model."""

    wide = 0

    def several(self, ids):
        self.wide += 1
        return super().several(ids)


def prompts():
    """Each of which repeats itself."""
    return [row + row[: len(row) // 2] for row in tokens_of(*LENGTHS, seed=7)]


def pair(device, seed=7, draft_seed=7, tokens=3, **words):
    """A Decoder and the draft of another one, of the same weights or others."""
    decoder = Counted(tiny_model("llama", device, seed=seed, **words), 3, 48, page=16)
    return decoder, DraftModel(Decoder(tiny_model("llama", device, seed=draft_seed, **words), 3, 48, page=16), tokens)


@pytest.mark.parametrize("kind", ["the model", "another model", "lookup"])
def test_the_greatest_logits_give_the_same_tokens(kind, device):
    decoder, draft = pair(device, draft_seed=7 if kind == "the model" else 8)
    draft = PromptLookup() if kind == "lookup" else draft
    expected = decoder.generate(prompts(), 14)
    assert torch.equal(decoder.generate(prompts(), 14, draft=draft), expected)
    if kind == "the model":  # all that is drafted is kept: 13 tokens in rounds of 4
        assert decoder.wide == 4
    after = decoder.forward(expected[:, -1:])
    decoder.generate(prompts(), 14)
    torch.testing.assert_close(decoder.forward(expected[:, -1:]), after, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("family", ["qwen3", "gemma2"])
def test_other_families(family, device):
    """With a window of fewer tokens than the prompts have, and norms of heads."""
    decoder = Decoder(tiny_model(family, device, seed=34), 3, 40, page=16, cache="f8_e4m3")
    assert torch.equal(decoder.generate(prompts(), 10, draft=PromptLookup()), decoder.generate(prompts(), 10))


def test_ends_streams_and_the_room(device):
    """Rows end one by one; tokens come step by step; the last ones fit exactly."""
    decoder, draft = pair(device, draft_seed=8)
    plain = decoder.generate(prompts(), 12)
    new = plain[:, -12:].tolist()
    ends = [new[0][2], new[1][7]]
    words = {"eos_token_id": ends, "pad_token_id": 0}
    expected = decoder.generate(prompts(), 12, **words)
    assert torch.equal(decoder.generate(prompts(), 12, draft=draft, **words), expected)
    steps = list(decoder.stream(prompts(), 12, draft=PromptLookup(7), **words))
    assert torch.equal(torch.stack(steps, 1), expected[:, -len(steps) :].cpu())
    longest = max(map(len, prompts()))
    decoder.serve(3, longest + 11, page=16)
    assert torch.equal(decoder.generate(prompts(), draft=draft), plain)


def test_another_use_ends_a_stream(device):
    decoder, draft = pair(device)
    stream = decoder.stream(prompts(), 12, draft=draft)
    next(stream)
    decoder.generate(prompts(), 2)
    with pytest.raises(RuntimeError, match="this stream is over"):
        list(stream)


def test_tokens_are_drawn(device):
    """What the model itself drafts is kept as it stands, since p is q at each place; a seed gives the same tokens again;
    one token that is left is the greatest."""
    decoder, draft = pair(device)
    words = {"temperature": 1.5, "top_k": 20, "top_p": 0.95}
    drawn = decoder.generate(prompts(), 14, seed=2, draft=draft, **words)
    assert decoder.wide == 4
    assert torch.equal(decoder.generate(prompts(), 14, seed=2, draft=draft, **words), drawn)
    assert not torch.equal(decoder.generate(prompts(), 14, seed=3, draft=draft, **words), drawn)
    greatest = decoder.generate(prompts(), 8)
    assert torch.equal(decoder.generate(prompts(), 8, temperature=2.0, top_k=1, draft=PromptLookup()), greatest)


def test_wrong_drafts(device):
    decoder, draft = pair(device)
    fewer = Decoder(tiny_model("llama", device), 2, 48, page=16)
    short = Decoder(tiny_model("llama", device), 3, 24, page=16)
    words = Decoder(tiny_model("llama", device, vocab_size=100), 3, 48, page=16)
    for wrong, kind, text in (
        (3, TypeError, "draft must be a PromptLookup or a DraftModel, not int"),
        (DraftModel(decoder), ValueError, "draft must be another Decoder"),
        (DraftModel(fewer), ValueError, "draft has a batch of 2"),
        (DraftModel(words), ValueError, "draft has a vocabulary of 100"),
        (DraftModel(short), ValueError, "draft has room for 24 tokens"),
    ):
        with pytest.raises(kind, match=text):
            decoder.generate(prompts(), 4, draft=wrong)
    for tokens in (0, 8, 2.0, True):
        with pytest.raises(ValueError, match="tokens must be from 1 to 7"):
            PromptLookup(tokens)
    with pytest.raises(ValueError, match="longest must be"):
        PromptLookup(2, 0)
