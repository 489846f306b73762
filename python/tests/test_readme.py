"""Every Python example of the page of the package runs, in order, and prints what the page shows."""

import contextlib
import io
import re

import pytest
from conftest import ROOT


def test_examples(monkeypatch):
    pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    monkeypatch.chdir(ROOT)
    text = (ROOT / "python/README.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) >= 5
    names, printed = {}, io.StringIO()
    with contextlib.redirect_stdout(printed):
        for block in blocks:
            exec(compile(block, "README.md", "exec"), names)
    shown = re.search(r"(?m)^    <8: .*(\n    .+)+", text).group()
    assert re.sub("(?m)^    ", "", shown) in printed.getvalue()
    assert len(names["results"]) == 9 and not any(r.error for r in names["results"])
