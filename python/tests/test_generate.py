"""Decoder.generate and stream: token by token as transformers' own generate where that is greedy, and by exact
arithmetic where tokens are drawn."""

import threading

import pytest
from conftest import torch

transformers = pytest.importorskip("transformers", reason="transformers cannot be imported")
pytest.importorskip("torch", reason="torch cannot be imported")

from decoder_kit import VOCABULARY, padded, tiny_model, tokens_of  # noqa: E402
from torch_kit import DEVICES  # noqa: E402

from tilusvm import ops  # noqa: E402
from tilusvm.transformers import Decoder  # noqa: E402

pytestmark = pytest.mark.transformers
transformers.logging.set_verbosity_error()
#: Of each family a seed with which the two greatest logits of each step below are far from each other, and tokens at
#: which rows end at different steps.
SEEDS = {"llama": 7, "qwen2": 13, "qwen3": 0, "mistral": 35, "gemma2": 34, "gemma3_text": 30}
ENDS = {
    "llama": [114, 94], "qwen2": [45, 12], "qwen3": [36, 42], "mistral": [105, 16], "gemma2": [93, 3],
    "gemma3_text": [116, 27],
}  # fmt: skip
LENGTHS = (9, 4, 12)


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.no_grad():
        yield


@pytest.fixture(params=DEVICES)
def device(request):
    return request.param


class Recorder:
    """A streamer that keeps what it is given."""

    def __init__(self):
        self.values, self.ends = [], 0

    def put(self, value):
        assert value.device.type == "cpu" and not self.ends
        self.values.append(value.tolist())

    def end(self):
        self.ends += 1


def theirs(family, prompts, device, most=8, **words):
    """What transformers generates in f32, and its logits [batch, steps, vocabulary]."""
    model = tiny_model(family, device, torch.float32, SEEDS[family])
    ids, mask = padded(prompts, device)
    words = {"do_sample": False, "return_dict_in_generate": True, "output_logits": True, **words}
    found = model.generate(ids, attention_mask=mask, max_new_tokens=most, **words)
    return found.sequences, torch.stack(found.logits, 1)


@pytest.fixture(scope="module")
def llama():
    """What the tests below share, of the device: the model, its prompts, and what comes of them without an end."""
    known = {}

    def get(device):
        if device not in known:
            with torch.no_grad():
                prompts = tokens_of(*LENGTHS, seed=SEEDS["llama"])
                decoder = Decoder(tiny_model("llama", device, seed=SEEDS["llama"]), 3, 24, page=16)
                known[device] = decoder, prompts, theirs("llama", prompts, device)[0]
        return known[device]

    return get


@pytest.mark.parametrize("family", SEEDS)
def test_greedy(family, device):
    """Prompts of different lengths, whose rows end at different steps: the same tokens, and the logits of each step
    within 1 % of the greatest and within half of what tells the first two apart."""
    prompts = tokens_of(*LENGTHS, seed=SEEDS[family])
    expected, logits = theirs(family, prompts, device, 6, eos_token_id=ENDS[family])
    new = expected[:, 12:].tolist()
    ends = [next((i for i, token in enumerate(row) if token in ENDS[family]), 5) for row in new]
    assert len(set(ends)) > 1

    model = tiny_model(family, device, seed=SEEDS[family])
    model.generation_config.eos_token_id = ENDS[family]
    decoder = Decoder(model, 3, 24, page=16)
    decoder.ahead, largest = 0, logits.abs().max()
    two = logits.topk(2).values
    for step, tokens in enumerate(decoder.stream(prompts, 6)):
        assert tokens.device.type == "cpu" and tokens.tolist() == [row[step] for row in new]
        going = [row for row in range(3) if step <= ends[row]]
        error = (decoder.logits[going] - logits[going, step]).abs().max()
        assert error < 0.01 * largest and error < 0.5 * (two[going, step, 0] - two[going, step, 1]).min()
    assert step == max(ends) == len(new[0]) - 1
    assert decoder.cache.lengths.tolist() == [length + end for length, end in zip(LENGTHS, ends)]
    assert (device == "cuda") == (decoder.graph is not None)


def test_bfloat16_and_one_length(device):
    """Without an end nothing is looked at before the last step."""
    ids = padded(tokens_of(10, 10), device)[0]
    decoder = Decoder(tiny_model(device=device, dtype=torch.bfloat16), 2, 16, page=16)
    tokens = decoder.generate(ids.int(), max_new_tokens=4)
    assert tokens.shape == (2, 14) and torch.equal(tokens[:, :10], ids)
    exact = tiny_model(device=device, dtype=torch.bfloat16).float()
    logits = exact(tokens).logits[:, 9:-1]
    behind = logits.amax(-1) - logits.gather(-1, tokens[:, 10:, None])[..., 0]
    assert behind.max() < 0.05 * logits.abs().max()
    assert decoder.cache.lengths.tolist() == [13, 13]
    again = decoder.forward(tokens[:, -1:])
    assert (again - exact(tokens).logits[:, -1]).abs().max() < 0.05 * logits.abs().max()


def test_a_mask_may_leave_out_any(llama, device):
    """Padding at the left, at the right, marked by the pad token alone, or in a tokenizer's dictionary."""
    decoder, prompts, free = llama(device)
    ids, mask = padded(prompts, device)
    free = free[:, :14]
    for words in ({"attention_mask": mask}, {"attention_mask": mask.bool()}, {}):  # 0, the pad token, is no eos
        assert torch.equal(decoder.generate(ids, 2, **words), free)
    given = {"input_ids": ids, "attention_mask": mask}
    assert torch.equal(decoder.generate(given, 2), free)
    assert torch.equal(decoder.generate({name: part.tolist() for name, part in given.items()}, 2), free)
    assert torch.equal(decoder.generate([torch.tensor(row) for row in prompts], 2), free)
    right, seen = torch.full_like(ids, 5), torch.zeros_like(mask)
    for row, prompt in enumerate(prompts):
        right[row, : len(prompt)], seen[row, : len(prompt)] = torch.tensor(prompt), 1
    tokens = decoder.generate(right, 2, attention_mask=seen)
    assert torch.equal(tokens[:, :12], right) and torch.equal(tokens[:, 12:], free[:, 12:])


@pytest.mark.parametrize("ahead", [0, 2, 9])
def test_steps_ahead_of_the_host(llama, device, ahead, monkeypatch):
    """However many steps are under way when rows end, the tokens, the cache and what comes next are the same."""
    decoder, prompts, free = llama(device)
    new = free[:, 12:].tolist()
    eos = [new[0][3], new[1][1], new[2][2]]
    ends = [next(i for i, token in enumerate(row) if token in eos) for row in new]
    steps = 1 + max(ends)
    assert 1 < steps < 5
    expected = free[:, : 12 + steps].clone()
    for row, end in enumerate(ends):
        expected[row, 13 + end :] = 0
    begun = []
    one = type(decoder)._token
    monkeypatch.setattr(type(decoder), "_token", lambda *args: begun.append(args[2]) or one(*args))
    monkeypatch.setattr(decoder, "ahead", ahead)
    if device == "cpu":  # whose steps are over when they are begun
        monkeypatch.setattr("tilusvm.transformers._decoder.is_asynchronous", lambda device: True)
    assert torch.equal(decoder.generate(prompts, 8, eos_token_id=eos), expected)
    assert begun == list(range(min(steps + ahead, 8)))
    assert decoder.cache.lengths.tolist() == [length + end for length, end in zip(LENGTHS, ends)]
    assert decoder.cache.tokens == max(decoder.cache.lengths.tolist())


def test_streamers(llama, device):
    """generate gives what transformers' does, and so does its streamer, whose end comes once, also of an error."""
    decoder, prompts, free = llama(device)
    ids, mask = padded(prompts, device)
    ours, other = Recorder(), Recorder()
    words = {"eos_token_id": ENDS["llama"], "pad_token_id": 1}
    expected = theirs("llama", prompts, device, 6, streamer=other, **words)[0]
    tokens = decoder.generate(ids, 6, attention_mask=mask, streamer=ours, **words)
    assert torch.equal(tokens, expected) and tokens.dtype == torch.int64 and tokens.device == expected.device
    assert ours.values == other.values and ours.ends == other.ends == 1
    with pytest.raises(ValueError, match="max_new_tokens must be 1 at least"):
        decoder.generate(ids, 0, streamer=ours)
    assert ours.ends == 2

    class Broken(Recorder):
        def put(self, value):
            raise OSError("no one listens")

    broken = Broken()
    with pytest.raises(OSError, match="no one listens"):
        decoder.generate(ids, 3, streamer=broken)
    assert broken.ends == 1


def tokenizer():
    """Whose tokens are one or two letters, and texts what they say one behind the other."""
    from tokenizers import Tokenizer, decoders, models

    letters = [chr(97 + i) for i in range(26)]
    words = ["<pad>", "<s>", *letters, *(a + b for a in letters for b in letters)][:VOCABULARY]
    inner = Tokenizer(models.BPE({word: i for i, word in enumerate(words)}, []))
    inner.decoder = decoders.Fuse()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", bos_token="<s>")


def test_stop_strings(llama, device):
    """Text that begins in one token and ends within another, of one row and of several."""
    decoder, prompts, free = llama(device)
    words = tokenizer()
    texts = [[words.decode([token]) for token in row] for row in free[:, 12:].tolist()]
    across = texts[0][2][-1] + texts[0][3][0]
    stops = [across, "".join(texts[2][1:3]), "".join(texts[1][3:5]), "notatall"]
    eos = next(token for token in range(2, VOCABULARY) if token not in free)
    more = {"stop_strings": stops, "tokenizer": words, "eos_token_id": eos}
    expected = theirs("llama", prompts, device, **more)[0]
    assert expected.shape[1] < 20 and (expected[0, 12:] == 0).any()
    assert torch.equal(decoder.generate(prompts, 8, **more), expected)
    text = transformers.TextIteratorStreamer(words, skip_prompt=True)
    one = Decoder(tiny_model("llama", device, seed=SEEDS["llama"]), 1, 24, page=16)
    more = {"stop_strings": across, "tokenizer": words, "streamer": text}
    thread = threading.Thread(target=one.generate, args=(prompts[:1], 8), kwargs=more)
    thread.start()
    found = "".join(text)
    thread.join()
    assert found == "".join(texts[0][:4]) and across in found


def test_iterators(llama, device):
    """Of each step the tokens; one that was left open does not disturb, and says so when it goes on."""
    decoder, prompts, free = llama(device)
    left = decoder.stream(prompts, 8)
    for step in range(2):
        assert torch.equal(next(left), free[:, 12 + step].cpu())
    assert torch.equal(decoder.generate(prompts, 2), free[:, :14])
    lengths = decoder.cache.lengths.tolist()
    with pytest.raises(RuntimeError, match="has been used for something else: this stream is over"):
        list(left)
    assert decoder.cache.lengths.tolist() == lengths
    left = decoder.stream(prompts, 8)
    next(left)
    left.close()
    assert torch.equal(decoder.generate(prompts, 2), free[:, :14])
    with pytest.raises(ValueError, match="streamer goes with generate"):
        decoder.stream(prompts, 8, streamer=Recorder())
    with pytest.raises(ValueError, match="max_new_tokens must be 1"):  # at once, not at the first step
        decoder.stream(prompts, 0)


# ---- drawn tokens ----


def test_drawn_tokens(llama, device, monkeypatch):
    """Each step's are the sampler's, of its logits, at the place that is said of the seed."""
    decoder, prompts, free = llama(device)
    monkeypatch.setattr(decoder, "ahead", 0)
    words = {"temperature": 2.5, "top_k": 20, "top_p": 0.9, "seed": 17}
    found = []
    for step, tokens in enumerate(decoder.stream(prompts, 3, **words)):
        found.append(tokens)
        again = ops.sample(decoder.logits, 2.5, 20, 0.9, seed=17, offset=step << 32)
        assert tokens.tolist() == again.tolist()
    drawn = torch.stack(found, 1)
    monkeypatch.undo()
    tokens = decoder.generate(prompts, 3, **words)
    assert torch.equal(tokens[:, 12:].cpu(), drawn) and not torch.equal(tokens, free[:, :15])
    assert not torch.equal(decoder.generate(prompts, 3, **{**words, "seed": 18}), tokens)
    for greedy in ({"temperature": 0}, {"temperature": 3.0, "top_k": 1}, {"top_p": 1e-6, "do_sample": True}):
        assert torch.equal(decoder.generate(prompts, 2, **greedy), free[:, :14])
    ended = decoder.generate(prompts, 3, **words, eos_token_id=drawn[1, 1].item())
    assert ended[1, 14:].tolist() == [0] * (ended.shape[1] - 14) and torch.equal(ended[1, :14], tokens[1, :14])


def test_rows_do_not_depend_on_others(device):
    """A row's draws are the same in a batch of other rows, other lengths, another size."""
    model, prompts = tiny_model(device=device, seed=2), tokens_of(5, 9, 3)
    words = {"temperature": 1.5, "seed": 4}
    decoder = Decoder(model, 3, 16, page=16)
    expected = decoder.generate(prompts, 4, **words)[:, 9:]
    others = tokens_of(9, 9, seed=5)
    tokens = decoder.generate([others[0], prompts[1], others[1]], 4, **words)
    assert torch.equal(tokens[1, 9:], expected[1]) and not torch.equal(tokens[0, 9:], expected[0])
    for few in (1, 2):
        decoder.serve(few, 16, page=16)
        assert torch.equal(decoder.generate(prompts[:few], 4, **words)[:, -4:], expected[:few])


def test_seeds_and_defaults(llama, device):
    decoder, prompts, free = llama(device)

    def drawn(seed):
        torch.manual_seed(seed)
        return decoder.generate(prompts, 2, do_sample=True, temperature=3.0)

    assert torch.equal(drawn(1), drawn(1)) and not torch.equal(drawn(1), drawn(2))
    config = decoder.generation_config
    before = config.to_dict()
    try:
        config.temperature, config.top_k, config.top_p, config.max_new_tokens = 3.0, 5, 0.8, 3
        words = {"temperature": 3.0, "top_k": 5, "top_p": 0.8, "seed": 6}
        expected = decoder.generate(prompts, 3, **words)
        assert torch.equal(decoder.generate(prompts, do_sample=True, seed=6), expected)
        assert torch.equal(decoder.generate(prompts, seed=6, top_k=1), free[:, :15])
        assert torch.equal(decoder.generate(prompts), free[:, :15])  # greedy, whatever these say
        config.eos_token_id, config.pad_token_id = free[1, 13].item(), None
        tokens = decoder.generate(prompts)
        assert tokens[1, 14:].tolist() == [config.eos_token_id]
        assert tokens[1, :12].tolist() == [config.eos_token_id] * 8 + prompts[1]
        assert decoder.generate(prompts, pad_token_id=3)[1, 14:].tolist() == [3]
        long = [[5] * 22, [6], [7]]
        for usual in (None, 1000):  # as many as there is room for
            config.max_new_tokens = usual
            assert decoder.generate(long, eos_token_id=(), pad_token_id=1).shape == (3, 22 + 3)
    finally:
        for name in ("temperature", "top_k", "top_p", "max_new_tokens", "eos_token_id", "pad_token_id"):
            setattr(config, name, before.get(name))


# ---- what is refused ----

PROMPTS = [[5, 6], [7], [8, 9, 10]]


@pytest.mark.parametrize(
    "words, error, message", [
        ({"num_beams": 2}, TypeError, "generate takes no argument 'num_beams': known are max_new_tokens, attention"),
        ({"temprature": 0.5}, TypeError, "no argument 'temprature': did you mean temperature?"),
        ({"temperature": -1.0}, ValueError, "temperature must be a finite number from 0, not -1.0"),
        ({"top_p": 0.0}, ValueError, "top_p must be above 0 and at most 1"),
        ({"top_p": 1.5}, ValueError, "top_p must be above 0 and at most 1"),
        ({"top_k": -3}, ValueError, "top_k must be a number of tokens from 1"),
        ({"seed": 0.5}, TypeError, "seed must be an integer, not 0.5"),
        ({"do_sample": 1.5}, TypeError, "do_sample must be True or False"),
        ({"do_sample": False, "top_p": 0.5}, ValueError, "top_p goes with sampling, not with do_sample=False"),
        ({"max_new_tokens": 0}, ValueError, "max_new_tokens must be 1 at least, not 0"),
        ({"max_new_tokens": 2.0}, TypeError, "max_new_tokens must be an integer, not 2.0"),
        ({"max_new_tokens": 23}, ValueError, "the cache holds 24 tokens of a sequence, not 25: max_tokens"),
        ({"ids": [[1] * 25, [1], [1]]}, ValueError, "24 tokens of a sequence, not 25, as the longest prompt has"),
        ({"ids": [[5], [], [6]]}, ValueError, "prompt 1 has no tokens"),
        ({"ids": [[5], [6]]}, ValueError, "ids must have 3 prompts, as the batch of the Decoder, not 2"),
        ({"ids": []}, ValueError, "ids must have 3 prompts, as the batch of the Decoder, not 0"),
        ({"ids": [[5], [6.0], [7]]}, TypeError, "prompt 1 is no list of tokens"),
        ({"ids": [5, 6, 7]}, TypeError, "prompt 0 is no list of tokens"),
        ({"ids": None}, TypeError, "ids must be a tensor of tokens, not NoneType"),
        ({"ids": torch.zeros(3, 0, dtype=torch.int64)}, ValueError, r"the shape \[3, tokens\], not \[3, 0\]"),
        ({"ids": [[5], [VOCABULARY], [6]]}, ValueError, f"from 0 to {VOCABULARY - 1}, as the vocabulary, not 120"),
        ({"ids": torch.full((3, 2), -1)}, ValueError, "from 0 to 119, as the vocabulary, not -1"),
        ({"attention_mask": torch.ones(3, 3)}, TypeError, "attention_mask goes with ids as a tensor"),
        ({"ids": torch.ones(3, 2).long(), "attention_mask": torch.ones(3, 3)}, ValueError, r"of ids, \[3, 2\], not \["),
        ({"ids": torch.ones(3, 2).long(), "attention_mask": torch.ones(3, 2) / 2}, ValueError, "must be of 0"),
        ({"ids": torch.ones(3, 2).long(), "attention_mask": torch.eye(3)[:, :2]}, ValueError, "prompt 2 has no"),
        ({"ids": torch.zeros(3, 2).long()}, ValueError, "prompt 0 has no tokens"),
        ({"eos_token_id": VOCABULARY}, ValueError, r"eos_token_id must be from 0 to 119, .*, not 120: \[\] for none"),
        ({"eos_token_id": -1}, ValueError, r"not -1: \[\] for none"),
        ({"eos_token_id": "</s>"}, TypeError, "eos_token_id must be a token or a list of tokens, not '</s>'"),
        ({"pad_token_id": "<pad>"}, TypeError, "pad_token_id must be a token"),
        ({"stop_strings": "end"}, ValueError, "stop_strings needs tokenizer"),
        ({"stop_strings": ["end", ""]}, TypeError, "stop_strings must be a string or a list of strings, none .* empty"),
        ({"stop_strings": 5}, TypeError, "stop_strings must be a string"),
        ({"streamer": print}, TypeError, "streamer must have put and end, .*, not builtin_function_or_method"),
    ],
)  # fmt: skip
def test_what_is_refused(llama, words, error, message):
    decoder, prompts, free = llama("cpu")
    with pytest.raises(error, match=message):
        decoder.generate(**{"ids": PROMPTS, "max_new_tokens": 2, **words})


def test_without_a_pad_token():
    decoder = Decoder(tiny_model(pad_token_id=None), 2, 16, page=16)
    with pytest.raises(ValueError, match="pad_token_id is needed for prompts of different lengths"):
        decoder.generate([[5, 6], [7]], 2)
    with pytest.raises(ValueError, match="pad_token_id is needed behind rows that end"):
        decoder.generate([[5], [7]], 2, stop_strings="a", tokenizer=tokenizer())
    assert decoder.generate([[5], [7]], 2).shape == (2, 3)
