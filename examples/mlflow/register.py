"""Calibrates a policy and registers it with MLflow, or fails and says why.

    python3 register.py --register fetal-health-policy --for-version 7 -- --passes P.npy --labels Y.npy \\
        --classes normal,suspect,pathologic --critical suspect,pathologic --name fetal-health --max-critical-miss 0.08

What stands after -- are the flags of ckd calibrate. A run of MLflow gets the objective, the figures, the
policy, the report and the page to sign; the registry gets a version whose source is the policy, with its
hash and its certificate as tags. Where nothing certifies or nothing is gained, the run is marked as failed
with the reason, nothing is registered, and the exit code is that of ckd: 3, or 1 and 2 for faults.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import mlflow
from mlflow.exceptions import MlflowException


def calibrate(flags, folder):
    """Runs ckd calibrate, and returns its report and why there is no certified policy ("" if there is one).

    The folder gets the policy, the report and, where there is a policy, the page to sign.
    """
    command = [os.environ.get("CKD_BINARY", "ckd"), "calibrate", *flags]
    done = subprocess.run([*command, "--out", str(folder / "policy.yaml"), "--format", "json"], capture_output=True, text=True)
    if done.returncode not in (0, 3):
        sys.stderr.write(done.stderr)
        sys.exit(done.returncode)
    (folder / "report.json").write_text(done.stdout)
    report = json.loads(done.stdout)
    if done.returncode == 3:
        refusal = report["refusal"] or report["settle"]["refusal"]
        return report, "; ".join([refusal["reason"], *(refusal.get("would") or [])])
    with tempfile.TemporaryDirectory() as other:  # beside the policy it would count as a second attempt
        page = subprocess.run(
            [*command, "--out", str(pathlib.Path(other, "policy.yaml")), "--format", "html"], capture_output=True, text=True, check=True
        )
    (folder / "to-sign.html").write_text(page.stdout)
    certificate = report["certificate"]
    if certificate is None:
        return report, "the policy has no certificate: ask for a bound, such as --max-critical-miss 0.05"
    return report, certificate.get("void") or ""


def figures(report):
    """Returns the numbers of a report that MLflow can compare between runs."""
    named = {name: report[name] for name in ("inputs", "critical", "missed")}
    named.update({name: report["certificate"][name] for name in ("target", "confidence", "cases", "misses", "p_value")})
    named["coverage"] = report["expected"]["coverage"]
    return {name: float(value) for name, value in named.items() if value is not None}


def register(name, run, tags):
    """Registers the run's policy as a version of a model, and returns the version."""
    client = mlflow.MlflowClient()
    try:
        client.create_registered_model(name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    return client.create_model_version(name, f"{run.info.artifact_uri}/ckd", run.info.run_id, tags=tags).version


def main():
    flags = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    flags.add_argument("--register", required=True, metavar="NAME", help="the registered model that gets a version")
    flags.add_argument("--for-version", default="", metavar="VERSION", help="the version of the classifier that the policy is for")
    flags.add_argument("calibrate", nargs="+", help="after --, the flags of ckd calibrate")
    args = flags.parse_args()
    with mlflow.start_run(run_name=args.register) as run, tempfile.TemporaryDirectory() as folder:
        report, refused = calibrate(args.calibrate, pathlib.Path(folder))
        mlflow.log_params({name: report[name] for name in ("objective", "scope", "seed", "passes", "software")})
        tags = {"ckd.passes_sha256": report["passes_file"]["sha256"], "ckd.labels_sha256": report["labels_file"]["sha256"]}
        if refused:
            tags["ckd.refused"] = refused[:500]
        else:
            mlflow.log_metrics(figures(report))
            tags["ckd.policy_hash"], tags["ckd.certificate"] = report["policy_hash"], report["certificate"]["statement"][:500]
        if args.for_version:
            tags["ckd.for_version"] = args.for_version
        mlflow.set_tags(tags)
        for path in sorted(pathlib.Path(folder).iterdir()):
            if not refused or path.name != "policy.yaml":
                mlflow.log_artifact(str(path), "ckd")
        if refused:
            print(f"not registered: {refused}", file=sys.stderr)
            sys.exit(3)  # which marks the run as failed
        print(f"{args.register} version {register(args.register, run, tags)}: policy {report['policy_hash']}")


main()
