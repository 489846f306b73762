"""Joins a labelling tool's CSV with the receipts of its cases, for ckd outcomes send.

    python3 join.py --receipts receipts.csv --class Suspicious=suspect export.csv > outcomes.csv

Readers and their tool see the id of a case alone. The receipts stay here, in a file that was
written when the inputs were decided. A case without a receipt keeps its row, without one.
"""

import argparse
import csv
import sys


def read(path, *columns):
    """Returns the rows of a CSV file that has the columns."""
    with open(path, newline="", encoding="utf-8-sig") as file:
        rows = csv.DictReader(file)
        for column in columns:
            if column not in (rows.fieldnames or []):
                sys.exit(f"{path}:1: no column {column!r}, found {', '.join(rows.fieldnames or ['no header'])}")
        return list(rows)


def main():
    flags = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    flags.add_argument("export", help="the tool's CSV")
    flags.add_argument("--receipts", required=True, metavar="FILE", help="CSV with the columns case and receipt")
    flags.add_argument("--case", default="case", metavar="COLUMN", help="the tool's column with the id of the case")
    flags.add_argument("--choice", default="choice", metavar="COLUMN", help="the tool's column with the label")
    flags.add_argument("--reader", default="reader", metavar="COLUMN", help="the tool's column with the reader's opaque name")
    flags.add_argument(
        "--class", dest="classes", action="append", default=[], metavar="LABEL=CLASS", help="the policy's name of a class whose label differs"
    )
    args = flags.parse_args()
    for pair in args.classes:
        if "=" not in pair:
            flags.error(f"--class {pair}: expected LABEL=CLASS")
    classes = dict(pair.split("=", 1) for pair in args.classes)
    receipts = {row["case"]: row["receipt"] for row in read(args.receipts, "case", "receipt")}
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(["receipt", "truth", "source"])
    for row in read(args.export, args.case, args.choice, args.reader):
        label = row[args.choice]
        out.writerow([receipts.get(row[args.case], ""), classes.get(label, label), row[args.reader]])


main()
