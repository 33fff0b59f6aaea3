"""Perplexity and divergence against plain computations; python -m tilusvm quality and quantize, of folders of a tiny
language model that the test trains, on the manuals of the project."""

import json
import math
import pathlib

import pytest
from conftest import NO_TORCH, torch

if torch is None:
    pytest.skip(NO_TORCH, allow_module_level=True)
transformers = pytest.importorskip("transformers", reason="transformers cannot be imported")

from decoder_kit import tiny_model, tokens_of  # noqa: E402
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers  # noqa: E402

import tilusvm  # noqa: E402
from tilusvm import _progress, quality  # noqa: E402
from tilusvm.__main__ import main  # noqa: E402
from tilusvm.transformers import TilusConfig  # noqa: E402

pytestmark = pytest.mark.transformers
MANUALS = pathlib.Path(__file__).parent.parent.parent / "man"
WORDS = 400


# ---- the measure ----


def plainly(model, reference, ids, window, stride):
    """One token after the other: the loss of each that is scored, and its divergence, by the definitions."""
    losses, divergences, scored = [], [], set()
    for begin in range(0, len(ids), stride):
        own = ids[begin : begin + window]
        for i in range(1, len(own)):
            if begin + i in scored:
                continue
            scored.add(begin + i)
            q, p = (m(own[None, :i]).logits[0, -1].double().softmax(0) for m in (model, reference))
            losses.append(-math.log(q[own[i]]))
            divergences.append(sum(float(a * (a / b).log()) for a, b in zip(p, q)))
    return losses, divergences


@torch.no_grad()
@pytest.mark.parametrize("window, stride", [(8, 8), (8, 3), (40, 40), (9, 1)])
def test_measure(window, stride):
    model, reference = (tiny_model(seed=s, dtype=torch.float32) for s in (1, 2))
    for a, b in zip(model.parameters(), reference.parameters()):
        a.copy_(b + 0.02 * a)
    ids = torch.tensor(tokens_of(29)[0])
    found = quality.measure(model, ids, window, stride, reference=reference)
    losses, divergences = plainly(model, reference, ids, window, stride)
    assert found.tokens == len(losses) and (stride == window == 8) == (found.tokens < 28)
    assert found.perplexity == pytest.approx(math.exp(sum(losses) / len(losses)), rel=1e-5)
    assert found.kl_mean == pytest.approx(sum(divergences) / len(losses), rel=1e-3)
    assert found.kl_max == pytest.approx(max(divergences), rel=1e-3)
    assert found.kl_p99 == pytest.approx(sorted(divergences)[math.ceil(0.99 * len(losses)) - 1], rel=1e-3)
    alone = quality.measure(model, ids, window, stride)
    assert alone == (found.tokens, found.perplexity, *[None] * 5)


@torch.no_grad()
def test_a_model_against_itself():
    model, ids = tiny_model(dtype=torch.float32), torch.tensor(tokens_of(30)[0])
    found = quality.measure(model, ids, 16, reference=model)
    assert found.reference_perplexity == found.perplexity and found[3:] == (0.0, 0.0, 0.0, 1.0)


@torch.no_grad()
def test_measure_refuses():
    model, ids = tiny_model(), torch.tensor(tokens_of(30)[0])
    with pytest.raises(ValueError, match="stride from 1 to window, not 8 and 9"):
        quality.measure(model, ids, 8, 9)
    with pytest.raises(ValueError, match="the text has 1 tokens"):
        quality.measure(model, ids[:1])
    with pytest.raises(ValueError, match="vocabularies differ: 120 tokens, of the reference 128"):
        quality.measure(model.float(), ids, 8, reference=tiny_model(vocab_size=128, dtype=torch.float32))


def test_a_bar_comes_after_two_seconds(monkeypatch, capsys):
    clock = [0.0]
    monkeypatch.setattr(_progress.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    bar = _progress.Bar()
    bar(0, 4, "first")
    clock[0] = 1.9
    bar(1, 4, "second")
    assert capsys.readouterr().err == ""
    clock[0] = 2.1
    bar(2, 4, "third")
    bar(4, 4, "")
    lines = capsys.readouterr().err.split("\r")[1:]
    assert lines[0].startswith("[###############...............] 2/4 third") and lines[1].endswith("\n")


# ---- a language model that has learnt something ----


def tokenizer_of(text):
    made = Tokenizer(models.BPE())
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        [text], trainers.BpeTrainer(vocab_size=WORDS, show_progress=False, initial_alphabet=alphabet)
    )
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made)


def trained(ids, steps=120):
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=96, intermediate_size=192, num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=1,
        head_dim=32, vocab_size=WORDS, max_position_embeddings=64, tie_word_embeddings=False, bos_token_id=None,
        eos_token_id=None,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, total_steps=steps)
    for _ in range(steps):
        at = torch.randint(0, len(ids) - 64, (12, 1)) + torch.arange(64)
        model(input_ids=ids[at], labels=ids[at]).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
    return model.half().eval()


@pytest.fixture(scope="module")
def language(tmp_path_factory):
    """A folder with a model, its tokenizer, and two texts, of which it has seen one."""
    folder = tmp_path_factory.mktemp("language")
    pages = [page.read_text() for page in sorted(MANUALS.glob("*.[1-7]"))]
    lines = "\n".join(pages).splitlines(keepends=True)
    seen = "".join(line for i, line in enumerate(lines) if i // 20 % 10)
    unseen = "".join(line for i, line in enumerate(lines) if i // 20 % 10 == 0)
    tokenizer = tokenizer_of(seen)
    with torch.enable_grad():
        model = trained(torch.tensor(tokenizer(seen)["input_ids"]))
    model.save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    (folder / "seen.txt").write_text(seen)
    (folder / "unseen.txt").write_text(unseen)
    return folder


def run(capsys, *arguments):
    status = main([*map(str, arguments), "--device", "cpu"])
    said = capsys.readouterr()
    return status, said.out, said.err


def measured(capsys, language, folder, *options):
    text = ["--text", language / "unseen.txt", "--tokens", 2048, "--window", 64]
    status, out, err = run(capsys, "quality", folder, *text, *options, "--json")
    assert status == 0, err
    return json.loads(out)


def quantized(capsys, language, tmp_path, kind, *options):
    to = tmp_path / f"{kind}{len(options)}"
    status, out, err = run(
        capsys, "quantize", language / "model", "--to", to, "--type", kind, "--group", 32, "--zeros", *options
    )
    assert status == 0, err
    assert out == f"{to}: {kind} in groups of 32\n"
    return to


@pytest.mark.parametrize("kind, part", [("u2", 0.7), ("u3", 0.7), ("u4", 0.75)])
def test_calibration_lowers_the_divergence(kind, part, language, tmp_path, capsys):
    """Of text that neither the training nor the calibration has seen; by both commands, from folder to folder."""
    calibrated = ["--method", "gptq", "--text", language / "seen.txt", "--samples", 48, "--window", 64]
    folder = quantized(capsys, language, tmp_path, kind, *calibrated)
    ours = measured(capsys, language, folder, "--against", language / "model")
    options = ["--type", kind, "--group", 32, "--zeros"]
    plain = measured(capsys, language, language / "model", *options)
    assert ours["perplexity"] < WORDS / 4 and ours["reference_perplexity"] == plain["reference_perplexity"]
    assert ours["kl_mean"] < part * plain["kl_mean"] and ours["top1_agreement"] > plain["top1_agreement"]
    assert (ours["window"], ours["stride"], ours["tokens"]) == (64, 64, 2016)


def test_on_the_fly_or_before(language, tmp_path, capsys):
    """The same numbers; those of the package, for the same tokens; and, nearly, those of the interpreter."""
    folder = quantized(capsys, language, tmp_path, "u3")
    before = measured(capsys, language, folder, "--against", language / "model", "--tokens", 129)
    options = ["--type", "u3", "--group", 32, "--zeros", "--tokens", 129]
    fly = measured(capsys, language, language / "model", *options)
    numbers = list(quality.Quality._fields)
    assert [before[name] for name in numbers] == pytest.approx([fly[name] for name in numbers], rel=1e-6)
    slowly = measured(capsys, language, language / "model", *options, "--interpreter")
    assert slowly["perplexity"] == pytest.approx(fly["perplexity"], rel=5e-3)
    assert slowly["kl_mean"] == pytest.approx(fly["kl_mean"], rel=0.1)
    alone = measured(capsys, language, folder, "--tokens", 129)
    assert alone["perplexity"] == before["perplexity"] and alone["kl_mean"] is None


def test_table(language, capsys):
    text = ["--text", language / "unseen.txt", "--tokens", 100, "--window", 50, "--stride", 10]
    status, out, _ = run(capsys, "quality", language / "model", *text, "--against", language / "model")
    assert status == 0
    assert out.splitlines()[0] == "tokens            99 in windows of 50, one every 10"
    assert out.splitlines()[2].endswith("(+0.00%)")
    assert out.splitlines()[3:] == [
        "KL divergence     0.000000 mean, 0.000000 p99, 0.000000 max", "top-1 agreement   100.00%"
    ]  # fmt: skip


def test_what_is_written_loads(language, tmp_path, capsys):
    folder = quantized(capsys, language, tmp_path, "u4", "--skip", "*.o_proj", "--skip", "lm_head")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float16)
    assert isinstance(model.model.layers[0].mlp.up_proj, tilusvm.nn.Linear)
    assert type(model.model.layers[1].self_attn.o_proj) is torch.nn.Linear and type(model.lm_head) is torch.nn.Linear
    how = TilusConfig("u4", 32, True, skip=["*.o_proj", "lm_head"])
    other = transformers.AutoModelForCausalLM.from_pretrained(
        language / "model", dtype=torch.float16, quantization_config=how
    )
    for name, tensor in other.state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor), name


# ---- what is refused ----


@pytest.mark.parametrize(
    "options, message",
    [
        (["--text", "none.txt"], "No such file or directory: 'none.txt'"),
        (["--text", "latin"], "latin is no text in UTF-8: invalid continuation byte at byte 3"),
        (["--text", "empty"], "the text has 0 tokens: two at least are needed"),
        (["--text", "text", "--against", "nowhere"], "nowhere is not there"),
        (["--text", "text", "--type", "u9"], "type must be u1 to u8"),
        (["--text", "text", "--group", "31", "--type", "u4"], "group"),
        (["--text", "text", "--stride", "0"], "stride from 1 to window"),
    ],
)
def test_quality_refuses(options, message, language, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "latin").write_bytes(b"caf\xe9 au lait")
    (tmp_path / "empty").touch()
    (tmp_path / "text").write_text("a few words of text")
    status, out, err = run(capsys, "quality", language / "model", *options)
    assert (status, out) == (1, "") and len(err.splitlines()) == 1, err
    assert err.startswith("python -m tilusvm quality: ") and message in err


def test_quantize_refuses(language, tmp_path, capsys):
    def told(folder, *options):
        status, out, err = run(capsys, "quantize", folder, "--type", "u4", *options)
        assert (status, out) == (1, "") and len(err.splitlines()) == 1, err
        return err

    (tmp_path / "there").mkdir()
    model, text = language / "model", language / "unseen.txt"
    assert "there is there already" in told(model, "--to", tmp_path / "there")
    assert "--method and --text go together" in told(model, "--to", tmp_path / "new", "--method", "gptq")
    assert "--method and --text go together" in told(model, "--to", tmp_path / "new", "--text", text)
    assert "nowhere is not there" in told(tmp_path / "nowhere", "--to", tmp_path / "new")
    (tmp_path / "short").write_text("a")
    short = ["--method", "gptq", "--text", tmp_path / "short"]
    assert "fewer than the 2 of a window" in told(model, "--to", tmp_path / "new", *short)
    made = quantized(capsys, language, tmp_path, "u4")
    assert "is quantized already" in told(made, "--to", tmp_path / "new")
    assert "is quantized: it goes without --type" in run(
        capsys, "quality", made, "--text", text, "--type", "u4")[2]  # fmt: skip
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([made.name, "short", "there"])
