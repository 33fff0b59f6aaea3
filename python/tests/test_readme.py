"""python/README.md is a session that runs, and names what there is."""

import doctest
import pathlib
import subprocess
import sys

import numpy
import pytest
from conftest import aligned, readme_lines

import tilusvm

README = pathlib.Path(__file__).parent.parent / "README.md"


def test_the_tutorial():
    result = doctest.testfile(
        str(README), module_relative=False, optionflags=doctest.IGNORE_EXCEPTION_DETAIL | doctest.NORMALIZE_WHITESPACE
    )
    assert result.attempted > 20 and result.failed == 0


def test_info():
    command = [sys.executable, "-m", "tilusvm", "info"]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert output.startswith("tilusvm") and tilusvm.__version__ in output
    for word in ("interpreter", "GPU", "code", "cache", "torch", "tvm-pack", "programs", "matmul_lowbit_u4"):
        assert word in output
    assert "  target     none: launches see no capability" in output
    assert "\nnvJitLink    " in output and "\nptxas        " in output


def test_info_of_a_target():
    command = [sys.executable, "-m", "tilusvm", "info", "--target"]
    output = subprocess.run([*command, "sm_89"], capture_output=True, text=True, check=True).stdout
    rows = {line[:12].strip(): line[13:] for line in output.splitlines()}
    assert rows["target"] == "sm_89" and rows["products"] == "mma.sync" and "mma_f8" in rows["uses"]
    assert "wgmma (mma.sync)" in rows["lacks"] and "tcgen05" in rows["lacks"]
    wrong = subprocess.run([*command, "sm_75"], capture_output=True, text=True)
    assert wrong.returncode == 1 and "unknown target 'sm_75'; known are sm_80" in wrong.stderr
    assert tilusvm.target_report("sm_100f")["cubins run on"] == "10.0, 10.3"
    with pytest.raises(tilusvm.UnsupportedError):
        tilusvm.target_report("")


def test_the_lines_of_the_project(tmp_path, monkeypatch):
    (tmp_path / "axpy.vasm").write_text(readme_lines("; axpy.vasm: y = alpha * x + y"))
    monkeypatch.chdir(tmp_path)
    x, y = aligned(1000, numpy.float32), aligned(1000, numpy.float32, 2)
    x[:] = numpy.arange(1000)
    exec(readme_lines("import tilusvm"), {"x": x, "y": y})
    assert numpy.array_equal(y, 3 * numpy.arange(1000) + 2)
