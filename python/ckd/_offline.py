"""Calibrates and evaluates with the ckd program, from arrays."""

from __future__ import annotations

import html
import json
import os
import pathlib
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from . import _binary
from ._arrays import numeric, ordered
from ._errors import CommandError

_NO_POLICY = 3  # the exit code of ckd calibrate where nothing certifies or nothing is gained


class NotCertifiedError(CommandError):
    """No policy: nothing certifies what was asked for, or the recording shows no gain. report says why."""

    advice = "ask for less, or calibrate with more labelled inputs"

    def __init__(self, message: str, report: Calibration) -> None:
        super().__init__(message)
        self.report = report

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.message, self.report)


class Report(Mapping[str, Any]):
    """A report of ckd: a mapping of its sections, as docs/json.md has them.

    A share of nothing is None, never 0.
    """

    def __init__(self, sections: dict[str, Any], main: str) -> None:
        self.sections, self._main = sections, main

    def __getitem__(self, section: str) -> Any:
        return self.sections[section]

    def __iter__(self) -> Iterator[str]:
        return iter(self.sections)

    def __len__(self) -> int:
        return len(self.sections)

    def to_dict(self) -> dict[str, Any]:
        """Returns the sections, as the program's JSON has them."""
        return dict(self.sections)

    def to_frame(self, section: str = "") -> Any:
        """Returns a section as a pandas DataFrame: a row for each entry, a column for each figure.

        Without a name it is the section that compares rules. Figures inside figures have names with
        dots. Without pandas, ImportError says so; sections are plain dicts and lists.
        """
        try:
            import pandas
        except ImportError:
            raise ImportError("to_frame needs pandas, which is not installed; report[...] has plain dicts") from None
        return pandas.DataFrame(rows_of(self.sections[section or self._main]))

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {', '.join(self.sections)}>"


class Evaluation(Report):
    """What ckd evaluate says of a labelled recording."""

    def __init__(self, sections: dict[str, Any], command: list[str], files: _Files) -> None:
        super().__init__(sections, "policies")
        self._command, self._page = command, ""
        self._files: _Files | None = files

    def html(self) -> str:
        """Returns the report as a page, with its figures. The program computes it at the first call."""
        if not self._page:
            if self._files is None:
                raise CommandError("the page was not computed before this was pickled or copied, expected html() before")
            self._page = _run([*self._command, "--format", "html"], self._files)
        return self._page

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_files": None}  # they are removed with the report that wrote them

    def _repr_html_(self) -> str:
        page = html.escape(self.html(), quote=True)
        return f'<iframe srcdoc="{page}" style="width:100%;height:40em;border:0"></iframe>'


class Calibration(Report):
    """What ckd calibrate chose, and why. policy is the text of a policy file."""

    def __init__(self, sections: dict[str, Any]) -> None:
        super().__init__(sections, "comparison")

    @property
    def policy(self) -> str:
        """The policy, for ckd serve; empty where nothing certifies or nothing is gained."""
        return str(self.sections.get("policy") or "")

    def write(self, path: str | os.PathLike[str]) -> pathlib.Path:
        """Writes the policy to a file, and returns its path, for ckd.Daemon."""
        if not self.policy:
            raise ValueError(f"there is no policy to write: {self._refusal()[0]}")
        written = pathlib.Path(path)
        written.write_text(self.policy, encoding="utf-8")
        return written

    def __str__(self) -> str:
        """Says in five lines what was chosen, what it does, and what that rests on."""
        s, expected = self.sections, self.sections.get("expected") or {}
        basis = f"{s['inputs']:,} inputs of {s['passes']} passes, {s['critical']:,} of them critical"
        asked = f"{s['objective']}, scope {s['scope']}"
        if not self.policy:
            reached, would = self._refusal()
            why: tuple[str, ...] = (f"No policy: nothing certifies {asked}.", f"Reached: {reached}.", f"Would certify: {would}.")
            if s.get("unsupported"):
                why = (reached, f"Asked for: {asked}.")
            return "\n".join((*why, f"Without review {s['missed']:,} critical inputs are missed.", f"Rests on {basis}."))
        certificate = s.get("certificate") or {}
        missed = f"Critical miss rate {_share(expected, 'critical_miss_rate')}"
        if certificate:
            missed = f"Misses {certificate['misses']:,} of {certificate['cases']:,} critical inputs that chose nothing"
        reviews = f"{1000 * (1 - expected['coverage']):.0f} reviews per 1,000 inputs" if expected else "reviews not stated"
        return "\n".join((
            f"Policy for {asked}: {_rule(s['chosen'])}.",
            f"Coverage {_share(expected, 'coverage')}, {reviews}.",
            f"{missed}; without review {s['missed']:,} of {s['critical']:,} are missed.",
            certificate.get("void") or certificate.get("statement") or "No certificate: the figures are expectations.",
            f"Rests on {basis}; policy hash {s['policy_hash'][:12]}.",
        ))  # fmt: skip

    def _refusal(self) -> tuple[str, str]:
        """Returns why there is no policy, and what would certify."""
        refusal = self.sections.get("refusal") or {}
        return refusal.get("reason") or "not stated", "; ".join(refusal.get("would") or ()) or "nothing that was tried"

    def _repr_html_(self) -> str:
        rows = rows_of(self.sections["comparison"])
        shown = [
            name for name in ("rule", "scope", "coverage", "accuracy", "missed", "critical_miss_rate")
            if any(name in row for row in rows)
        ]  # fmt: skip
        head = "".join(f"<th>{name}</th>" for name in shown)
        body = "".join(f"<tr>{''.join(f'<td>{_cell(row.get(name))}</td>' for name in shown)}</tr>" for row in rows)
        why = "".join(f"<p>{html.escape(sentence)}</p>" for sentence in self.sections["why"] or ())
        return f"{why}<table><tr>{head}</tr>{body}</table><details><summary>policy</summary><pre>{html.escape(self.policy)}</pre></details>"


def evaluate(passes: Any, labels: Any, **settings: Any) -> Evaluation:
    """Says from labelled passes what deferral is worth, as ckd evaluate does.

    passes is an array [passes, inputs, classes], or [inputs, passes, classes] with layout="nsk", or
    the path of an .npy file. labels has the true class of each input, by number or by name. settings
    are the flags of ckd evaluate, as in critical=["suspect"], reviews_per_1000=150, or policy=FILE:
    docs/commands.md has them. Raises CommandError with the program's message.
    """
    _check_order(passes, labels, settings)
    files = _Files()
    command = ["evaluate", *files.flags(passes=passes, labels=labels, **settings)]
    return Evaluation(json.loads(_run([*command, "--format", "json"], files)), command, files)


def calibrate(passes: Any, labels: Any, **settings: Any) -> Calibration:
    """Chooses a policy from labelled passes, as ckd calibrate does.

    passes and labels are as for evaluate; the labels tell which axis of the passes is the inputs.
    settings are the flags of ckd calibrate, with an objective such as coverage=0.8 or
    max_critical_miss=0.05, or max_critical_miss={"pathologic": 0.02} for classes. Raises
    NotCertifiedError where nothing certifies or nothing is gained, or CommandError.
    """
    files = _Files()
    command = ["calibrate", *files.flags(passes=passes, labels=labels, **settings), "--format", "json"]
    return _calibrated(command, files)


def decompose(passes: Any, **settings: Any) -> list[dict[str, Any]]:
    """Returns what ckd decompose prints for each input: what a daemon would answer, without one."""
    files = _Files()
    done = _call(["decompose", *files.flags(passes=passes, **settings)], files)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    if not answers and done.returncode != 0:
        raise CommandError(_message(done))
    return answers  # those of refused inputs say so; the exit code repeats it


def _calibrated(command: list[str], files: _Files) -> Calibration:
    done = _call(command, files)
    if done.returncode in (0, _NO_POLICY) and done.stdout.lstrip().startswith("{"):
        report = Calibration(json.loads(done.stdout))
        if done.returncode == 0:
            return report
        reached, would = report._refusal()
        asked = report["objective"]
        if report.get("unsupported"):
            raise NotCertifiedError(f"asked {asked}: {reached.rstrip('.')}", report)
        raise NotCertifiedError(f"{_message(done)}: asked {asked}; reached: {reached}; would certify: {would}", report)
    raise CommandError(_message(done))


class _Files:
    """Arrays as temporary files, which are removed with the report that may need them again."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="ckd-")

    def flags(self, **settings: Any) -> list[str]:
        """Returns settings as flags. Arrays become files."""
        words: list[str] = []
        escaped_comma = "\\,"
        for name, value in settings.items():
            flag = "--" + name.replace("_", "-")
            if value is None or value is False:
                continue
            if value is True:
                words.append(flag)
            elif isinstance(value, Mapping):
                words += [f"{flag}={key}={number}" for key, number in value.items()]
            elif isinstance(value, (str, os.PathLike)):
                words.append(f"{flag}={os.fspath(value)}")
            elif isinstance(value, (bool, int, float)):
                words.append(f"{flag}={value}")
            elif name in ("classes", "critical", "safe"):
                words.append(f"{flag}={','.join(str(v).replace(',', escaped_comma) for v in value)}")
            else:
                words.append(f"{flag}={self._save(name, value)}")
        return words

    def named(self, text: str) -> str:
        """Returns a text of the program with the caller's arrays in place of their files."""
        return re.sub(re.escape(self._folder.name + os.sep) + r"(\w+)\.npy", r"\1", text)

    def _save(self, name: str, value: Any) -> pathlib.Path:
        path = pathlib.Path(self._folder.name, name + ".npy")
        array = np.asarray(value)
        if array.dtype.kind not in "fiuUS":
            array = numeric(value, name)
        np.save(path, array, allow_pickle=False)
        return path


def rows_of(section: Any) -> list[dict[str, Any]]:
    """Returns a section as rows of figures, with dots in the names of figures inside figures."""
    entries = section if isinstance(section, list) else [section]
    return [_flat(entry) if isinstance(entry, dict) else {"value": entry} for entry in entries]


def _flat(entry: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    row: dict[str, Any] = {}
    for name, value in entry.items():
        row.update(_flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value})
    return row


def _rule(chosen: Mapping[str, Any]) -> str:
    """Returns what a policy compares with what, in words."""
    rules = [(name, chosen.get(name)) for name in ("primary", "fallback", "guard")]
    said = [f"{name} {rule['score']} above {rule['threshold']:.4g}" for name, rule in rules if rule]
    return f"defer by {', '.join(said)} (gate {chosen['gate']})"


def _share(figures: Mapping[str, Any], name: str) -> str:
    """Returns a share in percent, with its interval, or n/a."""
    if figures.get(name) is None:
        return "n/a"
    low, high = figures.get(name + "_interval") or (None, None)
    return f"{figures[name]:.1%}" + ("" if low is None else f" (95%: {low:.1%} to {high:.1%})")


def _cell(value: Any) -> str:
    if value is None:
        return "n/a"
    return f"{value:.4f}" if isinstance(value, float) else html.escape(str(value))


def _run(command: list[str], files: _Files) -> str:
    done = _call(command, files)
    if done.returncode != 0:
        raise CommandError(_message(done))
    return done.stdout


def _call(command: list[str], files: _Files) -> subprocess.CompletedProcess[str]:
    try:
        done = subprocess.run(
            [_binary.binary(), *command], capture_output=True, text=True, encoding="utf-8", stdin=subprocess.DEVNULL
        )
    except OSError as error:
        raise CommandError(f"the ckd program cannot be run: {error}") from None
    done.stdout, done.stderr = files.named(done.stdout), files.named(done.stderr)
    return done


def _check_order(passes: Any, labels: Any, settings: Mapping[str, Any]) -> None:
    """Raises ValueError for passes in memory whose shape fits the labels only in the other order of axes."""
    if isinstance(passes, (str, os.PathLike)) or labels is None or isinstance(labels, (str, os.PathLike)):
        return
    array = numeric(passes, "passes")
    if array.ndim == 3 and hasattr(labels, "__len__") and len(labels) in array.shape[:2]:
        ordered(array, settings.get("layout", "snk"), "passes", len(labels), "labels")


def _message(done: subprocess.CompletedProcess[str]) -> str:
    """Returns what the program said, without the line on how a file was read."""
    lines = [line for line in done.stderr.strip().splitlines() if ": read as " not in line]
    return "\n".join(lines) or f"ckd ended with exit code {done.returncode}"
