"""Layers over two processes: gloo and the interpreter, or NCCL where there are two GPUs."""

import os
import pathlib
import subprocess
import sys

import pytest
from conftest import NO_TORCH, torch

if torch is None:
    pytest.skip(NO_TORCH, allow_module_level=True)

from tilusvm import experts, nn, parallel  # noqa: E402

WORKER = pathlib.Path(__file__).parent / "parallel_worker.py"


def torchrun(*script, **variables):
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", *script]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    done = subprocess.run(command, capture_output=True, text=True, timeout=3600, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_two_processes(tmp_path):
    assert "parallel: all is right" in torchrun(WORKER, tmp_path)


@pytest.mark.transformers
def test_plans_of_transformers(tmp_path):
    """tp_plan="auto" of from_pretrained, of plain and of quantized folders; on the CPU, as transformers takes a GPU for
    each process wherever it sees one."""
    pytest.importorskip("transformers", reason="transformers cannot be imported")
    assert "tp_plan: all is right" in torchrun(WORKER.with_name("tp_worker.py"), tmp_path, CUDA_VISIBLE_DEVICES="")


def test_the_example(tmp_path):
    text = (WORKER.parent.parent / "TORCH.md").read_text()
    begin = text.index("# split.py")
    script = tmp_path / "split.py"
    script.write_text(text[begin : text.index("```", begin)])
    said = torchrun(script)
    assert all(f"rank {rank}: 256 hidden units, True" in said for rank in range(2)), said


def test_parts_that_cannot_be():
    layer = nn.Linear(192, 100, group=64)
    for axis, world, message in [
        ("in", 2, "a multiple of 64"), ("in", 5, "in_features must be a multiple"),
        ("out", 3, "out_features must be a multiple"), ("both", 2, "axis"),
    ]:  # fmt: skip
        with pytest.raises(ValueError, match=message):
            parallel.shard(layer, 0, world, axis)
    assert parallel.shard(layer, 0, 1, "in") is layer
    with pytest.raises(ValueError, match="rank must be one of the 2 ranks"):
        parallel.shard(layer, 2, 2, "out")
    with pytest.raises(TypeError, match="quantize it first"):
        parallel.shard(torch.nn.Linear(8, 8), 0, 2, "out")


def test_parts_are_cut_where_they_lie():
    """Whole granules are views of what they were cut from, so that of a mapped file only they are read."""
    layer = nn.Linear(128, 256, group=64)
    part = parallel.shard(layer, 1, 2, "out")
    assert part.packed.data_ptr() == layer.packed[2:].data_ptr() and part.packed.shape[0] == 2


def test_plans():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.up = nn.Linear(128, 128)

    for kind in ("diagonal", "experts"):
        with pytest.raises(ValueError, match="the plan for up must be 'column' or .* not"):
            parallel.parallelize_(Model(), {"*": kind})


def test_shares_of_experts():
    """They are parts of the whole's memory."""
    module = torch.nn.Module()
    module.num_experts, module.gate_up_proj = 4, torch.nn.Parameter(torch.randn(4, 64, 64))
    module.down_proj, module.down_proj_bias = (torch.nn.Parameter(torch.randn(4, 64, *n)) for n in ((32,), ()))
    whole = experts.quantize_mixture(module, {"gate_up_proj": "u4", "down_proj": "u8"}, 32)
    part = parallel.shard_experts(whole, 1, 2)
    assert part.down_proj.packed.data_ptr() == whole.down_proj.packed[2:].data_ptr() and whole.num_experts == 4
    assert torch.equal(part.gate_up_proj.dequantize(), whole.gate_up_proj.dequantize()[2:])
    assert torch.equal(part.down_proj_bias, whole.down_proj_bias[2:])
    with pytest.raises(ValueError, match="the experts, 4, must be a multiple of the ranks, 3"):
        parallel.shard_experts(whole, 0, 3)
    with pytest.raises(ValueError, match="rank must be one of the 2 ranks"):
        parallel.shard_experts(whole, 2, 2)
    with pytest.raises(TypeError, match="quantize it first"):
        parallel.shard_experts(module, 0, 2)
