"""A progress bar on a terminal."""

from __future__ import annotations

import sys
import time

__all__ = ["Bar"]

_QUIET = 2.0  # seconds: what takes no longer needs no bar


class Bar:
    """Shows on standard error how much is done, where that is a terminal and the work takes more than two seconds."""

    def __init__(self) -> None:
        self._terminal, self._begin, self._shown = sys.stderr.isatty(), time.monotonic(), False

    def __call__(self, done: int, total: int, name: str) -> None:
        if not self._terminal or not self._shown and (done == total or time.monotonic() - self._begin < _QUIET):
            return
        self._shown = done != total
        filled = 30 * done // max(total, 1)
        end = "\n" if done == total else ""
        line = f"\r[{'#' * filled}{'.' * (30 - filled)}] {done}/{total} {name[-40:]:40}"
        print(line, end=end, file=sys.stderr, flush=True)
