"""TLS, tokens that rotate, and several replicas."""

import asyncio
import os
import re
import shutil
import subprocess
import time

import pytest
from conftest import POLICY

import ckd
import ckd.aio

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates")


def certificate(folder, name="tls"):
    """Makes a certificate that signs itself, and returns its path and its key's."""
    cert, key = folder / f"{name}.crt", folder / f"{name}.key"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30",
         "-subj", "/CN=ckd", "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", cert],
        check=True, capture_output=True,
    )  # fmt: skip
    return cert, key


def replace(path, text):
    new = path.with_suffix(".new")
    new.write_bytes(text if isinstance(text, bytes) else text.encode())
    new.chmod(0o600)
    os.replace(new, path)


def secured(folder):
    """Starts a daemon with TLS that knows the tokens of the files one and two."""
    cert, key = certificate(folder)
    for name in ("one", "two"):
        replace(folder / name, name * 20)
    tokens = f"{{file: {folder}/one}}, {{file: {folder}/two}}"
    (folder / "access.yaml").write_text(
        f"identities:\n  - name: grader\n    tokens: [{tokens}]\n    models: [fetal-health]\n"
    )
    return ckd.Daemon(POLICY, listen="localhost:0", tls_cert=cert, tls_key=key, access=folder / "access.yaml")


def address_of(daemon):
    return "localhost:" + daemon.addresses[1].rsplit(":", 1)[1]


def test_rotation(tmp_path, passes):
    values, ids = passes[:, :2], ["a", "b"]
    token, ca = tmp_path / "token", tmp_path / "ca.crt"
    with secured(tmp_path) as daemon:
        replace(token, "one" * 20)
        replace(ca, (tmp_path / "tls.crt").read_bytes())
        with ckd.Client(address_of(daemon), ca=ca, token_file=token, patience=20) as client:

            def answered():
                with client.session("fetal-health") as session:
                    results = client.decompose("fetal-health", values) + session.decide(ids, passes[:, :2])
                errors = [r.error for r in results if r.error]
                assert not errors, errors
                assert [r.action for r in results] == ["defer", "retain"] * 2

            answered()
            # A token that the daemon does not know is refused, at once and by name.
            replace(token, "three" * 20)
            (refused,) = client.decompose("fetal-health", values[:, :1])
            assert isinstance(refused.error, ckd.RefusedError) and refused.reason == "UNAUTHENTICATED"
            replace(token, "two" * 20)
            answered()
            # While the file is empty, its last token stays in use.
            replace(token, "")
            answered()
            # Authorities: an unrelated one is not trusted; broken files leave the last ones in use.
            other, _ = certificate(tmp_path, "other")
            replace(ca, "not PEM")
            answered()
            replace(ca, other.read_bytes())
            client.patience = 1
            (untrusted,) = client.decompose("fetal-health", values[:, :1])
            assert isinstance(untrusted.error, ckd.UnavailableError)
            client.patience = 20
            replace(ca, (tmp_path / "tls.crt").read_bytes())
            answered()

        async def asynchronous():
            async with ckd.aio.Client(address_of(daemon), ca=ca, token_file=token) as client:
                (result,) = await client.decompose("fetal-health", values[:, :1])
                return result

        replace(token, "one" * 20)
        assert asyncio.run(asynchronous()).action == "defer"


@pytest.mark.parametrize("text", ["", "two words", "caf\u00e9", "x" * 20_000])
def test_tokens_that_are_refused(tmp_path, text):
    (tmp_path / "token").write_text(text)
    with pytest.raises(ValueError, match="expected one token") as raised:
        ckd.Client("unix:/ckd.sock", token_file=tmp_path / "token")
    assert not text or text not in str(raised.value)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(OSError):
        ckd.Client("localhost:1", ca=tmp_path / "ca.crt")
    with pytest.raises(OSError):
        ckd.Client("unix:/ckd.sock", token_file=tmp_path / "token")


def test_balancing(tmp_path, passes):
    """Sessions go round the replicas, and to those that are left when one stops."""
    replicas = []
    for version in ("first", "second"):
        policy = tmp_path / f"{version}.yaml"
        policy.write_text(re.sub("version: .*", f"version: {version}", POLICY.read_text(), count=1))
        replicas.append(ckd.Daemon(policy, listen="127.0.0.1:0"))
    first, second = replicas
    address = "ipv4:" + ",".join(daemon.addresses[1] for daemon in replicas)
    with first, second, ckd.Client(address, insecure=True, balancing=True) as client:

        def versions(n):
            seen = set()
            for _ in range(n):
                with client.session("fetal-health") as session:
                    results = session.decide(["a", "b"], passes[:, :2])
                    results += client.decompose("fetal-health", passes[:, :2])
                assert not any(r.error for r in results), results
                seen |= {r.policy.version for r in results}
            return seen

        until = time.monotonic() + 60
        while versions(4) != {"first", "second"}:  # the second connection may come later
            assert time.monotonic() < until
        first.close()
        assert versions(4) == {"second"}
