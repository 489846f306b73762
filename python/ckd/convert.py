"""Turns files of other programs into .npy, which ckd reads: python -m ckd convert FILE --out FILE.npy.

What a file is follows from its content:

- Parquet: a column. Its rows are the inputs, and each level of lists in it is a further axis, so that
  passes are [inputs, passes, classes].
- safetensors: a tensor. bfloat16 is widened exactly, which needs torch.
- .pt: a tensor, one of a dict of tensors, or a list of tensors, one of each pass. It is loaded with
  weights_only=True.
- CSV: a column of labels, by number or name. The first row is the header, unless it is a number.
- Payload logs of KServe (the forms of v0.16.0 to v0.20.0): what its logger sent to a sink, as raw HTTP
  requests, as lines {"headers": {...}, "body": "base64"}, or as events in JSON; or what it wrote to a blob
  store, as JSON, CSV or Parquet. A file, or a folder whose files are read by name.

Bodies of a payload log are of the Open Inference Protocol, version 2, or of version 1, whose tensor is
called predictions. Either one response has all passes of its inputs, in a tensor of three axes in the
order of its parameter layout, else of --layout; or each pass is a response of its own, and the passes of
the same inputs have the same id, for which the caller sets the header Ce-Id. A blob store names its files
by the id: without batches, a pass overwrites the one before. A tensor that no response of an id has is
taken from its request, such as labels. Every array has its inputs in the order in which their ids first
appear; --array id writes the ids. Requests without a response are left out, unless there is no response.

Missing values, lists of several lengths, and pickles that hold more than tensors are refused.
"""

from __future__ import annotations

import argparse
import base64
import binascii
import csv
import importlib
import importlib.util
import io
import json
import pathlib
import re
import sys
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Optional

import numpy as np

Array = Any  # of numpy, whose types differ between its versions

SNK, NSK = "snk", "nsk"  # [passes, inputs, classes] and [inputs, passes, classes]

# Columns that the payload log of KServe always has.
_LOGGED = {"bytes", "reqType", "id"}

# Types of the Open Inference Protocol, as numpy has them. BF16 and BYTES are read apart.
_DATATYPES = {
    "BOOL": "?", "FP16": "<f2", "FP32": "<f4", "FP64": "<f8",
    "INT8": "i1", "INT16": "<i2", "INT32": "<i4", "INT64": "<i8",
    "UINT8": "u1", "UINT16": "<u2", "UINT32": "<u4", "UINT64": "<u8",
}  # fmt: skip

_HTTP = re.compile(rb"(?:[A-Z]+ \S+ HTTP/1\.[01]\r?\n)?((?:[A-Za-z0-9-]+:[^\r\n]*\r?\n)+)\r?\n")


class Refused(Exception):
    """Says what was found in a file, and what was expected."""


class Tensor(NamedTuple):
    """An array of a file, and the order of its axes where the file says it."""

    array: Array
    layout: Optional[str] = None


class Event(NamedTuple):
    """A request or a response of a payload log."""

    id: str
    response: bool
    body: bytes


def main(arguments: Sequence[str]) -> None:
    """Runs the command. A file that is refused ends the program with 1 and a sentence."""
    flags = argparse.ArgumentParser(prog="python -m ckd convert", description=(__doc__ or "").split(":")[0] + ".")
    flags.add_argument(
        "files", nargs="+", metavar="FILE", type=pathlib.Path,
        help="Parquet, safetensors, .pt, CSV with labels, or a payload log of KServe: files of one, or its folder",
    )  # fmt: skip
    flags.add_argument("--out", required=True, metavar="FILE.npy", type=pathlib.Path, help="the file to write")
    flags.add_argument(
        "--array", metavar="NAME", help="the column or tensor, where there are several; of a log also id: the request of each input"
    )
    flags.add_argument(
        "--layout", choices=(SNK, NSK), help="order of the axes in the file: snk (passes, inputs, classes) or nsk (inputs, passes, classes)"
    )
    given = flags.parse_args(arguments)
    if given.out.suffix != ".npy":
        flags.error(f"--out {given.out}: expected a name that ends in .npy")
    try:
        array = convert(given.files, given.array, given.layout)
        np.save(given.out, array, allow_pickle=False)
    except (Refused, OSError) as error:
        sys.exit(f"ckd: {error}")
    doubt = "; if it is the other way round, say --layout of the other order" if array.ndim == 3 and array.shape[0] > array.shape[1] else ""
    print(f"ckd: {given.out}: {_described(array)}{doubt}", file=sys.stderr)


def convert(files: Sequence[pathlib.Path], name: str | None = None, layout: str | None = None) -> Array:
    """Returns the array of a file, or of the files of a log, with passes as [passes, inputs, classes]."""
    paths = [path for given in files for path in (sorted(given.rglob("*")) if given.is_dir() else [given]) if not path.is_dir()]
    events: list[Event] = []
    for path in paths:
        try:
            found = _read(path, name)
            if isinstance(found, Tensor):
                if len(paths) > 1:
                    raise Refused("no payload log of KServe, expected one file alone")
                return _oriented(found.array, layout or found.layout or SNK)
            events.extend(found)
        except Refused as error:
            raise Refused(f"{path}: {error}") from error
    return _from_log(events, name, layout)


def _read(path: pathlib.Path, name: str | None) -> Tensor | list[Event]:
    with path.open("rb") as file:
        head = file.read(9)
    if head.startswith(b"PAR1"):
        return _parquet(path, name)
    if head.startswith(b"PK") and not (zipfile.is_zipfile(path) and any(m.endswith("data.pkl") for m in zipfile.ZipFile(path).namelist())):
        raise Refused("an archive, but not of PyTorch; ckd reads .npz itself, and a spreadsheet is to be saved as CSV UTF-8")
    if head.startswith((b"PK", b"\x80")):
        return Tensor(_torch(path, name))
    if head[8:] == b"{" and head[4:8] == bytes(4):  # the length of a header, and the header
        return Tensor(_safetensors(path, name))
    if head.startswith((b"\x93NUMPY", b"\x1f\x8b")):
        raise Refused("an .npy file already" if head[0] == 0x93 else "packed by gzip: unpack it first")
    data = path.read_bytes()
    if _HTTP.match(data):
        return list(_messages(data))
    text = _text(data)
    if text.lstrip()[:1] in ("{", "["):
        return list(_records(text))
    return _csv(text, name)


def _parquet(path: pathlib.Path, name: str | None) -> Tensor | list[Event]:
    """Reads a column: its rows are the inputs, and each level of lists in it is a further axis."""
    parquet = _library("pyarrow.parquet", "Parquet", "pyarrow")
    arrow, compute = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.compute")
    try:
        file = parquet.ParquetFile(path)
        if _LOGGED <= set(file.schema_arrow.names):
            return [_stored(row) for row in file.read(columns=sorted(_LOGGED)).to_pylist()]
        name = _choose(file.schema_arrow.names, name, "column")
        column = file.read(columns=[name]).column(name).combine_chunks()
        shape = [len(column)]
        while arrow.types.is_list(column.type) or arrow.types.is_large_list(column.type) or arrow.types.is_fixed_size_list(column.type):
            lengths = compute.list_value_length(column).unique().to_pylist()
            if len(lengths) != 1 or lengths[0] is None:
                raise Refused(f"column {name!r} has lists of {lengths[:5]} values, expected all of one length and none missing")
            shape.append(lengths[0])
            column = column.flatten()
        if column.null_count:
            raise Refused(f"column {name!r} has {column.null_count} missing values, expected none")
        return Tensor(_plain(column.to_numpy(zero_copy_only=False)).reshape(shape), NSK)
    except (arrow.ArrowException, ValueError) as error:
        raise Refused(f"the Parquet file cannot be read: {error}") from error


def _safetensors(path: pathlib.Path, name: str | None) -> Array:
    library = _library("safetensors", "safetensors", "safetensors")
    torch = importlib.util.find_spec("torch") is not None  # numpy has no bfloat16
    try:
        with library.safe_open(path, framework="pt" if torch else "numpy") as file:
            tensor = file.get_tensor(_choose(file.keys(), name, "tensor"))
    except (library.SafetensorError, TypeError) as error:
        raise Refused(f"the safetensors file cannot be read: {error}" + ("" if torch else " (bfloat16 needs torch: pip install torch)")) from error
    return _dense(tensor) if torch else tensor


def _torch(path: pathlib.Path, name: str | None) -> Array:
    """Reads a tensor, one of a dict of tensors, or a list of tensors: one of each pass."""
    torch = _library("torch", "a file of PyTorch", "torch")
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # of any class, and its text advises to load programs
        raise Refused(f"torch.load(weights_only=True) cannot read it ({type(error).__name__}); save a tensor, or a dict or list of tensors") from error
    if isinstance(found, dict):
        found = found[_choose([key for key in found if isinstance(key, str)], name, "tensor")]
    if isinstance(found, (list, tuple)) and all(isinstance(t, torch.Tensor) for t in found):
        if len({t.shape for t in found}) != 1:
            raise Refused(f"{len(found)} tensors of several shapes, expected one of each pass, [inputs, classes]")
        found = torch.stack([t.to_dense() if t.is_sparse else t for t in found])
    if not isinstance(found, torch.Tensor):
        raise Refused(f"{type(found).__name__}, expected a tensor, or a dict or list of tensors")
    return _dense(found)


def _dense(tensor: Any) -> Array:
    """Returns a tensor of PyTorch as numpy has it: bfloat16 is widened exactly."""
    tensor = tensor.detach().to_dense() if tensor.is_sparse else tensor.detach()
    return (tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor).numpy()


def _csv(text: str, name: str | None) -> Tensor | list[Event]:
    """Reads a column of labels, or a payload log. A first row that is not all numbers names the columns."""
    csv.field_size_limit(2**31 - 1)  # logged bodies are long
    first, _, rest = text.partition("\n")
    separator = max(",;\t|", key=first.count)
    if first.lower().strip('"').startswith("sep=") and len(first.strip('"')) == 5:  # of Excel
        separator, text = first.strip('"')[4], "\n" + rest
    reader = csv.reader(io.StringIO(text), delimiter=separator)
    rows = [(reader.line_num, row) for row in reader if any(map(str.strip, row))]
    if not rows:
        raise Refused("no rows, expected a column of labels")
    columns = [column.strip() for column in rows[0][1]]
    if _LOGGED <= set(columns):
        return [_stored(dict(zip(columns, row))) for _, row in rows[1:]]
    if all(map(_whole, columns)):
        columns = [""] * len(columns) if len(columns) == 1 else [str(i) for i in range(len(columns))]
    else:
        del rows[0]
    at = columns.index(_choose(columns, name, "column"))
    values = []
    for line, row in rows:
        if len(row) <= at or not row[at].strip():
            raise Refused(f"line {line} has no label, expected one for each input")
        values.append(row[at].strip())
    if not values:
        raise Refused("no rows below the header, expected labels")
    print(f"ckd: read column {columns[at]!r}" if columns[at] else "ckd: read as a column without a header", file=sys.stderr)
    return Tensor(np.array([int(float(v)) for v in values]) if all(map(_whole, values)) else np.array(values))


def _whole(text: str) -> bool:
    return re.fullmatch(r"\s*-?\d+(\.0*)?\s*", text) is not None


def _text(data: bytes) -> str:
    """Returns the text of a file, each of its lines ended by \\n."""
    wide = data.startswith((b"\xff\xfe", b"\xfe\xff"))
    try:
        text = data.decode("utf-16" if wide else "utf-8-sig")
    except UnicodeDecodeError as error:
        line = 1 + data.count(b"\n", 0, error.start)
        raise Refused(f"line {line}: byte 0x{data[error.start]:02x} is not UTF-8, expected text in UTF-8 or UTF-16 (Excel: CSV UTF-8)") from error
    return text.replace("\r\n", "\n").replace("\r", "\n")


# The payload logs of KServe.


def _messages(data: bytes) -> Iterator[Event]:
    """Reads HTTP requests as a sink received them: the attributes of an event are headers Ce-*."""
    while data.strip():
        head = _HTTP.match(data.lstrip())
        if head is None:
            raise Refused(f"{data.lstrip()[:20]!r} between two HTTP messages, expected headers such as Ce-Id, or a Content-Length before")
        data = data.lstrip()[head.end() :]
        headers = {}
        for line in head[1].decode("latin-1").splitlines():
            key, _, value = line.partition(":")
            headers[key.lower()] = value.strip()
        length = int(headers.get("content-length", len(data)))
        yield from _events({"headers": headers, "body": data[:length]})
        data = data[length:]


def _records(text: str) -> Iterator[Event]:
    """Reads a record, a list of them, or a record on each line."""
    try:
        whole = json.loads(text)
        records = whole if isinstance(whole, list) else [whole]
    except ValueError:
        records = []
        for number, line in enumerate(text.split("\n"), 1):
            try:
                records += [json.loads(line)] if line.strip() else []
            except ValueError as error:
                raise Refused(f"line {number}: not JSON: {error}") from error
    for record in records:
        if not isinstance(record, dict):
            raise Refused(f"{type(record).__name__} in JSON, expected records of KServe's payload logger")
        yield from _events(record)


def _events(record: dict[str, Any]) -> Iterator[Event]:
    """Reads a record in any of its forms. It yields nothing for an event that is no request and no response."""
    if _LOGGED <= record.keys():
        yield _stored(record)
        return
    if "headers" in record:
        headers = _headers(record["headers"])
        kind, identity, body = headers.get("ce-type"), headers.get("ce-id"), record.get("body", record.get("data"))
    else:
        kind, identity, body = record.get("type"), record.get("id"), record.get("data", record.get("data_base64"))
    if not kind or not identity or body is None:
        raise Refused(
            f"a record with {', '.join(list(record)[:8]) or 'nothing'}, expected one of KServe: headers Ce-Id and Ce-Type "
            "with the body, or reqType, id and bytes"
        )
    if isinstance(body, str) and not body.lstrip().startswith("{"):
        body = _unpacked(body)
    elif not isinstance(body, bytes):
        body = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    if str(kind).endswith((".request", ".response")):
        yield Event(str(identity), str(kind).endswith(".response"), body)


def _stored(record: dict[str, Any]) -> Event:
    """Reads a record of a blob store: the body is base64, whatever the form of the file."""
    return Event(str(record["id"]), str(record["reqType"]).endswith("response"), _unpacked(record["bytes"] or ""))


def _unpacked(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise Refused(f"{text[:20]!r} is not base64: {error}") from error


def _headers(headers: dict[str, Any]) -> dict[str, str]:
    """Returns headers by their names in lower case; Go keeps a list of values for each."""
    return {name.lower(): (value[0] if isinstance(value, list) else value) for name, value in headers.items()}


def _from_log(events: Iterable[Event], name: str | None, layout: str | None) -> Array:
    """Joins the tensors of all ids, in the order in which the ids first stand in the log."""
    calls: dict[str, dict[bool, list[dict[str, Tensor]]]] = {}
    for event in events:
        try:
            calls.setdefault(event.id, {True: [], False: []})[event.response].append(_tensors(event.body))
        except (Refused, ValueError, KeyError, TypeError, AttributeError) as error:
            raise Refused(f"event {event.id!r}: the body is not of the Open Inference Protocol: {error}") from error
    answered = {key: call for key, call in calls.items() if call[True]} or calls  # a log of requests alone
    if not answered:
        raise Refused("no request and no response, expected a payload log of KServe")
    parts = {key: _joined(key, call, None if name == "id" else name, layout) for key, call in answered.items()}
    first = next(iter(parts.values()))
    for key, part in parts.items():
        if part.ndim != first.ndim or part.ndim == 3 and (part.shape[0], part.shape[2]) != (first.shape[0], first.shape[2]):
            raise Refused(
                f"event {key!r} has {_described(part)}, expected as many passes and classes as the first: {_described(first)} "
                "(if the inputs are the first axis, say --layout nsk)"
            )
    if name == "id":
        return np.array([key for key, part in parts.items() for _ in range(part.shape[1] if part.ndim == 3 else len(part))])
    return np.concatenate(list(parts.values()), axis=1 if first.ndim == 3 else 0)


def _joined(key: str, call: dict[bool, list[dict[str, Tensor]]], name: str | None, layout: str | None) -> Array:
    """Returns the tensor of one id: its passes in one response, or in as many as there are passes."""
    names = dict.fromkeys(tensor for side in (True, False) for one in call[side] for tensor in one)
    name = _choose(list(names), name, "tensor", f"event {key!r}: ")
    found = [one[name] for one in call[True] if name in one] or [one[name] for one in call[False] if name in one]
    shapes = {tensor.array.shape for tensor in found}
    if len(shapes) != 1:
        raise Refused(f"event {key!r}: tensor {name!r} has the shapes {sorted(shapes)}, expected one")
    array = found[0].array
    if array.ndim == 1:
        if any((other.array != array).any() for other in found):
            raise Refused(f"event {key!r}: tensor {name!r} differs between its calls, expected the same labels")
        return array
    if array.ndim == 2:
        return np.stack([tensor.array for tensor in found])
    if array.ndim != 3 or len(found) > 1:
        raise Refused(
            f"event {key!r}: {len(found)} times tensor {name!r} of shape {array.shape}, expected it once as [passes, inputs, classes], "
            "or once for each pass as [inputs, classes]"
        )
    array = _oriented(array, found[0].layout or layout or SNK)
    if len(array) == 1:
        raise Refused(f"event {key!r}: tensor {name!r} is one pass as [passes, inputs, classes], expected several; if the inputs come first, say --layout nsk")
    return array


def _tensors(body: bytes) -> dict[str, Tensor]:
    """Reads a body of the Open Inference Protocol, version 2, with binary data or without, or of version 1."""
    try:
        message, tail = json.loads(body), b""
    except ValueError:
        end = json.JSONDecoder().raw_decode(body.decode("latin-1"))[1]
        message, tail = json.loads(body[:end]), body[end:]
    tensors = {key: Tensor(_plain(np.array(message[key]))) for key in ("predictions", "instances") if key in message}
    for entry in [*message.get("outputs", ()), *message.get("inputs", ())]:
        parameters = {**message.get("parameters", {}), **entry.get("parameters", {})}
        size, kind = parameters.get("binary_data_size"), entry["datatype"]
        if kind not in (*_DATATYPES, "BF16", "BYTES") or size is not None and kind == "BYTES":
            raise Refused(f"tensor {entry['name']!r} of {kind}" + (" in binary data" if size is not None else "") + " is not read")
        if size is None:
            values = np.array(entry["data"], "<f4" if kind == "BF16" else "U" if kind == "BYTES" else _DATATYPES[kind])
            if values.dtype.kind in "iu" and not np.array_equal(values, np.array(entry["data"])):
                raise Refused(f"tensor {entry['name']!r} of {kind} has values that do not fit")
        elif kind == "BF16":
            values = (np.frombuffer(tail[:size], "<u2").astype("<u4") << 16).view("<f4")
        else:
            values = np.frombuffer(tail[:size], _DATATYPES[kind])
        tail = tail[size or 0 :]
        layout = parameters.get("layout")
        tensors[entry["name"]] = Tensor(values.reshape(entry["shape"]), layout.lower() if layout else None)
    return tensors


# Helpers.


def _library(module: str, what: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise Refused(f"{what} is read by {package}, which is missing: pip install {package} ({error})") from error


def _choose(names: Iterable[str], name: str | None, what: str, where: str = "") -> str:
    names = list(names)
    if name is None:
        if len(names) == 1 or "passes" in names:
            return "passes" if "passes" in names else names[0]
        raise Refused(f"{where}{len(names)} {what}s, expected --array with one of: {', '.join(names[:20]) or 'none'}")
    if name not in names:
        raise Refused(f"{where}no {what} {name!r}, expected one of: {', '.join(names[:20]) or 'none'}")
    return name


def _plain(array: Array) -> Array:
    """Returns text as numpy has it, and refuses other objects, such as lists of several lengths."""
    if array.dtype != object:
        return array
    if all(isinstance(value, str) for value in array.flat):
        return array.astype(np.str_)
    raise Refused("values that are no numbers and no text, or lists of several lengths")


def _oriented(array: Array, layout: str) -> Array:
    if layout not in (SNK, NSK):
        raise Refused(f"layout {layout!r}, expected {SNK} or {NSK}")
    return np.ascontiguousarray(array.transpose(1, 0, 2)) if array.ndim == 3 and layout == NSK else array


def _described(array: Array) -> str:
    if array.ndim != 3:
        return f"shape {array.shape} of {array.dtype}"
    return "{} passes of {} inputs over {} classes".format(*array.shape) + f", {array.dtype}"
