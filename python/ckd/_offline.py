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
from ._arrays import check_class_axis, numeric, ordered
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

    A share of nothing is None, never 0. print() shows the command's first screen, without what to do
    next at a terminal.
    """

    def __init__(self, sections: dict[str, Any], main: str, command: list[str], files: _Files) -> None:
        self.sections, self._main, self._command, self._screen = sections, main, command, ""
        self._files: _Files | None = files

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

    def __str__(self) -> str:
        """Returns the first screen of the command. The program computes it at the first call."""
        if not self._screen and self._files is not None:
            self._screen = _spoken(self._said(self._files)).strip()
        return self._screen or repr(self)

    def _said(self, files: _Files) -> str:
        return _run(self._command, files).partition("\nWhat to do next")[0]

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_screen": str(self), "_files": None}  # they are removed with the report that wrote them


class Evaluation(Report):
    """What ckd evaluate says of a labelled recording."""

    def __init__(self, sections: dict[str, Any], command: list[str], files: _Files) -> None:
        super().__init__(sections, "policies", command, files)
        self._page = ""

    def html(self) -> str:
        """Returns the report as a page, with its figures. The program computes it at the first call."""
        if not self._page:
            if self._files is None:
                raise CommandError("the page was not computed before this was pickled or copied, expected html() before")
            self._page = _run([*self._command, "--format", "html"], self._files)
        return self._page

    def _repr_html_(self) -> str:
        page = html.escape(self.html(), quote=True)
        return f'<iframe srcdoc="{page}" style="width:100%;height:40em;border:0"></iframe>'


class Calibration(Report):
    """What ckd calibrate chose, and why. policy is the text of a policy file."""

    def __init__(self, sections: dict[str, Any], command: list[str], files: _Files) -> None:
        super().__init__(sections, "comparison", command, files)

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

    def _said(self, files: _Files) -> str:
        done = _call([*self._command, "--out", files.path("policy.yaml")], files)
        if done.returncode not in (0, _NO_POLICY):
            raise CommandError(_message(done))
        return done.stdout if not self.policy else done.stdout.partition("\nWhat to do next")[0]

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
    the path of an .npy file. labels has the true class of each input, by position on the last axis
    or by name. classes names the last axis in its order: model.classes_ of scikit-learn. settings
    are the flags of ckd evaluate, as in critical=["suspect"], reviews_per_1000=150, or policy=FILE:
    docs/commands.md has them. Raises CommandError that says what is wrong, or TypeError for an
    array that is none.
    """
    _check(passes, labels, settings, ordered_by_labels=False)
    files = _Files()
    command = ["evaluate", *files.flags(passes=passes, labels=labels, **settings)]
    return Evaluation(json.loads(_run([*command, "--format", "json"], files)), command, files)


def calibrate(passes: Any, labels: Any, **settings: Any) -> Calibration:
    """Chooses a policy from labelled passes, as ckd calibrate does.

    passes, labels and classes are as for evaluate; the labels tell which axis of the passes is the
    inputs. settings are the flags of ckd calibrate, with an objective such as coverage=0.8 or
    max_critical_miss=0.05, or max_critical_miss={"pathologic": 0.02} for classes.

    The threshold defers the share asked for of all inputs here. The expected figures are of
    held-out folds, each deferred by a threshold from the others, so that their reviews differ from
    what was asked (226 instead of 200 per 1,000), more so with few inputs. Their interval covers
    what later inputs are expected to need.

    Raises NotCertifiedError where nothing certifies or nothing is gained, or as evaluate does.
    """
    _check(passes, labels, settings, ordered_by_labels=True)
    files = _Files()
    return _calibrated(["calibrate", *files.flags(passes=passes, labels=labels, **settings)], files)


def decompose(passes: Any, **settings: Any) -> list[dict[str, Any]]:
    """Returns what ckd decompose prints for each input: what a daemon would answer, without one."""
    files = _Files()
    done = _call(["decompose", *files.flags(passes=passes, **settings)], files)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    if not answers and done.returncode != 0:
        raise CommandError(_message(done))
    return answers  # those of refused inputs say so; the exit code repeats it


def _calibrated(command: list[str], files: _Files) -> Calibration:
    done = _call([*command, "--format", "json"], files)
    if done.returncode in (0, _NO_POLICY) and done.stdout.lstrip().startswith("{"):
        report = Calibration(json.loads(done.stdout), command, files)
        if done.returncode == 0:
            return report
        reached, would = report._refusal()
        asked = report["objective"].replace("max-critical-", "max_critical_")  # as the argument is spelled
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

    def path(self, name: str) -> str:
        """Returns the path of a file that is removed with the others."""
        return os.path.join(self._folder.name, name)

    def _save(self, name: str, value: Any) -> str:
        path = self.path(name + ".npy")
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


def _check(passes: Any, labels: Any, settings: Mapping[str, Any], ordered_by_labels: bool) -> None:
    """Raises CommandError for arrays that do not fit together, where Python can say more than the program."""
    _check_critical(settings)
    if any(value is None or isinstance(value, (str, os.PathLike)) for value in (passes, labels)):
        return
    array = numeric(passes, "passes")
    if array.ndim != 3 or not hasattr(labels, "__len__"):
        return
    try:
        if settings.get("kind", "probabilities") == "probabilities" and not settings.get("policy"):
            check_class_axis(array, len(labels))
        if not ordered_by_labels and len(labels) in array.shape[:2]:
            ordered(array, settings.get("layout", "snk"), "passes", len(labels), "labels")
    except ValueError as error:
        raise CommandError(str(error)) from None
    _check_labels(labels, array.shape[2])


def _check_critical(settings: Mapping[str, Any]) -> None:
    """Raises CommandError for critical or safe classes by number where classes have names."""
    names = settings.get("classes")
    if names is None or isinstance(names, str):
        return
    names = [str(name) for name in names]
    for argument in ("critical", "safe"):
        given = settings.get(argument)
        if given is None or isinstance(given, str):
            continue
        given = list(given)
        numbers = [k for k in given if isinstance(k, (int, np.integer)) and str(k) not in names and 0 <= k < len(names)]
        if numbers:
            found, meant = ", ".join(map(str, numbers)), ", ".join(names[k] for k in numbers)
            raise CommandError(f"{argument} has the numbers {found}, but the classes have names; give names: {meant}")


def _check_labels(labels: Any, classes: int) -> None:
    """Raises CommandError for labels by number of which each class has one, but not its position."""
    values = np.asarray(labels)
    if values.ndim != 1 or values.dtype.kind not in "iu":
        return
    found = np.unique(values)
    if len(found) == classes and found[-1] >= classes:
        shown = ", ".join(map(str, found[:10])) + (", ..." if classes > 10 else "")
        raise CommandError(
            f"labels are {shown}, expected positions on the last axis, 0 to {classes - 1}:"
            " np.unique(labels, return_inverse=True)[1] gives them where the classes of the passes ascend"
        )


def _message(done: subprocess.CompletedProcess[str]) -> str:
    """Returns what the program said, without the lines on how files were read and on its flags."""
    lines = done.stderr.strip().splitlines()
    said = [line.removeprefix("ckd: ") for line in lines if ": read as " not in line and not line.startswith('Run "ckd ')]
    return _spoken("\n".join(said)) or f"ckd ended with exit code {done.returncode}"


def _spoken(text: str) -> str:
    """Returns a text of the program with arguments of Python in place of its flags."""
    text = text.replace("unknown flag ", "unknown argument ")
    text = re.sub(r"declare kind (\w+)", r'say kind="\1"', text)
    return re.sub(r"(?<!\S)([\"(]?)--([a-z][a-z0-9-]*)", lambda flag: flag[1] + flag[2].replace("-", "_"), text)
