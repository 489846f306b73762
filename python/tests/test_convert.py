"""Reads files as their own programs write them. data/kserve.* are what the logger of KServe v0.20.0 wrote."""

import base64
import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from ckd import convert

DATA = pathlib.Path(__file__).parent / "data"
IDS = ["0009174a-24a8-4603-b098-09c8799950e9", "90bdf848-647d-4028-8394-155d2df58f19"]
PASSES = np.array([[[1, 0], [0.5, 0.5], [0.5, 0.5]], [[0.75, 0.25], [0.25, 0.75], [0.25, 0.75]], [[0, 1], [0.125, 0.875], [0.125, 0.875]]])


def read(*files, **options):
    return convert.convert([pathlib.Path(file) for file in files], **options)


def write(folder, name, content):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def event(identity, body, kind="response"):
    """Returns an event of the blob logger's JSON."""
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    return {"id": identity, "reqType": f"org.kubeflow.serving.inference.{kind}", "bytes": base64.b64encode(body).decode()}


def tensor(array, datatype="FP32", name="passes", **parameters):
    array = np.array(array)
    return {"name": name, "datatype": datatype, "shape": list(array.shape), "data": array.tolist(), "parameters": parameters}


@pytest.mark.parametrize("form", ["json", "csv", "parquet"])
def test_logs_of_kserve_in_a_blob_store(form):
    if form == "parquet":
        pytest.importorskip("pyarrow")
    log = DATA / f"kserve.{form}"
    np.testing.assert_array_equal(read(log), PASSES)
    assert read(log, name="label").tolist() == ["sick", "well", "naïve"]
    assert read(log, name="id").tolist() == [IDS[0], IDS[0], IDS[1]]


def test_log_of_kserve_at_a_sink(tmp_path):
    """Each pass is a response of its own, and events are requests with headers Ce-*."""
    log = DATA / "kserve.http"
    np.testing.assert_array_equal(read(log, name="probabilities"), PASSES)
    assert read(log, name="label").tolist() == ["sick", "well", "well"]
    # The same as simple sinks keep it: a line of JSON for each request, in one file or in several.
    messages = [part.split(b"\r\n\r\n") for part in log.read_bytes().split(b"POST / HTTP/1.1\r\n")[1:]]
    lines = []
    for head, body in messages:
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        lines += [
            {"headers": headers, "body": base64.b64encode(body).decode()},
            {"headers": {key: [value] for key, value in headers.items()}, "body": json.loads(body)},
            {"type": headers["Ce-Type"], "id": headers["Ce-Id"], "data": json.loads(body)},
        ]
    for form in range(3):
        folder = tmp_path / str(form)
        folder.mkdir()
        for number, line in enumerate(lines[form::3]):
            write(folder, f"{number}.json", json.dumps(line))
        together = write(tmp_path, f"{form}.jsonl", "\n".join(map(json.dumps, lines[form::3])))
        for log in (folder, together):
            np.testing.assert_array_equal(read(log, name="probabilities"), PASSES)


def test_bodies(tmp_path):
    """Binary data stands after the JSON; layouts are those of the tensor, else of --layout."""

    def passes(body, **options):
        return read(write(tmp_path, "log.json", json.dumps(event("a", body))), **options)

    small = PASSES.astype("f4")
    head = json.dumps({"outputs": [
        {"name": "ö", "datatype": "INT8", "shape": [2], "parameters": {"binary_data_size": 2}},
        {"name": "passes", "datatype": "FP16", "shape": [3, 3, 2], "parameters": {"binary_data_size": 36}},
        {"name": "wide", "datatype": "BF16", "shape": [3, 3, 2], "parameters": {"binary_data_size": 36}},
    ]}, ensure_ascii=False)  # fmt: skip
    body = head.encode() + b"\x7b\x7d" + small.astype("<f2").tobytes() + (small.view("<u4") >> 16).astype("<u2").tobytes()
    np.testing.assert_array_equal(passes(body), PASSES)
    np.testing.assert_array_equal(passes(body, name="wide"), PASSES)
    inputs_first = PASSES.transpose(1, 0, 2)
    for body, options in (
        ({"outputs": [tensor(inputs_first, layout="NSK")]}, {}),
        ({"outputs": [tensor(inputs_first)]}, {"layout": "nsk"}),
        ({"outputs": [tensor(PASSES, layout="SNK")]}, {"layout": "nsk"}),
        ({"predictions": PASSES.tolist()}, {}),
    ):
        np.testing.assert_array_equal(passes(body, **options), PASSES)


@pytest.mark.parametrize(
    ("events", "says"),
    [
        ([event("a", {"outputs": [tensor(PASSES)]}), event("a", {"outputs": [tensor(PASSES)]})], "event 'a': 2 times tensor 'passes'"),
        ([event("a", {"outputs": [tensor(PASSES[:1])]})], "is one pass as .* --layout nsk"),
        ([event("a", {"outputs": [tensor(PASSES)]}), event("b", {"outputs": [tensor(PASSES[:2])]})], "event 'b' has 2 passes .* --layout nsk"),
        ([event("a", {"outputs": [tensor(PASSES[0])]}), event("a", {"outputs": [tensor(PASSES[1][:2])]})], r"has the shapes \[\(2, 2\), \(3, 2\)\]"),
        ([event("a", {"outputs": [tensor(PASSES, name="x"), tensor(PASSES, name="y")]})], "event 'a': 2 tensors, expected --array with one of: x, y"),
        ([event("a", b"<html>")], "event 'a': the body is not of the Open Inference Protocol"),
        ([event("a", {"outputs": [{**tensor(PASSES), "shape": [3, 3, 3]}]})], "event 'a'.* reshape"),
        ([event("a", {"outputs": [tensor([[[0.5]]], "INT64")]})], "values that do not fit"),
        ([event("a", {"predictions": [[1, 2], [3]]})], "event 'a'"),
        ([{**event("a", {}), "bytes": "{}"}], "is not base64"),
        ([{"instances": [1]}], "a record with instances, expected one of KServe"),
        ([{"type": "org.example.heartbeat", "id": "1", "data": {}}], "no request and no response"),
    ],
)
def test_logs_that_are_refused(tmp_path, events, says):
    with pytest.raises(convert.Refused, match=says):
        read(write(tmp_path, "log.json", json.dumps(events)))


def test_torch(tmp_path):
    torch = pytest.importorskip("torch")
    passes, path = torch.tensor(PASSES, dtype=torch.float32, requires_grad=True), tmp_path / "run.pt"
    for saved, options in (
        (passes, {}),
        (passes.bfloat16(), {}),
        ({"passes": passes, "labels": torch.tensor([1, 0, 1])}, {}),
        (list(passes.detach()), {}),  # one tensor of each pass
        ({"p": passes.transpose(0, 1), "labels": passes}, {"name": "p", "layout": "nsk"}),
    ):
        torch.save(saved, path)
        np.testing.assert_array_equal(read(path, **options), PASSES)
    torch.save(passes, path, _use_new_zipfile_serialization=False)
    np.testing.assert_array_equal(read(path), PASSES)
    for saved, says in (
        ({"a": passes, "b": passes}, "--array with one of: a, b"),
        (torch.nn.Linear(1, 1), "save a tensor"),
        ([passes, passes[:1]], "several shapes"),
        ({"passes": 3}, "int, expected a tensor"),
    ):
        torch.save(saved, path)
        with pytest.raises(convert.Refused, match=says):
            read(path)


def test_safetensors(tmp_path):
    library = pytest.importorskip("safetensors.numpy")
    path = tmp_path / "run.safetensors"
    library.save_file({"passes": PASSES.astype("f4"), "labels": np.array([1, 0, 1])}, path)
    np.testing.assert_array_equal(read(path), PASSES)
    assert read(path, name="labels").tolist() == [1, 0, 1]


def test_parquet(tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "run.parquet"
    rows = PASSES.transpose(1, 0, 2).tolist()
    names = ["sick", "well", "well"]
    columns = {"passes": rows, "label": names, "kind": arrow.array(names).dictionary_encode(), "ragged": [[1], [1, 2], []], "gap": [1, None, 2]}
    for codec in ("snappy", "lz4", "zstd"):
        parquet.write_table(arrow.table(columns), path, compression=codec, row_group_size=2)
        np.testing.assert_array_equal(read(path), PASSES)
        assert read(path, name="label").tolist() == read(path, name="kind").tolist() == names
    for name, says in (("ragged", "all of one length"), ("gap", "1 missing"), ("x", "expected one of: passes")):
        with pytest.raises(convert.Refused, match=says):
            read(path, name=name)


@pytest.mark.parametrize(
    ("text", "options", "want"),
    [
        ("label\n0\n2\n1\n", {}, [0, 2, 1]),
        ("0\n2\n1", {}, [0, 2, 1]),
        ("label\r0\r2.0\r\r", {}, [0, 2]),
        ("\ufeffid;label\r\n7;sick\r\n8; well\r\n;\r\n", {"name": "label"}, ["sick", "well"]),
        ("sep=;\nlabel;x\nsick;1,5\n", {"name": "label"}, ["sick"]),
        ("label,note\n\"a,b\",\"two\nlines\"\nc,\n", {"name": "label"}, ["a,b", "c"]),
        ("label,id\n1\n", {"name": "label"}, [1]),
        ("label\tid\nkränk\t1\n".encode("utf-16"), {"name": "label"}, ["kränk"]),
    ],
)
def test_labels_in_csv(tmp_path, text, options, want):
    assert read(write(tmp_path, "labels.csv", text), **options).tolist() == want


@pytest.mark.parametrize(
    ("text", "name", "says"),
    [
        ("", None, "no rows"),
        ("label\n", None, "no rows below the header"),
        ("label,id\n1,a\n,b\n", "label", "line 3 has no label"),
        ("a,b\n1,2\n", None, "2 columns, expected --array with one of: a, b"),
        ("label\nkr\xe4nk\n".encode("latin-1"), None, "line 2: byte 0xe4 is not UTF-8"),
        (b"\x93NUMPY", None, "already"),
        (b"\x1f\x8b", None, "gzip"),
        (b"PK\x05\x06" + bytes(18), None, "an archive, but not of PyTorch"),  # a zip file without members
    ],
)
def test_labels_that_are_refused(tmp_path, text, name, says):
    with pytest.raises(convert.Refused, match=says):
        read(write(tmp_path, "labels.csv", text), name=name)


def test_a_missing_library_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    monkeypatch.setitem(sys.modules, "safetensors", None)
    header = b'{"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}'
    for name, content in (("pyarrow", b"PAR1...."), ("safetensors", len(header).to_bytes(8, "little") + header)):
        with pytest.raises(convert.Refused, match=f"pip install {name}"):
            read(write(tmp_path, "run", content))


def test_command(tmp_path):
    """python -m ckd convert is of the package itself, and needs no program."""
    out = tmp_path / "passes.npy"

    def run(*arguments):
        return subprocess.run([sys.executable, "-m", "ckd", "convert", *map(str, arguments)], capture_output=True, text=True, check=False)

    done = run(DATA / "kserve.json", "--out", out)
    assert done.returncode == 0 and "3 passes of 3 inputs over 2 classes" in done.stderr, done
    np.testing.assert_array_equal(np.load(out), PASSES)
    refused = run(DATA / "kserve.json", "--array", "pasess", "--out", out)
    assert refused.returncode == 1 and "no tensor 'pasess', expected one of: passes, label" in refused.stderr, refused
    assert run(DATA / "kserve.json", "--out", "x").returncode == 2
