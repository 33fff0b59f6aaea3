"""python/README.md is a session that runs, and names what there is."""

import doctest
import pathlib
import subprocess
import sys

import tilusvm

README = pathlib.Path(__file__).parent.parent / "README.md"


def test_the_tutorial():
    result = doctest.testfile(
        str(README), module_relative=False, optionflags=doctest.IGNORE_EXCEPTION_DETAIL | doctest.NORMALIZE_WHITESPACE
    )
    assert result.attempted > 20 and result.failed == 0


def test_info():
    output = subprocess.run([sys.executable, "-m", "tilusvm", "info"], capture_output=True, text=True, check=True).stdout
    assert output.startswith("tilusvm") and tilusvm.__version__ in output
    for word in ("interpreter", "GPU", "code", "cache", "programs", "matmul_lowbit_u4"):
        assert word in output
