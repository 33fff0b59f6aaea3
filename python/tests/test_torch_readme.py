"""python/TORCH.md is a session that runs, and its section on checkpoints one of its own, which needs tvm-pack."""

import doctest
import pathlib

import pytest
from conftest import NO_TORCH, torch

if torch is None:
    pytest.skip(NO_TORCH, allow_module_level=True)

from torch_kit import TOOL  # noqa: E402

TEXT = pathlib.Path(__file__).parent.parent / "TORCH.md"


BEFORE, SECTION, AFTER = TEXT.read_text().partition("## Quantized by others")
FLAGS = doctest.IGNORE_EXCEPTION_DETAIL | doctest.NORMALIZE_WHITESPACE


def run(text, least):
    session = doctest.DocTestParser().get_doctest(text, {}, TEXT.name, str(TEXT), 0)
    result = doctest.DocTestRunner(optionflags=FLAGS).run(session)
    assert result.failed == 0 and result.attempted > least


def test_the_session():
    run(BEFORE, 20)


def test_quantized_by_others(monkeypatch):
    monkeypatch.setenv("PATH", str(TOOL.parent), prepend=":")
    run(SECTION + AFTER, 8)
