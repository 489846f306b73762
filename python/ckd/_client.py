"""Holds the client for threads."""

from __future__ import annotations

import queue
import threading
import time
import weakref
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeVar

import grpc

from . import _settings
from ._arrays import Context
from ._connection import Connection, Path, Target, error_of_call, left_to_parent, rpc_errors
from ._engine import Answer, Batch, Complete, Engine, Link, Model, Outcome, Stream
from ._errors import InternalError
from ._result import Result
from ._settings import NO_RECEIPTS, VECTORS

T = TypeVar("T")


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine over a transport that blocks: one step runs it to its end."""
    try:
        work.send(None)
    except StopIteration as end:
        value: T = end.value
        return value
    work.close()
    raise TypeError("forward returned an awaitable, expected an array: await it, or use ckd.aio")


class Client:
    """A connection to a daemon. Threads may share it, but not the two sides of a fork.

    address is host:port, unix:/path, or a name that grpc resolves, as in dns:///ckd.default.svc:8590.
    ca, cert and key are PEM files for TLS; tls uses the authorities of the system. token_file holds a
    bearer token. All of these are read again when they change. Without TLS, only a unix socket or the
    loopback is accepted, unless insecure is true.

    balancing spreads streams and calls over every address of the name. The client waits for answers,
    and sends inputs again, for patience seconds. It finds a restarted daemon within a second.
    """

    def __init__(
        self,
        address: str,
        *,
        ca: Path | None = None,
        cert: Path | None = None,
        key: Path | None = None,
        server_name: str | None = None,
        tls: bool = False,
        token_file: Path | None = None,
        insecure: bool = False,
        balancing: bool = False,
        patience: float = 30.0,
        message_bytes: int = 512 << 10,
    ) -> None:
        target = Target(address, ca, cert, key, server_name, tls, token_file, insecure, balancing)
        self._transport = _Transport(Connection(target, _channel, forks=True))
        self._engine = Engine(self._transport, patience, message_bytes)
        self._sessions: weakref.WeakSet[Session] = weakref.WeakSet()

    @property
    def patience(self) -> float:
        """How many seconds an answer may take, without the time that the model takes."""
        return self._engine.patience

    @patience.setter
    def patience(self, seconds: float) -> None:
        self._engine.patience = seconds

    def close(self) -> None:
        """Closes the connection, and with it the sessions."""
        for session in list(self._sessions):
            session.close()
        self._transport.connection.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def models(self) -> list[Model]:
        """Returns every model for which the daemon has a policy, sorted by name."""
        return _run(self._engine.models())

    def model(self, name: str) -> Model:
        """Returns one model with the policy in force."""
        return _run(self._engine.model(name))

    def session(
        self,
        model: str,
        passes: int = 0,
        detail: int = VECTORS,
        accept_settled: bool = False,
        receipts: int = NO_RECEIPTS,
        model_version: str = "",
        *,
        classes: Sequence[str] = (),
        kind: int = 0,
        posterior: str = "",
    ) -> Session:
        """Returns a session that sends the passes of batches as they are computed.

        With accept_settled, an input is answered as soon as its decision is certain enough, if the
        policy has an early-stopping rule: see Session.decide. With receipts, REVIEWED or ALL, results
        have Result.review and Result.receipt; model_version is for the receipts. classes, if given,
        must equal the policy's; posterior says how the passes are sampled, as in mc-dropout.
        """
        common = _settings.settings(detail, receipts, model_version, classes, kind, posterior)
        session = Session(self._engine, _settings.header(model, passes, accept_settled, common))
        self._sessions.add(session)
        return session

    def decompose(
        self,
        model: str,
        values: Any,
        ids: Iterable[str] | None = None,
        detail: int = VECTORS,
        patience: float | None = None,
        receipts: int = NO_RECEIPTS,
        model_version: str = "",
        contexts: Sequence[Context] | None = None,
        *,
        layout: str = "snk",
        classes: Sequence[str] = (),
        kind: int = 0,
        posterior: str = "",
    ) -> list[Result]:
        """Returns the results for complete passes, an array [passes, inputs, classes].

        With layout="nsk", the array is [inputs, passes, classes]. Without ids, a shape that fits only
        the other order by the passes that the policy expects raises ValueError.

        A batch that is too large for one message is sent in several calls. patience, if given,
        replaces the client's. The rest is as in session, contexts as in Session.decide. Receipts need
        ids of the caller's. Invalid values, ids or contexts raise TypeError or ValueError before
        anything is sent.
        """
        common = _settings.settings(detail, receipts, model_version, classes, kind, posterior)
        return _run(self._engine.decompose(model, Complete(values, ids, contexts, layout), patience, common))

    def report_outcomes(self, outcomes: Iterable[Outcome], patience: float | None = None) -> list[Answer]:
        """Sends outcomes to a daemon that keeps a ledger. Returns one Answer for each, in order.

        What is answered as counted is on its disk. Sending an outcome again does no harm.
        """
        return _run(self._engine.report(outcomes, patience))


class Session:
    """Decides one batch after the other, over streams to the daemon. Threads may share it.

    Each batch that is decided at one time has a stream of its own. When a stream breaks, another is
    opened, and inputs without an answer are sent again. That is safe, because a decision changes
    nothing but counts.
    """

    def __init__(self, engine: Engine, header: Any) -> None:
        self._engine, self._header = engine, header
        self._idle: queue.SimpleQueue[Link] = queue.SimpleQueue()
        self._last: Link | None = None

    @property
    def info(self) -> Any:
        """What the daemon stated last, as ckd.v1.StreamInfo; None before the first batch."""
        return self._last.info if self._last else None

    def close(self) -> None:
        """Closes the streams that are not in use."""
        while (link := self._borrow()) is not None:
            link.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def decide(
        self,
        ids: Iterable[str],
        forward: Any,
        passes: int | None = None,
        contexts: Sequence[Context] | None = None,
        layout: str = "snk",
    ) -> list[Result]:
        """Returns one result for every id, in their order.

        forward(rows) computes one pass of the inputs that still need one and returns an array
        [rows, classes]; rows is an array of their positions in ids, rising. It is called until all
        inputs are answered, but no more often than the daemon expects, or than passes if that is
        less. Instead of a function, forward may be an array [passes, inputs, classes], or with
        layout="nsk" [inputs, passes, classes], or an iterable that yields passes of all inputs. Each
        pass is copied as it comes: forward may write all of them to one buffer.

        Where early stopping is in force, each pass is sent at once, after the fewest that the policy
        accepts, and forward is called only when the daemon has dealt with the pass before; otherwise
        passes go in few blocks. All are kept until the batch is answered. Results are errors if no
        answer comes within the client's patience, not counting the time that forward takes.

        contexts, if given, says for each input what its receipt holds beside the decision: None, or a
        dict with "group", such as a patient, and "slices", a dict of str.

        Invalid ids, contexts or passes raise TypeError or ValueError before anything is sent, or, if
        forward computes passes one by one, before that pass is sent.
        """
        batch = Batch(ids, forward, passes, contexts, layout)
        link = self._borrow() or Link(self._header)
        try:
            return _run(self._engine.decide(link, batch))
        finally:
            self._last = link
            self._idle.put(link)

    def _borrow(self) -> Link | None:
        try:
            return self._idle.get_nowait()
        except queue.Empty:
            return None


def _channel(target: Target, credentials: Any) -> Any:
    if credentials is None:
        return grpc.insecure_channel(target.address, target.options())
    return grpc.secure_channel(target.address, credentials, target.options())


def _same(message: bytes) -> bytes:
    return message


class _Transport:
    """Blocks where the coroutines of the engine wait."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._watchdog = _Watchdog()

    async def call(self, method: str, request: bytes, timeout: float, wait: bool) -> bytes:
        unary = self.connection.channel().unary_unary(method, _same, _same)
        with rpc_errors():
            reply: bytes = unary(request, timeout=timeout, metadata=self.connection.metadata(), wait_for_ready=wait)
        return reply

    async def open(self, method: str, wait: bool) -> Stream:
        channel = self.connection.channel()
        return _Stream(channel, method, self.connection.metadata(), wait, self._watchdog)

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class _Stream:
    """A stream that is read in the thread of the caller, which costs least."""

    def __init__(self, channel: Any, method: str, metadata: Any, wait: bool, watchdog: _Watchdog) -> None:
        self._channel = channel  # keeps the channel open, also after it was replaced
        self._watchdog, self._expired = watchdog, False
        self._requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        call = channel.stream_stream(method, _same, _same)
        self._call = left_to_parent(call(iter(self._requests.get, None), metadata=metadata, wait_for_ready=wait))

    async def send(self, message: bytes) -> None:
        self._requests.put(message)

    async def receive(self, timeout: float) -> bytes | None:
        watch = self._watchdog.begin(time.monotonic() + timeout, self._expire)
        try:
            message: bytes = next(self._call)
            return message
        except StopIteration:
            raise InternalError("the daemon ended the stream") from None
        except grpc.RpcError as error:
            if self._expired:
                return None
            raise error_of_call(error) from None
        finally:
            self._watchdog.end(watch)

    def _expire(self) -> None:
        self._expired = True
        self._call.cancel()

    def active(self) -> bool:
        return bool(self._call.is_active())

    def close(self) -> None:
        self._requests.put(None)  # ends grpc's thread that waits for it
        self._call.cancel()

    def __del__(self) -> None:
        if hasattr(self, "_requests"):
            self._requests.put(None)  # for a session that was dropped without close


class _Watchdog:
    """Ends waits at their deadlines, in one thread for all of a client.

    A timer for each wait would cost as much as a small batch.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # without the condition around it, it costs a tenth
        self._changed = threading.Condition(self._lock)
        self._waits: dict[object, tuple[float, Callable[[], None]]] = {}
        self._thread: threading.Thread | None = None
        self._wakes = 0.0  # when the thread looks next

    def begin(self, deadline: float, expire: Callable[[], None]) -> object:
        """Calls expire after the deadline, unless the wait has ended by then."""
        watch = object()
        with self._lock:
            self._waits[watch] = deadline, expire
            if self._thread is None:
                self._thread = threading.Thread(target=self._look, name="ckd-deadlines", daemon=True)
                self._thread.start()
            elif deadline < self._wakes:
                self._changed.notify()
        return watch

    def end(self, watch: object) -> None:
        with self._lock:
            self._waits.pop(watch, None)

    def _look(self) -> None:
        with self._changed:
            idle = False
            while True:
                now = time.monotonic()
                for watch in [w for w, (deadline, _) in self._waits.items() if deadline <= now]:
                    self._waits.pop(watch)[1]()
                if self._waits:
                    idle = False
                    self._wakes = min(deadline for deadline, _ in self._waits.values())
                elif idle:
                    self._thread = None
                    return
                else:
                    idle, self._wakes = True, now + 1.0  # waits follow each other; a thread for each would cost
                self._changed.wait(self._wakes - now)
