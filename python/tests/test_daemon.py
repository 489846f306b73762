"""The daemon lives as long as its owner, however that ends."""

import asyncio
import gc
import os
import select
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest
from conftest import POLICY

import ckd
import ckd.aio


def gone(pid):
    """Waits until a process that need not be ours has ended."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            with open(f"/proc/{pid}/stat") as file:
                if file.read().rpartition(")")[2].split()[0] == "Z":
                    return True
        except OSError:
            return True
        time.sleep(0.01)
    return False


def test_answers_and_stops(passes):
    with ckd.Daemon(POLICY) as daemon, daemon.client() as client:
        results = client.decompose("fetal-health", passes)
        assert {r.action for r in results} == {"retain", "defer"}
        assert daemon.running
    assert not daemon.running and gone(daemon.pid)
    assert not os.path.exists(os.path.dirname(daemon.address[len("unix:") :]))
    daemon.close()  # again: nothing is left to do


def test_stops_when_collected():
    daemon = ckd.Daemon(POLICY)
    pid = daemon.pid
    del daemon
    gc.collect()
    assert gone(pid)


@pytest.mark.parametrize(
    "policy, settings, words",
    [
        ("/nowhere/policy.yaml", {}, "/nowhere/policy.yaml: cannot read"),
        (POLICY, {"max_stream": 3}, "unknown flag --max-stream"),
        (POLICY, {"listen": "192.0.2.1:1"}, "192.0.2.1"),
    ],
)
def test_says_why_it_does_not_start(policy, settings, words):
    with pytest.raises(ckd.DaemonError, match="did not start") as raised:
        ckd.Daemon(policy, **settings)
    assert words in str(raised.value)


def test_binary_that_cannot_run(monkeypatch):
    monkeypatch.setenv("CKD_BINARY", "/nowhere/ckd")
    with pytest.raises(ckd.DaemonError, match="/nowhere/ckd cannot be run"):
        ckd.Daemon(POLICY)


def test_thread_that_started_it_may_end(passes):
    started = []
    thread = threading.Thread(target=lambda: started.append(ckd.Daemon(POLICY)))
    thread.start()
    thread.join()
    with started[0] as daemon, daemon.client() as client:
        assert client.decompose("fetal-health", passes)[0].decomposition is not None


def script(code):
    """Starts Python code that prints the daemon's process, and returns both processes."""
    text = "import ckd, os, sys, time\n" + textwrap.dedent(code)
    process = subprocess.Popen(
        [sys.executable, "-c", text, str(POLICY)], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
    )
    return process, [int(word) for word in process.stdout.readline().split()]


ENDS = {
    "kill -9": "daemon = ckd.Daemon(sys.argv[1]); print(daemon.pid, flush=True); sys.stdin.readline()",
    "kill -9 while streams are open": """
        import numpy
        daemon = ckd.Daemon(sys.argv[1])
        session = daemon.client().session("fetal-health")
        def forward():
            yield numpy.full((1, 3), 1 / 3)
            print(daemon.pid, flush=True)
            sys.stdin.readline()
        session.decide(["a"], forward())
    """,
    "kill -9 after a fork": """
        import signal
        daemon = ckd.Daemon(sys.argv[1])
        if os.fork() == 0:
            sys.stdin.readline()  # outlives its parent
            os._exit(0)
        print(daemon.pid, flush=True)
        signal.pause()
    """,
    "kill -9 after a fork in another thread": """
        import signal, threading
        def fork():
            if os.fork() == 0:
                sys.stdin.readline()
                os._exit(0)
        thread = threading.Thread(target=fork)
        thread.start()
        daemon = ckd.Daemon(sys.argv[1])
        thread.join()
        print(daemon.pid, flush=True)
        signal.pause()
    """,
    "kill -9 beside another child": """
        import subprocess
        daemon = ckd.Daemon(sys.argv[1])
        other = subprocess.Popen(["sleep", "600"])
        print(daemon.pid, other.pid, flush=True)
        sys.stdin.readline()
    """,
}


@pytest.mark.parametrize("how", ENDS)
def test_no_orphan(how):
    process, (pid, *others) = script(ENDS[how])
    try:
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert gone(pid)
    finally:
        process.stdin.close()  # ends a forked process
        for other in others:
            os.kill(other, signal.SIGKILL)


def test_exit_without_close():
    process, (pid,) = script("daemon = ckd.Daemon(sys.argv[1]); print(daemon.pid, flush=True)")
    assert process.wait(timeout=60) == 0
    assert gone(pid)


def forked(work):
    """Runs work in a forked process, and returns the text that it returns, or its exception's."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            text = work()
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        os.write(write, str(text).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        ready = select.select([pipe], [], [], 60)[0]
        if not ready:
            os.kill(child, signal.SIGKILL)
        text = pipe.read()
    os.waitpid(child, 0)
    assert ready, "the forked process hangs"
    return text


def test_client_of_before_a_fork_is_refused(daemon, passes):
    """A session that was used before a fork hung in the child for ever."""
    with daemon.client() as client, client.session("fetal-health") as session:
        ids = [str(i) for i in range(40)]
        session.decide(ids, passes)

        def drop():
            session.close()
            client.close()
            gc.collect()
            return "closed"

        for ask in (
            lambda: session.decide(ids, passes),
            lambda: client.session("fetal-health").decide(ids, passes),
            lambda: client.decompose("fetal-health", passes),
            lambda: daemon.client().models(),  # grpc would hang in the child, and crash its parent
        ):
            assert forked(ask).startswith("RuntimeError") and "after the fork" in forked(ask)
        assert forked(drop) == "closed"
        assert not any(r.error for r in session.decide(ids, passes))

    async def run():
        async with ckd.aio.Client(daemon.address) as client, client.session("fetal-health") as session:
            await session.decide(ids, passes)
            assert forked(lambda: session.decide(ids, passes).send(None)).startswith("RuntimeError")

    asyncio.run(run())


FORKS = """
    import numpy, multiprocessing
    def ask(client):
        with client.session("fetal-health") as session:
            return session.decide(["a"], numpy.full((30, 1, 3), 1 / 3))[0].action == "defer"
    daemon = ckd.Daemon(sys.argv[1])
    preloaded = daemon.client()  # as of gunicorn with preload: it is made before the fork and used after it
    before = bool(os.environ.get("GRPC_ENABLE_FORK_SUPPORT")) and ask(daemon.client())
    def work(_):
        return ask(preloaded) + ask(daemon.client())
    with multiprocessing.get_context("fork").Pool(2) as pool:
        print(sum(pool.map(work, range(8))) + before + ask(preloaded))
"""


@pytest.mark.parametrize("supported", [False, True], ids=["first use after the fork", "GRPC_ENABLE_FORK_SUPPORT"])
def test_forked_processes_have_clients_of_their_own(monkeypatch, supported):
    monkeypatch.setenv("GRPC_ENABLE_FORK_SUPPORT", "1" if supported else "")
    process, (answered,) = script(FORKS)
    assert process.wait(timeout=60) == 0 and answered == 17 + supported


def test_forked_process_leaves_it_alone(daemon, passes):
    """A child of a fork must not stop the daemon, neither by close nor by its end."""
    child = os.fork()
    if child == 0:
        daemon.close()
        os._exit(0)
    os.waitpid(child, 0)
    with daemon.client() as client:
        assert client.decompose("fetal-health", passes)[0].action == "defer"


def test_started_again_once(passes, caplog):
    """A daemon that was killed left every call waiting for its whole patience, without a word."""
    ids = [str(i) for i in range(40)]
    with ckd.Daemon(POLICY) as daemon, daemon.client(patience=300) as client, client.session("fetal-health") as session:
        first, right = daemon.pid, [r.value for r in session.decide(ids, passes)]

        def killed():  # in the middle of a batch
            yield passes[0]
            os.kill(daemon.pid, signal.SIGKILL)
            assert gone(first)
            yield from passes[1:]

        assert [r.value for r in session.decide(ids, killed())] == right
        assert [r.value for r in client.decompose("fetal-health", passes)] == right
        assert daemon.running and daemon.pid != first and daemon.ended is None
        assert f"process {first}) ended with exit code -9 (SIGKILL)" in caplog.text and "is started again" in caplog.text

        os.kill(daemon.pid, signal.SIGKILL)
        for results in session.decide(ids, passes), client.decompose("fetal-health", passes):
            errors = {str(r.error) for r in results}
            assert all(isinstance(r.error, ckd.DaemonError) and not r.retained for r in results), errors
            assert all("SIGKILL" in text and "listening" in text for text in errors), errors
        with pytest.raises(ckd.DaemonError, match="SIGKILL"):
            client.model("fetal-health")
        assert not daemon.running

        async def run():
            async with ckd.aio.Client(daemon.address, patience=300) as other, other.session("fetal-health") as asked:
                return await asked.decide(ids, passes)

        assert isinstance(asyncio.run(run())[0].error, ckd.DaemonError)


def test_socket_path_that_is_too_long(tmp_path, monkeypatch):
    """A socket in a deep folder was 'bind: invalid argument', and for a client a daemon that is down."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / ("d" * 120)))
    (tmp_path / ("d" * 120)).mkdir()
    with pytest.raises(ckd.DaemonError, match=r"has \d+ bytes, expected at most 10[37].*TMPDIR"):
        ckd.Daemon(POLICY)
    assert not list((tmp_path / ("d" * 120)).iterdir())
    for address in ("unix:" + "é" * 54, "unix:///" + "x" * 107, "unix-abstract:" + "x" * 108):
        with pytest.raises(ValueError, match="has 108 bytes"):
            ckd.Client(address)
    ckd.Client("unix:" + "x" * 103).close()
