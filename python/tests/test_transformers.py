"""Models of transformers by this package's kernels, against transformers' own: tiny ones with random weights."""

import pytest
from conftest import needs_gpu, readme_lines, torch

transformers = pytest.importorskip("transformers", reason="transformers cannot be imported")
pytest.importorskip("torch", reason="torch cannot be imported")

from tilusvm import nn  # noqa: E402
from tilusvm.quantize import quantize_  # noqa: E402
from tilusvm.transformers import Decoder, Options, PagedCache, TilusConfig, accelerate_  # noqa: E402
from tilusvm.transformers._cache import ARGUMENT  # noqa: E402

pytestmark = pytest.mark.transformers
transformers.logging.set_verbosity_error()
DEVICES = ["cpu", pytest.param("cuda", marks=needs_gpu)]
WINDOW = dict(sliding_window=8)
GEMMA = dict(WINDOW, query_pre_attn_scalar=64)
FAMILIES = {"llama": {}, "qwen2": {}, "qwen3": {}, "mistral": WINDOW, "gemma2": GEMMA, "gemma3_text": GEMMA}


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.no_grad():
        yield


def model_of(family, device="cpu", **words):
    """Of which the norms and the head's logits say something."""
    config = transformers.AutoConfig.for_model(
        family, hidden_size=128, intermediate_size=192, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=64, vocab_size=96, max_position_embeddings=128, pad_token_id=0, bos_token_id=1,
        eos_token_id=None, tie_word_embeddings=False, **{**FAMILIES[family], **words},
    )  # fmt: skip
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float16).eval()
    for name, parameter in model.named_parameters():
        if "norm" in name:
            parameter.normal_(0.0 if "gemma" in family else 1.0, 0.2)
        elif parameter.dim() == 2:
            parameter.normal_(0.0, 1.0 if "embed" in name else 0.2)
    return model.to(device)


def ids_of(batch, tokens, device="cpu"):
    return torch.randint(1, 96, (batch, tokens), generator=torch.Generator().manual_seed(tokens)).to(device)


def same_until_a_tie(model, found, expected, prompt):
    """The tokens are equal up to the first place where two logits are nearly so."""
    for ours, theirs in zip(found.tolist(), expected.tolist()):
        for place in range(prompt, len(theirs)):
            if ours[place] == theirs[place]:
                continue
            logits = model(torch.tensor([theirs[:place]], device=found.device)).logits[0, -1].float()
            assert abs(logits[ours[place]] - logits[theirs[place]]) < 0.02 * logits.abs().max()
            break


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("family", FAMILIES)
def test_decoder(family, device):
    """Prompt, several tokens at once, and one by one."""
    model = model_of(family, device)
    ids = ids_of(2, 23, device)
    expected = model(ids).logits
    tolerance = 0.01 * expected.abs().max()
    decoder = Decoder(model, 2, 64, page=16)
    for begin, end in [(0, 18), (18, 21), (21, 22), (22, 23)]:
        logits = decoder.forward(ids[:, begin:end])
        assert (logits - expected[:, end - 1]).abs().max() < tolerance
    theirs = model.generate(ids, max_new_tokens=6, do_sample=False)
    ours = decoder.generate(ids, 6)
    assert ours.shape == theirs.shape
    same_until_a_tie(model, ours, theirs, 23)
    assert (device == "cuda") == (decoder.graph is not None)


@pytest.mark.parametrize("device", DEVICES)
def test_decoder_of_quantized_layers(device):
    model = model_of("llama", device)
    quantize_(model, "u4", progress=False)
    plain, ids = model_of("llama", device), ids_of(1, 20, device)
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            plain.get_submodule(name).weight.copy_(module.dequantize())
    expected = plain(ids).logits[:, -1]
    decoder = Decoder(model, 1, 64, page=16)
    assert len(decoder.blocks[0].qkv.parts) == 1
    decoder.prepare(20)  # leaves no trace
    with pytest.raises(ValueError, match="holds 64 tokens"):
        decoder.prepare(65)
    assert (decoder.forward(ids) - expected).abs().max() < 0.01 * expected.abs().max()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "family, type, group", [
        ("llama", "u4", 64), ("qwen2", "u3", 64), ("qwen3", "f6_e3m2", 128), ("mistral", "u8", 0),
        ("gemma2", "u4", 128), ("gemma3_text", "nf4", 64),
    ],
)  # fmt: skip
def test_greedy_tokens(family, type, group, device):
    """Prompts and 12 tokens: logits are within 1 % of eager torch in f32, over the weights that the codes stand for,
    and each token is that one's greatest, up to a tie: two logits that are nearer than the error of both."""
    model, ids = model_of(family, device), ids_of(2, 20, device)
    quantize_(model, type, group, progress=False)
    exact = model_of(family, device).float()
    exact.set_attn_implementation("eager")
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            exact.get_submodule(name).weight.copy_(module.dequantize())
    decoder = Decoder(model, 2, 64, page=16)
    tokens = decoder.generate(ids, 12)
    decoder.cache.reset()
    ours = torch.stack([decoder.forward(part) for part in (ids, *tokens[:, 20:-1, None].unbind(1))], 1)
    assert torch.equal(ours.argmax(-1), tokens[:, 20:])
    theirs = exact(tokens).logits[:, 19:-1]
    error = (ours.float() - theirs).abs().max()
    assert error < 0.01 * theirs.abs().max()
    behind = theirs.amax(-1) - theirs.gather(-1, tokens[:, 20:, None])[..., 0]
    assert (behind <= 2 * error).all()
    expected = exact.generate(ids, max_new_tokens=12, do_sample=False)
    for row in range(2):
        differ = (tokens[row] != expected[row]).nonzero()
        if len(differ):  # nothing but a tie is where they part
            first = int(differ[0]) - 20
            two = theirs[row, first].topk(2).values
            assert two[0] - two[1] <= 2 * error


def test_each_part_can_be_left_to_torch():
    model = model_of("qwen3")
    ids = ids_of(1, 20)
    expected = model(ids).logits
    for part in ("norms", "rotary", "mlp", "attention", "merge"):
        other = accelerate_(model_of("qwen3"), **{part: False})
        assert (other(ids).logits - expected).abs().max() < 0.01 * expected.abs().max(), part
    assert Options(mlp=False).mlp is False


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("family", FAMILIES)
def test_accelerated_models(family, device):
    model, ids = model_of(family, device), ids_of(2, 19, device)
    mask = torch.ones_like(ids)
    mask[0, :3] = 0
    expected, padded = model(ids).logits, model(ids, attention_mask=mask).logits
    theirs = model.generate(ids, max_new_tokens=5, do_sample=False)
    assert accelerate_(model) is model
    tolerance = 0.01 * expected.abs().max()
    assert (model(ids).logits - expected).abs().max() < tolerance
    assert (model(ids, use_cache=False).logits - expected).abs().max() < tolerance
    assert (model(ids, attention_mask=mask).logits - padded)[mask.bool()].abs().max() < tolerance
    cache = PagedCache(model.config, 2, 64, page=16, device=device)
    for words in ({}, {ARGUMENT: cache}, {"cache_implementation": "static"}):
        ours = model.generate(ids, max_new_tokens=5, do_sample=False, **words)
        same_until_a_tie(model, ours, theirs, 19)
    assert cache.get_seq_length() == 19 + 4 and cache.lengths.tolist() == [23, 23]


def test_what_is_refused():
    model, ids = accelerate_(model_of("llama")), ids_of(2, 19)
    decoder = Decoder(model_of("llama"), 1, 32, page=16)

    def fresh(**words):
        return PagedCache(model.config, 2, 32, **{"page": 16, "device": "cpu", **words})

    with pytest.raises(ValueError, match="accelerated before"):
        accelerate_(model)
    cache = PagedCache(model.config, 2, 32, page=16, device="cpu")
    mask = torch.ones_like(ids)
    mask[0, 0] = 0
    with pytest.raises(ValueError, match="padding"):
        model(ids, attention_mask=mask, **{ARGUMENT: cache})
    with pytest.raises(ValueError, match="holds 32 tokens"):
        PagedCache(model.config, 2, 32, page=16, device="cpu").advance(33)
    other = transformers.AutoModelForCausalLM.from_config(
        transformers.GPT2Config(n_embd=64, n_layer=1, n_head=2, vocab_size=96)
    )
    with pytest.raises(ValueError, match="has no model.layers"):
        accelerate_(other)
    for call, message in [
        (lambda: Decoder(model_of("llama").float(), 1, 64), "model must be of torch.float16"),
        (lambda: decoder.generate(ids, 2), r"ids must have the shape \[1, tokens\], not \[2, 19\]"),
        (lambda: decoder.generate("text", 2), "ids must be a tensor"),
        (lambda: decoder.generate(ids[:1].float(), 2), "ids must be torch.int64"),
        (lambda: decoder.generate(ids[:1], 15), "holds 32 tokens of a sequence, not 33"),
        (lambda: model(ids[:1], **{ARGUMENT: fresh()}), "for a batch of 2, not 1"),
        (lambda: model(ids, **{ARGUMENT: fresh(dtype=torch.bfloat16)}), "for torch.bfloat16, not torch.float16"),
        (lambda: fresh(page=10), "page must be one of 16, 32, 64, 128"),
        (lambda: PagedCache(model.config, 0, 32), "batch must be a number from 1"),
    ]:
        with pytest.raises((TypeError, ValueError), match=message):
            call()
    for words, message in [
        ({"group": 100}, "group must be"), ({"scales": "best"}, "mse or absmax"), ({"skip": "lm_head"}, "skip must be"),
        ({"type": "i4", "zeros": True}, "zeros goes with unsigned"), ({"type": "u9"}, "type must be"),
    ]:  # fmt: skip
        with pytest.raises((TypeError, ValueError), match=message):
            TilusConfig(**words)
    with pytest.raises(TypeError, match="model must be a model of transformers"):
        accelerate_(torch.nn.Sequential())


@pytest.mark.parametrize("device", DEVICES)
def test_from_pretrained(tmp_path, device):
    model, ids = model_of("llama", device), ids_of(1, 20, device)
    model.save_pretrained(tmp_path / "plain")
    load = transformers.AutoModelForCausalLM.from_pretrained
    config = TilusConfig("u8", group=32)
    quantized = load(tmp_path / "plain", quantization_config=config, dtype=torch.float16).to(device)
    layer = quantized.model.layers[0].mlp.up_proj
    assert (layer.type, layer.group) == ("u8", 32) and type(quantized.lm_head) is torch.nn.Linear
    for name, module in quantized.named_modules():
        if isinstance(module, nn.Linear):
            model.get_submodule(name).weight.copy_(module.dequantize())
    logits, expected = quantized(ids).logits, model(ids).logits
    assert (logits - expected).abs().max() < 0.01 * expected.abs().max()
    quantized.save_pretrained(tmp_path / "quantized")
    again = load(tmp_path / "quantized", dtype=torch.float16).to(device)
    assert again.config.quantization_config.type == "u8"
    assert torch.equal(again(ids).logits, logits)


def test_the_lines_of_the_project(tmp_path):
    model_of("llama").save_pretrained(tmp_path)
    lines = readme_lines("from transformers import AutoModelForCausalLM")
    if not torch.cuda.is_available():
        lines = lines.replace(".cuda()", "")
    names = {"path": tmp_path}
    exec(lines, names)
    model = names["model"]
    assert len(lines.splitlines()) == 3 and type(model.model.layers[0].mlp.up_proj) is nn.Linear
    assert model.generate(ids_of(1, 5, model.device), max_new_tokens=3, do_sample=False).shape == (1, 8)
