"""python -m tilusvm chat and bench, of folders that the test makes: a tiny model, and a tokenizer of as many words."""

import io
import json
import shutil

import pytest
from conftest import NO_TORCH, torch

if torch is None:
    pytest.skip(NO_TORCH, allow_module_level=True)
transformers = pytest.importorskip("transformers", reason="transformers cannot be imported")

from decoder_kit import VOCABULARY, tiny_model  # noqa: E402
from tokenizers import Tokenizer, models, pre_tokenizers  # noqa: E402

from tilusvm.__main__ import main  # noqa: E402
from tilusvm.transformers import Decoder, TilusConfig, _console, accelerate_  # noqa: E402

pytestmark = pytest.mark.transformers
TEMPLATE = (
    "{% for m in messages %}{{ {'system': 'w4', 'user': 'w5', 'assistant': 'w6'}[m.role] }} {{ m.content }} "
    "{% endfor %}{% if add_generation_prompt %}w6{% endif %}"
)


def words(tokens):
    return " ".join(f"w{token}" for token in tokens)


def save_tokenizer(folder, template=TEMPLATE):
    """Word i is token i, but for 3."""
    numbers = {f"w{i}" if i != 3 else "<unknown>": i for i in range(VOCABULARY)}
    tokenizer = Tokenizer(models.WordLevel(numbers, unk_token="<unknown>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unknown>")
    made.chat_template = template
    made.save_pretrained(folder)
    if template is None:
        (folder / "chat_template.jinja").unlink()


@pytest.fixture(scope="module")
def model():
    with torch.no_grad():
        return tiny_model("llama", seed=7)


@pytest.fixture
def folder(model, tmp_path):
    model.save_pretrained(tmp_path)
    save_tokenizer(tmp_path)
    return tmp_path


@pytest.fixture
def seconds(monkeypatch):
    """A second passes whenever one looks at the clock."""
    ticks = iter(range(1 << 30))
    monkeypatch.setattr(_console.time, "perf_counter", lambda: float(next(ticks)))


def run(monkeypatch, capsys, typed, *arguments):
    monkeypatch.setattr("sys.stdin", io.StringIO(typed))
    status = main([*map(str, arguments), "--device", "cpu"])
    said = capsys.readouterr()
    return status, said.out, said.err


def answer(model, ids, new):
    with torch.no_grad():
        return Decoder(model, 1, 128).generate([ids], new)[0, len(ids) :].tolist()


def test_a_chat(folder, model, seconds, monkeypatch, capsys):
    """The second answer follows from the first: all is by the template, and printed without it."""
    typed = "w10 w11\n\nw20\n"
    status, out, err = run(monkeypatch, capsys, typed, "chat", folder, "--new", 5, "--system", "w9")
    ids = [4, 9, 5, 10, 11, 6]
    first = answer(model, ids, 5)
    second = answer(model, [*ids, *first, 5, 20, 6], 5)
    assert status == 0 and out.splitlines() == [words(first), words(second)]
    assert err.splitlines() == ["[5 tokens: 4.0 tokens a second, the first after 1.00 s]"] * 2


def test_an_answer_ends_at_eos(folder, model, monkeypatch, capsys):
    tokens = answer(model, [5, 10, 6], 8)
    end = next(i for i in range(2, 8) if tokens[i] not in tokens[:i])
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.eos_token = f"w{tokens[end]}"
    tokenizer.save_pretrained(folder)
    status, out, err = run(monkeypatch, capsys, "w10\n", "chat", folder)
    assert status == 0 and out == words(tokens[:end]) + "\n" and f"[{end + 1} tokens: " in err


def test_a_model_without_a_template(folder, model, monkeypatch, capsys):
    save_tokenizer(folder, None)
    _, out, _ = run(monkeypatch, capsys, "w10 w11\nw20\n", "chat", folder, "--new", 4)
    first = answer(model, [10, 11], 4)
    assert out.splitlines() == [words(first), words(answer(model, [10, 11, *first, 20], 4))]


def test_quantized_folders(folder, tmp_path, monkeypatch, capsys):
    """Quantized when it is loaded, or before: the same."""
    quantized = tmp_path / "quantized"
    made = transformers.AutoModelForCausalLM.from_pretrained(
        folder, quantization_config=TilusConfig("u4", 32), dtype=torch.float16
    )
    made.save_pretrained(quantized)
    save_tokenizer(quantized)
    expected = words(answer(made, [5, 10, 6], 4)) + "\n"
    assert run(monkeypatch, capsys, "w10\n", "chat", quantized, "--new", 4)[:2] == (0, expected)
    options = ["--new", 4, "--type", "u4", "--group", 32]
    assert run(monkeypatch, capsys, "w10\n", "chat", folder, *options)[:2] == (0, expected)
    status, _, err = run(monkeypatch, capsys, "w10\n", "chat", quantized, *options)
    assert status == 1 and err == f"python -m tilusvm chat: {quantized} is quantized: it goes without --type\n"


def test_a_conversation_that_is_too_long(folder, monkeypatch, capsys):
    status, _, err = run(monkeypatch, capsys, "w10\n" + "w8 " * 20 + "\n", "chat", folder, "--context", 16, "--new", 2)
    told = "the conversation has 27 tokens, more than --context, 16"
    assert status == 1 and err.splitlines()[1:] == [f"python -m tilusvm chat: {told}"]


def test_bench(folder, seconds, monkeypatch, capsys):
    """Two prompts of 8 tokens in a second, and two times 3 tokens in another."""
    options = ["--batch", 2, 1, "--prompt", 8, "--new", 4, "--repeat", 1]
    status, out, _ = run(monkeypatch, capsys, "", "bench", folder, *options, "--json")
    assert status == 0 and json.loads(out) == {
        "folder": str(folder), "device": "cpu", "prompt": 8, "new": 4,
        "tokens_per_second": [
            {"batch": 2, "prefill": 16.0, "decode": 6.0, "first_token_seconds": 1.0},
            {"batch": 1, "prefill": 8.0, "decode": 3.0, "first_token_seconds": 1.0},
        ],
    }  # fmt: skip
    status, out, _ = run(monkeypatch, capsys, "", "bench", folder, *options)
    assert status == 0 and [line.split() for line in out.splitlines()[1:]] == [
        ["2", "16.0", "6.0", "1.000"], ["1", "8.0", "3.0", "1.000"],
    ]  # fmt: skip


# ---- bad folders ----


def absent(folder):
    shutil.rmtree(folder)
    return "is not there"


def a_file(folder):
    shutil.rmtree(folder)
    folder.write_text("a file")
    return "is no folder"


def without(name):
    def damage(folder):
        (folder / name).unlink()
        return {"config.json": "has no config.json", "model.safetensors": "has no weights"}[name]

    return damage


def no_tokenizer(folder):
    for path in folder.glob("tokenizer*"):
        path.unlink()
    return "has no tokenizer"


def cut(name, message):
    def damage(folder):
        path = folder / name
        path.write_bytes(path.read_bytes()[:100])
        return message

    return damage


def fewer_weights(folder):
    import safetensors.torch

    path = folder / "model.safetensors"
    tensors = safetensors.torch.load_file(path)
    del tensors["model.norm.weight"]
    safetensors.torch.save_file(tensors, path, {"format": "pt"})
    return "lacks weights of the model: model.norm.weight"


def another_family(folder):
    config = transformers.GPT2Config(n_embd=64, n_layer=1, n_head=2, vocab_size=VOCABULARY)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return "gpt2"


@pytest.mark.parametrize(
    "damage",
    [
        absent, a_file, without("config.json"), without("model.safetensors"), no_tokenizer, another_family,
        cut("config.json", "JSON"), cut("model.safetensors", "has weights that cannot be read"), fewer_weights,
    ],
)  # fmt: skip
def test_bad_folders(folder, damage, monkeypatch, capsys):
    message = damage(folder)
    status, out, err = run(monkeypatch, capsys, "w10\n", "chat", folder)
    assert (status, out) == (1, "") and len(err.splitlines()) == 1, err
    assert err.startswith("python -m tilusvm chat: ") and message in err


@pytest.mark.parametrize("option, message", [("--new", "--new must be 2"), ("--batch", "--batch must be 1")])
def test_bench_refuses(folder, option, message, monkeypatch, capsys):
    status, _, err = run(monkeypatch, capsys, "", "bench", folder, option, 0)
    assert status == 1 and message in err


@pytest.mark.parametrize("options", [[], ["--one-by-one"], ["--type", "u8", "--group", "32"]])
def test_serve(folder, model, monkeypatch, options):
    """transformers' server on the model with this package's kernels: what it answers is what the model says."""
    testclient = pytest.importorskip("fastapi.testclient", reason="the server's packages are not installed")
    uvicorn = pytest.importorskip("uvicorn", reason="the server's packages are not installed")
    apps, loaded = [], []
    monkeypatch.setattr(uvicorn.Server, "run", lambda self: apps.append(self.config.app))
    monkeypatch.setattr(transformers.PreTrainedModel, "from_pretrained", transformers.PreTrainedModel.from_pretrained)
    monkeypatch.setattr(_console, "accelerate_", lambda model: loaded.append(accelerate_(model)) or loaded[-1])
    assert main(["serve", str(folder), "--device", "cpu", *options]) == 0
    client = testclient.TestClient(apps[0])
    asked = {"messages": [{"role": "user", "content": "w20 w21"}], "max_tokens": 4, "temperature": 0, "stream": False}
    said = client.post("/v1/chat/completions", json={"model": str(folder), **asked})
    assert said.status_code == 200, said.text
    (served,) = loaded
    assert served.config._attn_implementation.startswith("tilusvm") and hasattr(served, "tilusvm_report")
    prompt = torch.tensor([[5, 20, 21, 6]])
    wanted = model.generate(prompt, max_new_tokens=4, do_sample=False)[0, 4:].tolist()
    assert said.json()["choices"][0]["message"]["content"].split() == words(wanted).split()
