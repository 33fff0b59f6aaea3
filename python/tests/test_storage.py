"""Models in .safetensors files: round trips, shards, mappings, and files that are damaged."""

import json
import struct

import pytest
from conftest import NO_TORCH, torch

if torch is None:
    pytest.skip(NO_TORCH, allow_module_level=True)

from torch_kit import DEVICES  # noqa: E402

from tilusvm import UnsupportedError, nn, quantize, storage  # noqa: E402


class Model(torch.nn.Module):
    """Two layers, a weight that two names share, a buffer, odd sizes."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(11, 64)
        self.up = torch.nn.Linear(64, 100)
        self.norm = torch.nn.LayerNorm(100)
        self.down = torch.nn.Linear(100, 64, bias=False)
        self.head = torch.nn.Linear(64, 11, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("count", torch.tensor([1, 2, 3]))

    def forward(self, ids):
        return self.head(self.down(self.norm(self.up(self.embed(ids)))))


def quantized(seed=0):
    torch.manual_seed(seed)
    return quantize.quantize_(Model().half(), {"up": "u3", "down": "f6_e3m2"}, 32, progress=False)


IDS = torch.tensor([[1, 5, 10]])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("most", [1 << 30, 3000])
def test_round_trip(tmp_path, most, device):
    model = quantized()
    storage.save(model.to(device), tmp_path, max_shard_bytes=most)
    files = sorted(p.name for p in tmp_path.iterdir())
    assert files == ["model.safetensors"] if most > 3000 else len(files) > 2
    for other in (Model().half(), quantized(1), Model().to("meta")):
        storage.load(other, tmp_path, device=device)
        assert other.up.type == "u3" and other.down.group == 32
        assert torch.equal(other(IDS.to(device)), model(IDS.to(device)))
        assert other.head.weight is other.embed.weight
        assert torch.equal(other.count.cpu(), torch.tensor([1, 2, 3]))
        assert not any(p.requires_grad for p in other.parameters())


def test_tensors_are_the_mapping(tmp_path):
    storage.save(quantized(), tmp_path)
    model = storage.load(Model().to("meta"), tmp_path)
    maps = [line.split() for line in open("/proc/self/maps") if str(tmp_path / "model.safetensors") in line]
    ranges = [[int(x, 16) for x in m[0].split("-")] for m in maps]
    for layer in (model.up, model.down):
        for tensor in (layer.packed, layer.scales):
            assert tensor.data_ptr() % 16 == 0
            assert any(low <= tensor.data_ptr() < high for low, high in ranges)
    model.up.scales.zero_()  # private: the file stays
    assert torch.equal(storage.load(Model().to("meta"), tmp_path)(IDS), quantized()(IDS))


def test_others_can_read_it(tmp_path):
    reader = pytest.importorskip("safetensors.torch")
    model = quantized()
    storage.save(model, tmp_path, max_shard_bytes=3000)
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    theirs = {}
    for name in set(index["weight_map"].values()):
        theirs |= reader.load_file(tmp_path / name)
    ours = model.state_dict()
    assert set(theirs) == set(index["weight_map"]) == set(ours) - {"head.weight"} | ({"head.weight"} & set(theirs))
    assert all(torch.equal(theirs[n], ours[n]) for n in theirs)
    assert index["metadata"]["total_size"] == sum(t.numel() * t.element_size() for t in theirs.values())


def test_files_of_others(tmp_path):
    writer = pytest.importorskip("safetensors.torch")
    model = Model()
    tensors = {n: t.clone() for n, t in model.state_dict().items()}
    writer.save_file(tensors, tmp_path / "model.safetensors")
    other = storage.load(Model(), tmp_path)
    assert torch.equal(other(IDS), model(IDS))


@pytest.mark.parametrize("last", ["qweight", "W_q", "trellis", "weight:_data"])
def test_layers_that_others_quantized(tmp_path, last):
    writer = pytest.importorskip("safetensors.torch")
    tensors = {n: t.clone() for n, t in Model().state_dict().items() if n != "up.weight"}
    tensors[f"up.{last}"] = torch.zeros(8, 8, dtype=torch.int32)
    writer.save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(UnsupportedError, match=f"import it with tvm-pack --from=auto {tmp_path} -o FOLDER"):
        storage.load(Model(), tmp_path)


def test_a_layer_alone(tmp_path):
    layer = quantized().up
    storage.save(layer, tmp_path)
    x = torch.randn(2, 64).half()
    other = storage.load(nn.Linear(64, 100, type="u8", group=128), tmp_path)
    assert torch.equal(other(x), layer(x)) and other.type == "u3"


def test_what_does_not_fit(tmp_path):
    storage.save(quantized(), tmp_path)
    bigger = Model()
    bigger.extra = torch.nn.Linear(2, 2)
    with pytest.raises(KeyError, match="extra.weight"):
        storage.load(bigger, tmp_path)
    storage.load(bigger, tmp_path, strict=False)
    other = Model()
    other.norm = torch.nn.LayerNorm(99)
    with pytest.raises(ValueError, match="norm"):
        storage.load(other, tmp_path)
    with pytest.raises(FileNotFoundError):
        storage.load(Model(), tmp_path / "nowhere")


def test_buffers_that_no_file_has(tmp_path):
    class Scaled(torch.nn.Linear):
        def __init__(self):
            super().__init__(2, 2)
            self.register_buffer("factor", torch.ones(2), persistent=False)

    storage.save(Scaled(), tmp_path)
    assert torch.equal(storage.load(Scaled(), tmp_path).factor, torch.ones(2))
    with pytest.raises(KeyError, match="buffers on the meta device that no file has: .'factor'"):
        storage.load(Scaled().to("meta"), tmp_path)
    assert storage.load(Scaled().to("meta"), tmp_path, strict=False).factor.is_meta


@pytest.mark.transformers
@pytest.mark.parametrize("family", ["llama", "gemma3_text"])
def test_models_of_transformers_from_the_meta_device(tmp_path, family):
    """Rotary embedding and the scale of Gemma's embedding are in no file."""
    transformers = pytest.importorskip("transformers", reason="transformers cannot be imported")
    config = transformers.AutoConfig.for_model(
        family, hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=1,
        num_key_value_heads=1, head_dim=64, vocab_size=32, max_position_embeddings=32,
    )  # fmt: skip
    make = transformers.AutoModelForCausalLM.from_config
    model = quantize.quantize_(make(config, dtype=torch.float16).eval(), "u8", 32, progress=False)
    storage.save(model, tmp_path)
    with torch.device("meta"):
        empty = make(config, dtype=torch.float16).eval()
    ids = torch.arange(1, 9)[None]
    assert torch.equal(storage.load(empty, tmp_path)(ids).logits, model(ids).logits)


def entry(dtype="F32", shape=(2,), offsets=(0, 8)):
    return {"x": {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}}


@pytest.mark.parametrize(
    "header",
    [b"", b"not json", b"[]", entry("F99"), entry(shape=(3,)), entry(offsets=(0, 4)), entry(offsets=(-8, 0)),
     entry(offsets=(8, 16)), entry(shape=(-2,)), {"x": {}}, entry(shape=("a",))],
)  # fmt: skip
def test_damaged_files(tmp_path, header):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path = tmp_path / "model.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(8))
    with pytest.raises(ValueError, match="not a safetensors file"):
        storage.load(torch.nn.Linear(1, 2), tmp_path)
    path.write_bytes(b"\xff" * 9)
    with pytest.raises(ValueError, match="not a safetensors file"):
        storage.load(torch.nn.Linear(1, 2), tmp_path)


def test_an_index_stays_in_its_folder(tmp_path):
    index = {"weight_map": {"weight": "../model.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ValueError, match="other folders"):
        storage.load(torch.nn.Linear(1, 2), tmp_path)


def test_nothing_is_left_of_a_save_that_failed(tmp_path):
    model = torch.nn.Module()
    model.register_buffer("x", torch.zeros(4, dtype=torch.complex64))
    with pytest.raises(TypeError, match="complex64"):
        storage.save(model, tmp_path)
    assert not list(tmp_path.iterdir())


def resident(name):
    """VmRSS or VmHWM, the peak since it was last reset, in bytes."""
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(name))


def peak(function):
    """By how many bytes resident memory grew, at its peak, while the function ran."""
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    except OSError as error:
        pytest.skip(f"the peak of resident memory cannot be reset: {error}")
    before = resident("VmRSS")
    function()
    return resident("VmHWM") - before


def test_there_is_no_second_copy(tmp_path):
    """Of 64 MiB of weights: none where they are saved; where they are loaded, and read, the file's pages alone."""
    layer = nn.Linear(8192, 8192, bias=False, type="u8", group=128)
    layer.packed.random_(0, 256)
    model, size = torch.nn.Sequential(layer), layer.packed.numel()
    assert peak(lambda: storage.save(model, tmp_path, max_shard_bytes=size)) < size // 4
    del model, layer
    empty = torch.nn.Sequential(nn.Linear(8192, 8192, bias=False, type="u8", group=128, device="meta"))
    assert peak(lambda: storage.load(empty, tmp_path)) < size // 4  # mapped, not read
    assert size // 2 < peak(lambda: empty[0].packed.max()) < size + size // 4
