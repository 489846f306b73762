"""Holds the daemon as a child of this process."""

from __future__ import annotations

import collections
import contextlib
import json
import logging
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import weakref
from collections.abc import Sequence
from typing import Any, Union

from . import _binary
from ._client import Client
from ._connection import Path, check_socket, daemons
from ._errors import DaemonError

_log = logging.getLogger("ckd.daemon")

_LAST_LINES = 20  # of the log, for the message where the daemon does not start

# The daemons that this process has started. A fork empties it: the child owns none of them.
_own: weakref.WeakSet[_Child] = weakref.WeakSet()
_forking = threading.Lock()  # held while a daemon starts, so that a fork of another thread waits


class Daemon:
    """A daemon that lives as long as this process, on a unix socket that only this user reaches.

        with ckd.Daemon("policy.yaml") as daemon, daemon.client() as client:
            results = client.decompose("fetal-health", passes)

    policy is a policy file, a folder of them, or a list of these. The other settings are those of
    ckd serve, as in max_streams=10 for --max-streams 10. There is no admin address unless it is set.

    A daemon that dies is started again once, and the logger ckd.daemon says so; calls that were under
    way are sent again. If it dies again, calls of this process fail at once with DaemonError, which has
    the exit code and the last line of the log.

    The child serves until its standard input closes, so it ends with this process, however that ends,
    kill -9 included. A process that is forked from this one may use the address, and make clients of
    its own; the daemon does not wait for it. Daemon returns when the child serves; otherwise it raises
    DaemonError, with what the child said. Its log goes to the logger ckd.daemon.
    """

    def __init__(self, policy: Union[Path, Sequence[Path]], *, startup: float = 60.0, **settings: Any) -> None:
        policies = [policy] if isinstance(policy, (str, os.PathLike)) else list(policy)
        folder = tempfile.mkdtemp(prefix="ckd-")
        self.address = f"unix:{folder}/ckd.sock"
        try:
            check_socket(self.address)
        except ValueError as error:
            os.rmdir(folder)
            raise DaemonError(f"{error}: TMPDIR names a shorter folder") from None
        command = [_binary.binary(), "serve", "--until-stdin-closes", "--listen", self.address]
        settings = {"admin": "off", "log_level": "info", **settings}
        for path in policies:
            command += ["--policy", os.fspath(path)]
        for name, value in settings.items():
            command += _flag(name, value)
        try:
            self._child = _Child(command, folder)
        except OSError as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise DaemonError(f"{command[0]} cannot be run: {error}") from None
        self.ended: DaemonError | None = None  # why it does not serve any more, if it died
        self._serving, self._over, self._started = threading.Event(), threading.Event(), False
        self._lines: collections.deque[str] = collections.deque(maxlen=_LAST_LINES)
        self._last_line = ""
        self.addresses: list[str] = []  # every gRPC address; the first is a unix socket
        self._listens = command.count("--listen")
        self.admin_url = ""  # where the admin address is served, if it is set
        self._finalizer = weakref.finalize(self, self._child.end)
        reader = threading.Thread(target=_follow, args=(weakref.ref(self), self._child), name="ckd-daemon-log", daemon=True)
        reader.start()
        if not self._wait(startup):
            self.close()
            said = "\n".join(self._lines) or "it said nothing"
            raise DaemonError(f"ckd serve did not start (exit code {self._child.process.returncode}): {said}")
        self._started = True
        daemons[self.address] = self

    def _wait(self, seconds: float) -> bool:
        """Returns whether the daemon serves, as soon as that is known."""
        self._serving.wait(seconds)
        return self._serving.is_set() and not self._over.is_set()

    def client(self, **settings: Any) -> Client:
        """Returns a client of this daemon, with the settings of ckd.Client."""
        return Client(self.address, **settings)

    @property
    def pid(self) -> int:
        """The process of the daemon, another one once it was started again."""
        return self._child.process.pid

    @property
    def running(self) -> bool:
        """Whether the daemon runs, as far as this process knows."""
        return not self._over.is_set()

    def close(self) -> None:
        """Stops the daemon, which finishes what is open, and waits for its end.

        In a process that was forked from the daemon's owner, this does nothing.
        """
        if self._finalizer.alive:
            self._finalizer()
            self._over.set()  # before the thread that reads the log comes to it

    def __enter__(self) -> Daemon:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<ckd.Daemon {self.address}, process {self.pid}{'' if self.running else ', ended'}>"

    def _said(self, line: str) -> None:
        """Takes a line of the daemon's log."""
        self._last_line = line or self._last_line
        record: dict[str, Any] = {}
        with contextlib.suppress(ValueError):
            parsed = json.loads(line)
            record = parsed if isinstance(parsed, dict) else {}
        if record.get("msg") == "listening":
            if record.get("for") == "admin":
                self.admin_url = record["address"]
            if record.get("for") == "grpc":
                self.addresses.append(record["address"])
                if len(self.addresses) == self._listens:
                    self.addresses.sort(key=lambda address: address != self.address)
                    self._serving.set()
        if not record or record.get("level") not in ("info", "debug"):
            self._lines.append(line)
        level = logging.getLevelName(str(record.get("level", "warn")).upper())
        _log.log(level if isinstance(level, int) else logging.WARNING, "%s", line)

    def _died(self, code: int) -> bool:
        """Takes the daemon's end, which nobody asked for. Returns whether it was started again."""
        again = self._started and not self._child.restarted
        about = f"ckd serve (process {self.pid}) ended with {_described(code)}, its last line: {self._last_line or 'none'}"
        if self._started:
            _log.error("%s: %s", about, "it is started again" if again else "it was started again once before")
        if again:
            self.addresses = []
            try:
                self._child.start(again=True)
                return True
            except OSError as error:
                about += f"; {self._child.command[0]} cannot be run: {error}"
        if self._started:
            self.ended = DaemonError(f"{about}; it was started again once, and is not again")
        return False


class _Child:
    """The process of the daemon, which ends when its standard input closes."""

    def __init__(self, command: list[str], folder: str) -> None:
        self.command, self._folder, self._owner = command, folder, os.getpid()
        self.closing = self.restarted = False
        self.start()

    def start(self, again: bool = False) -> None:
        with _forking:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                bufsize=0,  # files without locks, which a fork could leave locked
                start_new_session=True,  # Ctrl-C in a terminal is for the parent, which closes the input
            )  # fmt: skip
            _own.add(self)
        self.restarted = again
        if self.closing:
            self.end()  # which another thread has asked for meanwhile, of the process before

    def forked(self) -> None:
        """Lets go of the child's pipes in a process that was forked."""
        for pipe in (self.process.stdin, self.process.stderr):
            if pipe is not None:
                pipe.close()
        self.process.returncode = 0  # so that nobody waits for what is no child

    def end(self) -> None:
        """Closes the daemon's standard input, waits for its end, and removes its folder."""
        if os.getpid() != self._owner:
            return
        self.closing, process = True, self.process
        if process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


def _flag(name: str, value: Any) -> list[str]:
    """Returns a setting as a flag of ckd serve."""
    flag = "--" + name.replace("_", "-")
    if isinstance(value, bool):
        return [flag] if value else []
    if isinstance(value, (list, tuple)):
        return [word for one in value for word in _flag(name, one)]
    return [flag, os.fspath(value) if isinstance(value, os.PathLike) else str(value)]


def _follow(daemon: weakref.ref[Daemon], child: _Child) -> None:
    """Reads the log until the daemon ends for good. It does not keep the Daemon from being collected."""
    while True:
        begun, stderr = b"", child.process.stderr
        while stderr is not None and (chunk := stderr.read(1 << 16)):
            *lines, begun = (begun + chunk).split(b"\n")
            target = daemon()
            if target is not None:
                for line in lines:
                    target._said(line.decode("utf-8", "replace").rstrip())
            del target
        code = child.process.wait()
        target = daemon()
        if target is None or child.closing or not target._died(code):
            break
        del target
    if target is not None:
        target._over.set()
        target._serving.set()  # nobody need wait longer


def _described(code: int) -> str:
    """Returns an exit code in words, with the name of a signal."""
    with contextlib.suppress(ValueError):
        return f"exit code {code} ({signal.Signals(-code).name})"
    return f"exit code {code}"


def _after_fork() -> None:
    _forking.release()
    for child in list(_own):
        child.forked()
    _own.clear()
    daemons.clear()


if hasattr(os, "register_at_fork"):
    # A forked process has a copy of the pipe's end. As long as it lived, the daemon would not learn
    # that its owner is gone.
    os.register_at_fork(before=_forking.acquire, after_in_parent=_forking.release, after_in_child=_after_fork)
