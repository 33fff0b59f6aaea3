"""The versions of transformers that this package is tested with; pyproject.toml's extra says the same."""

from __future__ import annotations

import re
import warnings

#: The first and the last that the tests run with, and all between.
TESTED = ("5.4.0", "5.24.0")


def _numbers(version):
    return [int(number) for number in re.findall(r"\d+", version)[:3]]


def check(version: str) -> None:
    """Warns of a version that is older than the first, or of a later minor version than the last."""
    first, last = map(_numbers, TESTED)
    if _numbers(version) < first or _numbers(version)[:2] > last[:2]:
        warnings.warn(
            f"tilusvm.transformers is tested with transformers {TESTED[0]} to {TESTED[1]}, not with {version}: where "
            f"it fails, pip install 'transformers>={TESTED[0]},<={TESTED[1]}'",
            stacklevel=3,
        )
