"""Holds the client for asyncio. It promises what ckd.Client does.

    async with ckd.aio.Client("unix:/run/ckd/ckd.sock") as client, client.session("fetal-health") as session:
        results = await session.decide(ids, forward)

Tasks may share a client and a session. forward may be a coroutine function, and passes may come from
an asynchronous iterable.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any

import grpc
import grpc.aio

from . import _settings
from ._arrays import Context
from ._connection import Connection, Path, Target, left_to_parent, rpc_errors
from ._engine import Answer, Batch, Complete, Engine, Link, Model, Outcome, Stream
from ._errors import InternalError, UnavailableError
from ._result import Result
from ._settings import NO_RECEIPTS, VECTORS

__all__ = ["Client", "Session"]


class Client:
    """A connection to a daemon, for one event loop. The arguments are those of ckd.Client."""

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
        self._transport = _Transport(Connection(target, _channel, forks=False))
        self._engine = Engine(self._transport, patience, message_bytes)

    @property
    def patience(self) -> float:
        """How many seconds an answer may take, without the time that the model takes."""
        return self._engine.patience

    @patience.setter
    def patience(self, seconds: float) -> None:
        self._engine.patience = seconds

    async def close(self) -> None:
        """Closes the connection, and with it the streams of sessions."""
        closing = self._transport.connection.close()
        if closing is not None:
            await closing

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def models(self) -> list[Model]:
        """Returns every model for which the daemon has a policy, sorted by name."""
        return await self._engine.models()

    async def model(self, name: str) -> Model:
        """Returns one model with the policy in force."""
        return await self._engine.model(name)

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
        """Returns a session, as ckd.Client.session does."""
        common = _settings.settings(detail, receipts, model_version, classes, kind, posterior)
        return Session(self._engine, _settings.header(model, passes, accept_settled, common))

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
    ) -> Coroutine[Any, Any, list[Result]]:
        """Returns the results for complete passes, as ckd.Client.decompose does.

        The values are copied before the coroutine is returned: they may change while it is awaited.
        """
        common = _settings.settings(detail, receipts, model_version, classes, kind, posterior)
        return self._engine.decompose(model, Complete(values, ids, contexts, layout, own=True), patience, common)

    async def report_outcomes(self, outcomes: Iterable[Outcome], patience: float | None = None) -> list[Answer]:
        """Sends outcomes to a daemon that keeps a ledger, as ckd.Client.report_outcomes does."""
        return await self._engine.report(outcomes, patience)


class Session:
    """Decides batches, as ckd.Session does. Batches that are decided at one time have streams of their own."""

    def __init__(self, engine: Engine, header: Any) -> None:
        self._engine, self._header = engine, header
        self._idle: list[Link] = []
        self._last: Link | None = None

    @property
    def info(self) -> Any:
        """What the daemon stated last, as ckd.v1.StreamInfo; None before the first batch."""
        return self._last.info if self._last else None

    def close(self) -> None:
        """Closes the streams that are not in use."""
        while self._idle:
            self._idle.pop().close()

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def decide(
        self,
        ids: Iterable[str],
        forward: Any,
        passes: int | None = None,
        contexts: Sequence[Context] | None = None,
        layout: str = "snk",
    ) -> Coroutine[Any, Any, list[Result]]:
        """Returns one result for every id, in their order, as ckd.Session.decide does.

        forward may also be a coroutine function, or an asynchronous iterable of passes. An array is
        copied before the coroutine is returned: it may change while the coroutine is awaited.
        """
        return self._decide(Batch(ids, forward, passes, contexts, layout, own=True))

    async def _decide(self, batch: Batch) -> list[Result]:
        link = self._idle.pop() if self._idle else Link(self._header)
        try:
            return await self._engine.decide(link, batch)
        finally:
            self._last = link
            self._idle.append(link)


def _channel(target: Target, credentials: Any) -> Any:
    if credentials is None:
        return grpc.aio.insecure_channel(target.address, target.options())
    return grpc.aio.secure_channel(target.address, credentials, target.options())


class _Transport:
    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    async def call(self, method: str, request: bytes, timeout: float, wait: bool) -> bytes:
        unary = self.connection.channel().unary_unary(method)
        with rpc_errors():
            reply: bytes = await unary(
                request, timeout=timeout, metadata=self.connection.metadata(), wait_for_ready=wait
            )
        return reply

    async def open(self, method: str, wait: bool) -> Stream:
        return _Stream(self.connection.channel(), method, self.connection.metadata(), wait)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class _Stream:
    """A stream of grpc.aio. What it sends before it is connected is kept by grpc."""

    def __init__(self, channel: Any, method: str, metadata: Any, wait: bool) -> None:
        self._channel = channel  # keeps the channel open, also after it was replaced
        self._call = left_to_parent(channel.stream_stream(method)(metadata=metadata, wait_for_ready=wait))
        self._unsent: list[bytes] = []

    async def send(self, message: bytes) -> None:
        # Writing waits until there is a connection, without a limit: receive has one.
        self._unsent.append(message)

    async def receive(self, timeout: float) -> bytes | None:
        with rpc_errors():
            try:
                message = await asyncio.wait_for(self._exchange(), timeout)
            except asyncio.TimeoutError:
                return None
            except asyncio.CancelledError:
                if self._call.cancelled() and not _cancelling():
                    raise UnavailableError("the stream was closed") from None
                raise
        if message is grpc.aio.EOF:
            raise InternalError("the daemon ended the stream")
        return bytes(message)

    async def _exchange(self) -> Any:
        while self._unsent:
            message = self._unsent.pop(0)
            try:
                await self._call.write(message)
            except asyncio.InvalidStateError:  # the stream has ended: reading says why
                self._unsent.clear()
        return await self._call.read()

    def active(self) -> bool:
        return not self._call.done()

    def close(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop may be closed
            self._call.cancel()


def _cancelling() -> bool:
    """Reports whether the task itself is cancelled, as far as Python tells."""
    task = asyncio.current_task()
    return task is None or not hasattr(task, "cancelling") or task.cancelling() > 0
