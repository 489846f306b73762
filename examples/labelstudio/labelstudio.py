"""Sends inputs to review to Label Studio, and what its annotators find back to ckd.

A task has the link to its case, a name that says nothing, and out of sight the id and the sealed receipt.
No other column gets into a task: whoever sees what the model said reads differently.
"""

import argparse
import base64
import csv
import datetime
import hashlib
import hmac
import http.client
import http.server
import json
import pathlib
import sys
import urllib.parse

import ckd

EVENTS, HEADER = ("ANNOTATION_CREATED", "ANNOTATION_UPDATED"), "X-Ckd-Secret"
LATER = ("unsent", "policy_unknown")  # answers to outcomes that the daemon may take later


def read(path):
    """Returns the rows of a CSV file by their lines."""
    with open(path, newline="", encoding="utf-8-sig") as file:
        rows = csv.DictReader(file)
        return {rows.line_num: row for row in rows}


def secret(path):
    """Returns what a file of one secret holds."""
    return pathlib.Path(path).read_text().strip() or sys.exit(f"{path}: empty, expected a secret")


def decoded(receipt):
    """Returns the bytes of a receipt, from base64 of either alphabet."""
    plain = receipt.strip().rstrip("=").replace("-", "+").replace("_", "/")
    return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)


def case_of(receipt):
    """Returns the name of a case for its readers. It tells nothing, and is found again from the receipt alone."""
    return hashlib.sha256(decoded(receipt)).hexdigest()[:12]


def source_of(annotator):
    """Returns the source of an annotator's outcomes: opaque, and the same by the webhook and by an export."""
    number = str(annotator["id"] if isinstance(annotator, dict) else annotator)
    if not number.isdecimal():
        raise ValueError(f"annotator {number}: expected Label Studio's number of the user, as an export in JSON has it")
    return "label-studio-" + number


def to_review(args):
    """Yields id, receipt and priority of each input to review, and whether it was read before."""
    kept = read(args.receipts) if args.receipts else {}
    for path in args.files:
        for line, row in read(path).items():
            again = bool(row.get("wanted"))
            if "wanted" in row:  # of ckd outcomes missing, which names the line of a receipt
                if args.reader and source_of(args.reader) in row["sources"].split():
                    continue
                case, row = row["case"], kept.get(int(row["line"]), {})
                if case != (row.get("id") or row.get("case") or "").strip():
                    sys.exit(f"{path}:{line}: case {case} is not in its line of --receipts, expected the file that ckd outcomes missing read")
            name = (row.get("id") or row.get("case") or "").strip()
            name = name[1:] if name[:1] == "'" and name[1:2] in tuple("=+-@") else name  # as the page escapes formulas
            if not name or not row.get("receipt"):
                sys.exit(f"{path}:{line}: expected an id (or case) and a receipt")
            yield name, row["receipt"].strip(), float(row.get("priority") or 0), again


def tasks(args):
    """Posts a task for each input that was not sent before, or writes the file to import by hand."""
    if "{id}" not in args.case_url:
        sys.exit(f"--case-url {args.case_url}: expected {{id}} in it")
    sent = pathlib.Path(args.sent).read_text().split() if args.sent and pathlib.Path(args.sent).exists() else []
    rows = [(case_of(row[1]), *row) for row in to_review(args)]
    found = {case: (name, receipt, priority) for case, name, receipt, priority, _ in rows if case not in sent}
    again = {case for case, *_, again in rows if again and case in found}
    if 2 * len(again) > len(found):
        sys.exit(f"{len(again)} of {len(found)} inputs were read before, expected at least as many others: readers would know which")
    # The order of the names is random: any other could tell audits from deferrals, or what is read again.
    made, known = [], {"saw_model": True} if args.by_priority else {}
    for case in sorted(found, key=lambda case: (-found[case][2] if args.by_priority else 0, case)):
        name, receipt, _ = found[case]
        url = args.case_url.replace("{id}", urllib.parse.quote(name, safe=""))
        made.append({"data": {"url": url, "case": case}, "meta": {"id": name, "receipt": receipt, **known}})
    if args.csv:
        with open(args.csv, "w", newline="") as file:
            csv.writer(file).writerows([["url", "case"], *(task["data"].values() for task in made)])
    elif made:
        imported(args, made)
    if args.sent:
        with open(args.sent, "a") as file:
            file.writelines(f"{case}\n" for case in found)
    print(f"{len(made)} tasks", file=sys.stderr)


def imported(args, made):
    """Imports tasks into a project."""

    def call(path, body, **headers):
        url = urllib.parse.urlsplit(args.studio.rstrip("/") + path)
        kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
        connection = kind(url.netloc, timeout=60)
        connection.request("POST", url.path, json.dumps(body), {"Content-Type": "application/json", **headers})
        answer = connection.getresponse()  # a redirect is a failure: it would lose the tasks
        if answer.status not in (200, 201):
            sys.exit(f"{url.geturl()}: {answer.status} {answer.read(300).decode(errors='replace')}")
        return json.load(answer)

    token = "Token " + secret(args.token_file)
    if token.count(".") == 2:  # a personal access token, which Label Studio exchanges for a short one
        token = "Bearer " + call("/api/token/refresh", {"refresh": token[6:]})["access"]
    done = call(f"/api/projects/{args.project}/import", made, Authorization=token)
    if done.get("task_count", len(made)) != len(made):  # absent where tasks are imported in the background
        sys.exit(f"Label Studio took {done['task_count']} of {len(made)} tasks")


def reading(annotation, args):
    """Returns the class, the source and the time of an annotation; no class for one that was skipped."""
    source, when = source_of(annotation["completed_by"]), annotation["updated_at"]
    if annotation.get("was_cancelled"):
        return "", source, when
    chosen = [label for one in annotation["result"] if one["from_name"] == args.choice for label in one["value"]["choices"]]
    if len(chosen) != 1:
        raise ValueError(f"{len(chosen)} labels named {args.choice}, expected one")
    return dict(args.classes).get(chosen[0], chosen[0]), source, when


def report(client, event, args):
    """Reports an annotation as an outcome. Returns the status of HTTP, and why the outcome was not kept."""
    try:
        meta = event["task"]["meta"] or {}
        truth, source, when = reading(event["annotation"], args)
        if not truth:
            return 200, ""
        moment = datetime.datetime.fromisoformat(when.replace("Z", "+00:00")).timestamp()
        outcome = ckd.Outcome(decoded(meta["receipt"]), truth, source, time=moment, saw_model=bool(meta.get("saw_model")))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        return 200, f"no outcome: {type(error).__name__}: {error}"  # another delivery would say the same
    (answer,) = client.report_outcomes([outcome])
    return 503 if answer.status in LATER else 200, answer.error


def serve(args):
    """Serves the webhook until it is stopped."""
    expected, client = secret(args.secret_file).encode(), ckd.Client(args.addr, ca=args.ca, token_file=args.token_file)

    class Webhook(http.server.BaseHTTPRequestHandler):
        timeout = 60  # seconds

        def do_POST(self):
            if not hmac.compare_digest(self.headers.get(HEADER, "").encode(), expected):
                return self.send_error(401)
            event = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            code, why = report(client, event, args) if event["action"] in EVENTS else (200, "")
            if why:
                print(f"task {(event.get('task') or {}).get('id')}: {code}: {why}", file=sys.stderr, flush=True)
            self.send_response(code)
            self.send_header("Content-Length", "0")  # nothing of what the model said
            self.end_headers()

    host, _, port = args.listen.rpartition(":")
    with http.server.ThreadingHTTPServer((host, int(port)), Webhook) as server:
        print(f"listening on http://{host}:{server.server_port}", flush=True)
        server.serve_forever()


def outcomes(args):
    """Prints the outcomes of an export for ckd outcomes send."""
    kept = {case_of(row["receipt"]): row["receipt"] for path in args.receipts for row in read(path).values() if row.get("receipt")}
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(["receipt", "truth", "source", "time", "saw_model"])
    items = json.loads(pathlib.Path(args.export).read_text()) if args.export.endswith(".json") else read(args.export).values()
    for item in items:
        meta = item.get("meta") or {}
        receipt = meta.get("receipt") or kept.get((item.get("data") or item).get("case"), "")
        saw = "true" if args.saw_model or meta.get("saw_model") else ""
        try:
            if "annotations" in item:
                found = [reading(annotation, args) for annotation in item["annotations"]]
            else:
                label = item.get(args.choice) or ""
                found = [(dict(args.classes).get(label, label), source_of(item["annotator"]), item["updated_at"])]
        except (KeyError, TypeError, ValueError) as error:
            sys.exit(f"{args.export}: task {item.get('id')}: {type(error).__name__}: {error}")
        out.writerows([receipt, *one, saw] for one in found)


def main():
    flags = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = flags.add_subparsers(required=True, dest="command")
    command = commands.add_parser("tasks", help="send inputs to review to Label Studio")
    command.set_defaults(run=tasks)
    command.add_argument("files", nargs="+", help="CSV with id (or case) and receipt, or of ckd outcomes missing")
    command.add_argument("--receipts", metavar="FILE", help="what ckd outcomes missing read, for its list")
    command.add_argument("--reader", metavar="NUMBER", help="leave out of its list what this user of Label Studio has read")
    command.add_argument("--case-url", required=True, metavar="URL", help="the link to a case, with {id}")
    command.add_argument("--by-priority", action="store_true", help="order by the column priority, and report that readers saw the model's answer")
    command.add_argument("--sent", metavar="FILE", help="remember what was sent to this project, and send it once")
    where = command.add_mutually_exclusive_group(required=True)
    where.add_argument("--csv", metavar="FILE", help="write a file to import by hand")
    where.add_argument("--studio", metavar="URL", help="post to Label Studio at this address")
    command.add_argument("--project", type=int, metavar="NUMBER", help="the project of Label Studio")
    command.add_argument("--token-file", metavar="FILE", help="a token of Label Studio")
    command = commands.add_parser("serve", help="report what Label Studio's webhook says")
    command.set_defaults(run=serve)
    command.add_argument("--addr", required=True, help="the daemon with the ledger")
    command.add_argument("--ca", metavar="FILE", help="the daemon's authority, for TLS")
    command.add_argument("--token-file", metavar="FILE", help="a token of the daemon")
    command.add_argument("--listen", default="127.0.0.1:8600", metavar="HOST:PORT")
    command.add_argument("--secret-file", required=True, metavar="FILE", help=f"what Label Studio sends in the header {HEADER}")
    command = commands.add_parser("outcomes", help="turn an export of Label Studio into outcomes")
    command.set_defaults(run=outcomes)
    command.add_argument("export", help="JSON, JSON-MIN or CSV")
    command.add_argument("--receipts", nargs="+", default=[], metavar="FILE", help="the files that the tasks were made of")
    command.add_argument("--saw-model", action="store_true", help="the tasks were sent by priority")
    for command in (commands.choices["serve"], commands.choices["outcomes"]):
        command.add_argument("--choice", default="class", metavar="NAME", help="the name of the choices in the labelling interface")
        command.add_argument("--class", dest="classes", type=lambda text: text.rpartition("=")[::2], action="append", default=[], metavar="LABEL=CLASS")
    args = flags.parse_args()
    try:
        args.run(args)
    except (OSError, ValueError, LookupError) as error:
        sys.exit(f"{type(error).__name__}: {error}")


main()
