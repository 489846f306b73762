"""Reports are those of the program."""

import json
import pickle
import re
import subprocess
import sys
import tempfile
import types

import numpy as np
import pytest
from conftest import RECORDINGS

import ckd
from ckd import _binary

SETS = {"classes": ["normal", "suspect", "pathologic"], "critical": ["suspect", "pathologic"]}


@pytest.fixture(scope="module")
def recording():
    return np.load(RECORDINGS / "ctg-mcdropout.passes.npy"), np.load(RECORDINGS / "ctg-mcdropout.labels.npy")


def without_files(report):
    return {name: value for name, value in report.items() if name not in ("source", "passes_file", "labels_file")}


def test_evaluate(recording):
    report = ckd.evaluate(*recording, bootstrap=2, **SETS)
    command = [_binary.binary(), "evaluate", "--passes", RECORDINGS / "ctg-mcdropout.passes.npy", "--bootstrap", "2",
               "--labels", RECORDINGS / "ctg-mcdropout.labels.npy", "--format", "json",
               "--classes", "normal,suspect,pathologic", "--critical", "suspect,pathologic"]  # fmt: skip
    want = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    assert without_files(report) == without_files(want)
    assert report["summary"]["inputs"] == 2126 and "summary" in report and len(report) == len(want)
    page = report.html()
    assert page.lstrip().startswith("<!") and "2126" in page
    again = pickle.loads(pickle.dumps(report))
    assert again.to_dict() == report.to_dict() and again.html() == page
    assert report._repr_html_().startswith("<iframe") and "<table" not in report._repr_html_()


def test_evaluate_takes_names_layouts_and_paths(recording):
    passes, labels = recording
    report = ckd.evaluate(passes, labels, bootstrap=0, **SETS)
    named = np.array(SETS["classes"])[labels]
    other = ckd.evaluate(passes.transpose(1, 0, 2), named, layout="nsk", bootstrap=0, **SETS)
    paths = ckd.evaluate(RECORDINGS / "ctg-mcdropout.passes.npy", labels.tolist(), bootstrap=0, **SETS)
    assert without_files(report) == without_files(other) == without_files(paths)


def test_calibrate_then_serve(recording, tmp_path):
    passes, labels = recording
    calibrated = ckd.calibrate(passes, labels, coverage=0.8, name="fetal-health", **SETS)
    assert calibrated["objective"] == "coverage 0.8" and calibrated["chosen"]["primary"]["threshold"] > 0
    screen = str(calibrated)
    found = re.search(r"misses (\d+) of (\d+) critical inputs.*without review (\d+)", screen, re.DOTALL)
    gain = calibrated["gain"]
    assert found and [*map(int, found.groups())] == [gain["missed"], 471, gain["missed_without_review"]], screen
    # What the command says of other rules is said here too, with arguments in place of flags.
    assert "What this rests on" in screen and "critical_calls acted-on" in screen and "unreviewed" in screen
    assert "--" not in screen and tempfile.gettempdir() not in screen and "ckd serve" not in screen
    assert str(pickle.loads(pickle.dumps(calibrated))) == screen
    page = calibrated._repr_html_()
    assert "no review" in page and "fetal-health" in page
    with ckd.Daemon(calibrated.write(tmp_path / "policy.yaml")) as daemon, daemon.client() as client:
        results = client.decompose("fetal-health", passes)
    retained = np.mean([r.retained for r in results])
    assert 0.7 < retained < 0.9, retained


def test_what_does_not_certify(recording, tmp_path):
    passes, labels = recording
    with pytest.raises(ckd.NotCertifiedError) as raised:
        ckd.calibrate(passes[:, :200], labels[:200], max_critical_miss={"pathologic": 0.0001}, **SETS)
    assert raised.value.report["chosen"] is None and raised.value.report.policy == ""
    # It says what was asked, and what was reached.
    assert "max_critical_miss pathologic=0.0001" in str(raised.value) and "misses 0 of" in str(raised.value), raised.value
    assert str(raised.value.report).startswith("No policy") and "What to do next" in str(raised.value.report)
    again = pickle.loads(pickle.dumps(raised.value))
    assert str(again) == str(raised.value) and dict(again.report) == dict(raised.value.report)
    with pytest.raises(ValueError, match="no policy to write"):
        raised.value.report.write(tmp_path / "policy.yaml")


def test_what_gains_nothing(recording):
    """The reason is the program's, and nothing is said of what would certify."""
    passes = recording[0][:, :200]
    right = passes.mean(axis=0).argmax(axis=1)  # a model that is always right misses nothing
    with pytest.raises(ckd.NotCertifiedError) as raised:
        ckd.calibrate(passes, right, coverage=0.8, **SETS)
    unsupported = raised.value.report["unsupported"]
    assert unsupported and unsupported.rstrip(".") in str(raised.value) and "certify" not in str(raised.value)
    assert "cannot support a policy" in " ".join(str(raised.value.report).split())


def test_faults_are_the_programs(recording):
    passes, labels = recording
    for settings, words in (
        ({"coverage": 2}, "coverage"),
        ({"coverage": 0.8, "critical": ["nobody"]}, "nobody"),
        ({"covrage": 0.8}, "unknown argument covrage"),
        ({"critical": None, "coverage": 0.8}, "expected critical with"),
        ({}, "coverage, reviews_per_1000, cost_ratio"),
        ({"coverage": 0.8, "critical": [1, 2]}, "give names: suspect, pathologic"),
    ):
        with pytest.raises(ckd.CommandError) as raised:
            ckd.calibrate(passes, labels, **{**SETS, **settings})
        assert words in str(raised.value) and "--" not in str(raised.value) and "\n" not in str(raised.value)
    with pytest.raises(ckd.CommandError, match="^labels: 5 labels, expected 2126: one for each input of passes"):
        ckd.evaluate(passes, labels[:5], **SETS)
    spoilt = passes.copy()
    spoilt[3, 5] = 2
    with pytest.raises(ckd.CommandError, match="^passes: input 5: pass 3"):  # no temporary file is named
        ckd.calibrate(spoilt, labels, coverage=0.8, **SETS)
    with pytest.raises(ckd.CommandError, match="layout='nsk'"):
        ckd.evaluate(passes.transpose(1, 0, 2), labels, **SETS)
    for raw in (np.array([1, 3, 7])[labels], labels + 1):
        with pytest.raises(ckd.CommandError, match=r"expected positions on the last axis, 0 to 2: np\.unique"):
            ckd.evaluate(passes, raw, critical=[1, 2])
    with pytest.raises(TypeError, match="passes: found"):
        ckd.calibrate(object(), labels, coverage=0.8)


@pytest.mark.parametrize("run", [ckd.evaluate, ckd.calibrate])
@pytest.mark.parametrize("order", [(1, 2, 0), (0, 2, 1), (2, 1, 0), (2, 0, 1)])
def test_classes_on_another_axis(recording, run, order):
    """The transpose that the message names gives the recording again."""
    passes, labels = recording
    moved = passes.transpose(order)
    settings = {"coverage": 0.8, **SETS}
    with pytest.raises(ckd.CommandError, match="sum to 1 along axis") as raised:
        run(moved, labels, **settings)
    back = re.search(r"passes\.transpose\((\d), (\d), (\d)\)", str(raised.value))
    assert np.array_equal(moved.transpose([int(axis) for axis in back.groups()]), passes)


def test_to_frame(recording, monkeypatch):
    report = ckd.evaluate(*recording, bootstrap=0, **SETS)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="to_frame needs pandas"):
        report.to_frame()
    monkeypatch.setitem(sys.modules, "pandas", types.SimpleNamespace(DataFrame=list))
    rows = report.to_frame()
    assert len(rows) == len(report["policies"]) and rows[0]["name"] == report["policies"][0]["name"]
    (summary,) = report.to_frame("summary")
    assert summary["without_deferral.per_1000.missed"] == report["summary"]["without_deferral"]["per_1000"]["missed"]
