"""Finds the ckd program: that of the wheel, or another that the caller names."""

from __future__ import annotations

import os
import pathlib
import shutil

from ._errors import CommandError


def binary() -> str:
    """Returns the path of the program: $CKD_BINARY, else the wheel's, else the one on the PATH."""
    named = os.environ.get("CKD_BINARY")
    if named:
        return named
    own = pathlib.Path(__file__).with_name("program")
    if own.exists():
        return str(own)
    found = _on_path()
    if found is None:
        raise CommandError("no ckd program: this package came without one; put ckd on the PATH, or its path in CKD_BINARY")
    return found


def _on_path() -> str | None:
    """Returns the ckd on the PATH that is a program of its own, not the script of a Python package."""
    for folder in os.get_exec_path():
        found = shutil.which("ckd", path=folder)
        if found is None:
            continue
        with open(found, "rb") as file:
            if file.read(2) != b"#!":
                return found
    return None
