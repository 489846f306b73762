"""Runs the ckd program: python -m ckd demo. The command convert is of Python."""

from __future__ import annotations

import os
import sys

from . import _binary
from ._errors import CommandError


def main() -> None:
    """Becomes the program, so that signals and the exit code are its own."""
    if sys.argv[1:2] == ["convert"]:
        from . import convert

        convert.main(sys.argv[2:])
        return
    try:
        path = _binary.binary()
        os.execv(path, ["ckd", *sys.argv[1:]])
    except (CommandError, OSError) as error:
        sys.exit(f"ckd: {error}")


if __name__ == "__main__":
    main()
