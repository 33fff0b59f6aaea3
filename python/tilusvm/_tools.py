"""The commands tvm-as, tvm-cc, tvm-dis, tvm-pack, tvm-run and tvm-tune, which pip installs: each becomes the program of
its name in bin/."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn


def main() -> NoReturn:
    program = Path(__file__).parent / "bin" / Path(sys.argv[0]).name
    try:
        os.execv(program, sys.argv)
    except OSError as error:
        sys.exit(f"{program}: {error.strerror}")
