"""What Python gets is the daemon's answer, bit for bit, with errors that say what to do."""

import asyncio
import concurrent.futures
import copy
import json
import pickle
import socket
import subprocess
import urllib.request

import numpy as np
import pytest
from conftest import POLICY, RECORDINGS

import ckd
import ckd.aio
from ckd import _binary


def decomposed(path):
    """Returns what ckd decompose prints for a recording."""
    command = [_binary.binary(), "decompose", "--passes", str(path), "--policy", str(POLICY)]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return [json.loads(line) for line in lines]


def same_bits(a, b):
    return np.asarray(a, dtype=np.float64).tobytes() == np.asarray(b, dtype=np.float64).tobytes()


@pytest.mark.parametrize("how", ["call", "array", "generator", "asyncio call", "asyncio stream"])
def test_bit_for_bit(daemon, passes, tmp_path, how):
    np.save(tmp_path / "passes.npy", passes)
    ids = [f"input {i}" for i in range(passes.shape[1])]

    async def streamed():
        async with ckd.aio.Client(daemon.address) as client:
            if how == "asyncio call":
                return await client.decompose("fetal-health", passes, ids, ckd.FULL)
            async with client.session("fetal-health", detail=ckd.FULL) as session:
                return await session.decide(ids, passes)

    with daemon.client() as client, client.session("fetal-health", detail=ckd.FULL) as session:
        results = {
            "call": lambda: client.decompose("fetal-health", passes, ids, ckd.FULL),
            "array": lambda: session.decide(ids, passes),
            "generator": lambda: session.decide(ids, (p for p in passes)),
        }.get(how, lambda: asyncio.run(streamed()))()
    wanted = decomposed(tmp_path / "passes.npy")
    assert len(results) == len(wanted) == 40
    for result, want in zip(results, wanted):
        for name in ("c", "skewness", "mean", "variance", "third_moment", "m", "c3"):
            assert same_bits(getattr(result, name), want[name]), (result.id, name)
        for name in ("mi", "entropy", "sum_c", "expected_entropy"):
            assert same_bits(getattr(result, name), want[name]), (result.id, name)
        assert result.scores.keys() == want["scores"].keys()
        assert all(same_bits(value, want["scores"][name]) for name, value in result.scores.items())
        decision = want["decision"]
        assert (result.action, result.score, result.gate, result.reason) == (
            decision["action"], decision["score"], decision["gate"], decision["reason"],
        )  # fmt: skip
        assert same_bits(result.value, decision["value"]) and same_bits(result.threshold, decision["threshold"])
        assert result.classes.index(result.predicted) == want["predicted"]
        assert result.passes == 30 and not result.settled
        assert result.policy is not None and result.policy.model == "fetal-health"
        pairs = [(p.a, p.b, p.confusion, p.correlation) for p in result.pairs]
        names = result.classes
        assert pairs == [(names[p["a"]], names[p["b"]], p["confusion"], p["correlation"]) for p in want["pairs"]]


def test_details(client, passes):
    values = passes[:, :1]
    (decision,) = client.decompose("fetal-health", values, detail=ckd.DECISION)
    assert decision.c.size == 0 and np.isnan(decision.mi) and decision.scores == {}
    (vectors,) = client.decompose("fetal-health", values)
    assert vectors.c.shape == (3,) and not np.isnan(vectors.mi) and np.isnan(vectors.expected_entropy)


def test_shown(client, passes):
    result = client.decompose("fetal-health", passes, [f"<{i}>" for i in range(40)])[8]
    lines = repr(result).splitlines()
    assert lines[0] == f"<<8>: {result}"
    assert lines[1:] == [
        "  normal       ████████████████ ? 0.1472",
        "  suspect      ███▌             ? 0.0317",
        "  pathologic   ███▌               0.0325>",
    ]
    page = result._repr_html_()
    assert "&lt;8&gt;" in page and "<8>" not in page
    assert page.count("<tr>") == 4 and "width:100.0%" in page and "0.0325" in page
    refused = ckd.Result("a", error=ckd.InvalidInputError("a value is NaN", reason="NOT_FINITE"))
    assert repr(refused) == "<a: no decision: a value is NaN (NOT_FINITE): correct what is sent; sending the same again does not help>"
    assert "a value is NaN" in refused._repr_html_()


def test_results_are_those_of_http(passes):
    """What an archive of results held could not be compared with what the HTTP API had answered."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        http = f"127.0.0.1:{free.getsockname()[1]}"
    values = passes.copy()
    values[3, 1, 2], values[:, 2] = np.nan, [1, 0, 0]
    with ckd.Daemon(POLICY, http=http) as daemon, daemon.client() as client, client.session("fetal-health", detail=ckd.FULL) as session:
        for detail in ckd.Detail:
            body = {
                "layout": "LAYOUT_SNK", "passes": 30, "inputs": 40, "detail": f"DETAIL_{detail.name}",
                "input_ids": [f"é{i}" for i in range(39)] + [""],
                "values": [float(v) if np.isfinite(v) else "NaN" for v in values.ravel()],
            }  # fmt: skip
            request = urllib.request.Request(
                f"http://{http}/v1/models/fetal-health:decompose", json.dumps(body).encode(), {"Content-Type": "application/json"}
            )
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request) as answer:
                wanted = json.load(answer)["results"]
            results = client.decompose("fetal-health", values, body["input_ids"], detail)
            assert [r.to_dict() for r in results] == wanted
        streamed = session.decide([*body["input_ids"][:39], "last"], values)  # errors of streams name their group
        assert [r.to_dict() for r in streamed[2:39]] == wanted[2:39] and streamed[1].to_dict()["row"] == 1
        assert "error" in wanted[1] and wanted[2]["decomposition"]["degenerate"]
        models = client.models()
    for again in pickle.loads(pickle.dumps(results)), copy.deepcopy(results), [copy.copy(r) for r in results]:
        assert [r.to_dict() for r in again] == wanted and [repr(r) for r in again] == [repr(r) for r in results]
        assert same_bits(again[0].c, results[0].c) and type(again[1].error) is type(results[1].error)
    assert pickle.loads(pickle.dumps(models)) == models
    lost = ckd.Result("a", error=ckd.UnavailableError("no answer", code=14), row=3)
    assert pickle.loads(pickle.dumps(lost)).to_dict() == {"input_id": "a", "row": 3, "error": {"code": 14, "message": "no answer"}}


def test_many_classes_are_shown_in_part():
    message = ckd._wire.DecomposeResponse().results.add().decomposition
    message.c.extend(np.linspace(0, 1, 50))
    message.decision.action, message.decision.score, message.decision.reason = 2, 9, 1
    shown = repr(ckd.Result("a", message, classes=tuple(f"class-{k}" for k in range(50))))
    assert "class-49" in shown and "class-39" not in shown and "and 40 classes with less" in shown


def test_errors_are_typed(daemon, passes):
    values = passes[:, :3].copy()
    values[3, 1, 2] = np.nan
    with daemon.client() as client, client.session("fetal-health") as session:
        for results in client.decompose("fetal-health", values), session.decide("abc", values):
            error = results[1].error
            assert isinstance(error, ckd.InvalidInputError) and error.reason == results[1].reason == "NOT_FINITE"
            assert error.fields["pass"] == "3" and error.fields["row"] == "1", error.fields
            assert not results[1].retained and results[0].error is None
        (unknown,) = client.decompose("nobody", values[:, :1])
        assert isinstance(unknown.error, ckd.RefusedError) and unknown.reason == "UNKNOWN_MODEL"
        with pytest.raises(ckd.RefusedError, match="nobody"):
            client.model("nobody")
        with client.session("fetal-health", classes=["a", "b", "c"]) as other:
            (wrong,) = other.decide("a", values[:, :1])
            assert wrong.reason == "WRONG_CLASSES" and isinstance(wrong.error, ckd.RefusedError)
        assert [m.policy.model for m in client.models()] == ["fetal-health"]
        model = client.model("fetal-health")
        assert model.critical == ("suspect", "pathologic") and model.expected_passes == 30
    with ckd.Client("unix:/nowhere/ckd.sock", patience=0.2) as away:
        (lost,) = away.decompose("fetal-health", values[:, :1])
        assert isinstance(lost.error, ckd.UnavailableError) and "/nowhere" in str(lost.error)
        assert "send it again" in str(lost.error)


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"address": "192.0.2.1:8590"}, "plaintext is for unix sockets"),
        ({"address": "192.0.2.1:8590", "insecure": True, "tls": True}, "insecure beside TLS"),
        ({"address": "localhost:8590", "cert": "a.pem"}, "a certificate without its key"),
    ],
)
def test_connections_that_are_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        ckd.Client(**settings)


def test_large_batches(daemon):
    """A batch that exceeds a message goes in several calls, and in several blocks of a stream."""
    recorded = np.load(RECORDINGS / "ctg-mcdropout.passes.npy")
    with daemon.client(message_bytes=20_000) as client, client.session("fetal-health") as session:
        called = client.decompose("fetal-health", recorded)
        streamed = session.decide([str(i) for i in range(recorded.shape[1])], recorded)
    assert len(called) == recorded.shape[1] and [r.id for r in called] == [r.id for r in streamed]
    assert all(same_bits(a.c, b.c) and a.action == b.action for a, b in zip(called, streamed))
    assert not any(r.error for r in called)


def test_small_messages(passes):
    """The limits that the daemon states are kept, down to a few rows in a message."""
    with ckd.Daemon(POLICY, max_message_bytes=4096) as daemon, daemon.client() as client:
        many = np.concatenate([passes] * 30, axis=1)
        ids = [str(i) for i in range(many.shape[1])]
        with client.session("fetal-health") as session:
            results = session.decide(ids[:400], many[:, :400])
        called = client.decompose("fetal-health", many[:, :400])
    assert [r.action for r in called] == [r.action for r in results]
    assert [r.action for r in results[:40]] == [r.action for r in results[40:80]]
    assert not any(r.error for r in results), next(r.error for r in results if r.error)


def test_batch_larger_than_the_daemon_takes(passes):
    many = np.tile(passes, (1, 4096 // passes.shape[1] + 1, 1))
    with ckd.Daemon(POLICY) as daemon, daemon.client() as client:
        with client.session("fetal-health") as session, pytest.raises(ValueError, match="expected at most 4096"):
            session.decide([str(i) for i in range(many.shape[1])], many)


def test_threads_share_a_session(daemon, passes):
    want = None
    with daemon.client() as client, client.session("fetal-health") as session:
        want = [r.action for r in session.decide([str(i) for i in range(40)], passes)]

        def ask(n):
            return [r.action for r in session.decide([f"{n}-{i}" for i in range(40)], (p for p in passes))]

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            assert all(got == want for got in pool.map(ask, range(40)))


def test_tasks_share_a_session(daemon, passes):
    async def run():
        async with ckd.aio.Client(daemon.address) as client, client.session("fetal-health") as session:

            async def ask(n):
                at = iter(passes)

                async def forward(rows):
                    await asyncio.sleep(0)
                    return next(at)[rows]

                return [r.action for r in await session.decide([f"{n}-{i}" for i in range(40)], forward)]

            async def later():
                for values in passes:
                    await asyncio.sleep(0)
                    yield values

            got = await asyncio.gather(*(ask(n) for n in range(10)))
            got.append([r.action for r in await session.decide([str(i) for i in range(40)], later())])
            return got

    answers = asyncio.run(run())
    assert all(a == answers[0] for a in answers) and {"retain", "defer"} == set(answers[0])


def test_asyncio_errors():
    async def run():
        async with ckd.aio.Client("unix:/nowhere/ckd.sock", patience=0.3) as client, client.session("m") as session:
            (streamed,) = await session.decide(["a"], [[[1, 0]]])
            (called,) = await client.decompose("m", [[[1, 0]]])
            return streamed, called

    for result in asyncio.run(run()):
        assert isinstance(result.error, ckd.UnavailableError), result.error


def test_forward_that_is_awaitable_needs_asyncio(client):
    async def forward(rows):
        await asyncio.sleep(0)
        return np.full((1, 3), 1 / 3)

    with client.session("fetal-health") as session, pytest.raises(TypeError, match="ckd.aio"):
        session.decide(["a"], forward)


def test_reports_are_refused_without_a_ledger(client):
    (answer,) = client.report_outcomes([ckd.Outcome(b"receipt", "normal", "reader")], patience=0.2)
    assert answer.status == "unsent" and answer.error
    with pytest.raises(ValueError, match="kind is 'guess', expected reading, biopsy or follow_up"):
        client.report_outcomes([ckd.Outcome(b"", "normal", "reader", kind="guess")])


FORWARDS = {
    "an iterable": lambda fill, passes: (fill(p) for p in passes),
    "a function": lambda fill, passes: (lambda rows, at=iter(passes): fill(next(at))[rows.min() : rows.max() + 1]),
    "memory views": lambda fill, passes: (memoryview(fill(p)) for p in passes),
}


@pytest.mark.parametrize("how", FORWARDS)
@pytest.mark.parametrize("settled", [False, True], ids=["few blocks", "early stopping"])
def test_output_buffers_are_used_again(client, passes, how, settled):
    """TensorRT and I/O binding write every pass to one buffer: all passes of a block were the last one."""
    ids, buffer = [str(i) for i in range(40)], np.empty((40, 3), dtype="<f4")

    def fill(values):
        buffer[:] = values
        return buffer

    with client.session("fetal-health", accept_settled=settled) as session:
        right = session.decide(ids, passes)
        results = session.decide(ids, FORWARDS[how](fill, passes))
    assert [(r.action, r.value) for r in results] == [(r.action, r.value) for r in right]


def test_arrays_may_change_while_they_are_awaited(daemon, passes):
    """A server with one buffer for requests fills it for the next while it awaits the decisions."""
    buffer, ids = passes.copy(), [str(i) for i in range(40)]

    async def run():
        async with ckd.aio.Client(daemon.address) as client, client.session("fetal-health") as session:
            right = await session.decide(ids, passes)
            for ask in (
                lambda: session.decide(ids, buffer),
                lambda: session.decide(ids, list(buffer)),
                lambda: client.decompose("fetal-health", buffer, ids),
            ):
                buffer[:] = passes
                asked = asyncio.ensure_future(ask())
                buffer[:] = 1 / 3
                assert [r.value for r in await asked] == [r.value for r in right]

    asyncio.run(run())


def test_one_order_of_axes(daemon, passes):
    """decompose once took [inputs, passes, classes] where all else took [passes, inputs, classes]."""
    some, ids = passes[:, :30], [str(i) for i in range(30)]
    swapped = some.transpose(1, 0, 2)

    async def awaited(values, **settings):
        async with ckd.aio.Client(daemon.address) as client, client.session("fetal-health") as session:
            called = await client.decompose("fetal-health", values, ids, **settings)
            return called + await session.decide(ids, values, **settings)

    with daemon.client() as client, client.session("fetal-health") as session:
        right = [r.value for r in client.decompose("fetal-health", some)]
        for results in (
            session.decide(ids, some),
            session.decide(ids, swapped, layout="nsk"),
            session.decide(ids, swapped.tolist(), layout="NSK"),
            client.decompose("fetal-health", swapped, layout="nsk"),
        ):
            assert [r.value for r in results] == right
        for values, settings in ((some, {}), (swapped, {"layout": "nsk"})):
            assert [r.value for r in asyncio.run(awaited(values, **settings))] == right * 2
        # A shape that fits only the other order: by the ids, or by the passes that the policy expects.
        few, other = passes[:, :20], passes[:, :20].transpose(1, 0, 2)
        for ask, layout in (
            (lambda: session.decide(ids[:20], other), "nsk"),
            (lambda: session.decide(ids[:20], list(other)), "nsk"),
            (lambda: session.decide(ids[:20], few, layout="nsk"), "snk"),
            (lambda: client.decompose("fetal-health", other, ids[:20]), "nsk"),
            (lambda: client.decompose("fetal-health", other), "nsk"),
            (lambda: client.decompose("fetal-health", few, layout="nsk"), "snk"),
            (lambda: client.decompose("fetal-health", other[:3]), "nsk"),
            (lambda: asyncio.run(awaited(some[:20].transpose(1, 0, 2))), "nsk"),
        ):
            with pytest.raises(ValueError, match=f"layout='{layout}'"):
                ask()
        # As many passes as the policy accepts, of as many inputs as it expects passes: ids tell.
        assert len(client.decompose("fetal-health", some[:20], ids)) == 30
        for ask in (lambda: client.decompose("fetal-health", some, layout="kns"), lambda: session.decide(ids, iter(some), layout="nsk")):
            with pytest.raises(ValueError, match="layout"):
                ask()


def test_no_proxy_reads_plaintext(monkeypatch, passes):
    """With http_proxy set, as in many companies, ids and passes went in clear to the proxy."""
    for name in ("no_proxy", "NO_PROXY", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    with socket.create_server(("127.0.0.1", 0)) as proxy, ckd.Daemon(POLICY, listen="localhost:0") as daemon:
        for name in ("grpc_proxy", "https_proxy", "http_proxy", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.getsockname()[1]}")
        address = daemon.addresses[1]
        for target in (address, "localhost:" + address.rsplit(":", 1)[1], "dns:///" + address, daemon.address):
            with ckd.Client(target, patience=20, insecure=target == address) as client:
                assert not any(r.error for r in client.decompose("fetal-health", passes)), target

        async def run():
            async with ckd.aio.Client(address, patience=20) as client:
                return await client.decompose("fetal-health", passes)

        assert not any(r.error for r in asyncio.run(run()))
        proxy.settimeout(0)
        with pytest.raises(BlockingIOError):  # it was never asked
            proxy.accept()
        # To a daemon elsewhere, TLS goes through it as with any client of grpc.
        proxy.settimeout(60)
        with ckd.Client("ckd.invalid:8590", tls=True, patience=3) as client:
            client.decompose("fetal-health", passes)
        asked, _ = proxy.accept()
        with asked:
            assert asked.recv(100).startswith(b"CONNECT ckd.invalid:8590")
