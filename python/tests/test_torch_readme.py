"""python/TORCH.md is a session that runs."""

import doctest
import pathlib

import pytest
from conftest import NO_TORCH, torch

if torch is None:
    pytest.skip(NO_TORCH, allow_module_level=True)

TEXT = pathlib.Path(__file__).parent.parent / "TORCH.md"


def test_the_session():
    flags = doctest.IGNORE_EXCEPTION_DETAIL | doctest.NORMALIZE_WHITESPACE
    result = doctest.testfile(str(TEXT), module_relative=False, optionflags=flags)
    assert result.failed == 0 and result.attempted > 20
