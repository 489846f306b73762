"""Sends passes and collects results, for both clients.

This is written once, in coroutines. The asyncio client awaits them. The other client runs them with
a transport whose coroutines block instead of waiting, so that one step runs each to its end.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import os
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Protocol

import numpy as np

from . import _wire
from ._arrays import (
    Context, Values, checked_contexts, checked_ids, copied, described, encoded, layout_of, listed, numeric, ordered, swapped,
)  # fmt: skip
from ._connection import Connection
from ._errors import RESOURCE_EXHAUSTED, UNAUTHENTICATED, Error, RefusedError, UnavailableError, ended, error_of, late
from ._result import Policy, Result, policy_of, result_of

_SNK = 1  # the layout of complete passes on the wire: [passes][inputs][classes]
_OUTCOMES_PER_CALL = 1000  # the ledger writes each call to its disk before it answers
_INPUTS_PER_CALL = 65536  # the daemon's default limit
_OVERHEAD = 128  # bounds the bytes that tags, lengths and numbers add to a message
_BLOCK_BYTES = 256 << 10  # passes that need not go at once are sent in blocks of about this size

_STATUSES, _WANTED, _KINDS = _wire.names("OutcomeStatus"), _wire.names("Wanted"), _wire.numbers("OutcomeKind")


class Stream(Protocol):
    """A stream to the daemon."""

    async def send(self, message: bytes) -> None: ...

    async def receive(self, timeout: float) -> bytes | None:
        """Returns the next message, or None if none comes within timeout. Raises Error at the end."""

    def active(self) -> bool: ...

    def close(self) -> None: ...


class Transport(Protocol):
    """What differs between the clients."""

    connection: Connection

    async def call(self, method: str, request: bytes, timeout: float, wait: bool) -> bytes: ...

    async def open(self, method: str, wait: bool) -> Stream: ...

    async def sleep(self, seconds: float) -> None: ...


@dataclasses.dataclass
class Outcome:
    """What is true about one input, according to one source."""

    receipt: bytes  # as it came with the decision
    truth: str  # the true class, by its name in the policy
    source: str  # who says so: an opaque name
    time: float = 0.0  # when it was found out, in seconds since 1970; 0 for now
    saw_model: bool = False  # whether that person had seen the model's answer
    kind: str = "reading"  # or biopsy, or follow_up


@dataclasses.dataclass
class Answer:
    """What became of one outcome."""

    status: str  # counted, corrected, duplicate, ...; unsent if the daemon did not answer
    predicted: str = ""  # what the model had said, to confirm that it is the right case
    wanted: str = ""  # second_read or third_read, by another source; empty for none
    error: str = ""  # why it was not kept


@dataclasses.dataclass(frozen=True)
class Model(_wire.Pickled):
    """A model by its policy in force. message has the rest, as ckd.v1.Model."""

    policy: Policy
    classes: tuple[str, ...]
    critical: tuple[str, ...]
    safe: tuple[str, ...]
    fewest_passes: int
    expected_passes: int
    observes: bool
    message: Any = dataclasses.field(repr=False)


class Limit:
    """The time within which an answer must come, without the time that the model takes."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self._until = seconds, time.monotonic() + seconds

    def left(self) -> float:
        return max(self._until - time.monotonic(), 0)

    def late(self) -> Error:
        return late(self.seconds)

    def exclude(self, seconds: float) -> None:
        """Does not count so many seconds."""
        self._until += seconds


class Engine:
    """Does what both clients do, over a transport."""

    def __init__(self, transport: Transport, patience: float, message_bytes: int) -> None:
        self.transport, self.patience, self._message_bytes = transport, patience, message_bytes
        self._names: dict[str, tuple[str, ...]] = {}  # class names by hash of the policy
        self._latest: dict[str, Any] = {}  # models as the daemon described them last, by name

    async def models(self) -> list[Model]:
        request = _wire.ListModelsRequest()
        reply = await self._call(_wire.LIST_MODELS, request, _wire.ListModelsResponse)
        return [_model_of(m) for m in reply.models]

    async def model(self, name: str) -> Model:
        request = _wire.GetModelRequest(model=name)
        return _model_of((await self._call(_wire.GET_MODEL, request, _wire.GetModelResponse)).model)

    async def _call(self, method: str, request: Any, reply: Any) -> Any:
        """Makes a call until it works or patience ends, and then raises its error."""
        answers = []

        async def attempt(limit: Limit, wait: bool) -> None:
            answers.append(await self._once(method, request, reply, limit, wait))

        error = await self.retry(attempt, Limit(self.patience))
        if error is not None:
            raise error
        return answers[0]

    async def _once(self, method: str, request: Any, reply: Any, limit: Limit, wait: bool) -> Any:
        return reply.FromString(await self.transport.call(method, request.SerializeToString(), limit.left(), wait))

    async def report(self, outcomes: Iterable[Outcome], patience: float | None) -> list[Answer]:
        answers: list[Answer] = []
        limit, outcomes = Limit(self.patience if patience is None else patience), list(outcomes)
        kinds = [kind for kind in _KINDS if kind != "unspecified"]
        for i, o in enumerate(outcomes):
            if o.kind not in kinds:
                raise ValueError(f"outcomes[{i}].kind is {o.kind!r}, expected {', '.join(kinds[:-1])} or {kinds[-1]}")
        while len(answers) < len(outcomes):
            request = _wire.ReportOutcomesRequest()
            for o in outcomes[len(answers) : len(answers) + _OUTCOMES_PER_CALL]:
                one = request.outcomes.add(
                    receipt=o.receipt, truth=o.truth, source=o.source, saw_model=o.saw_model, kind=_KINDS[o.kind]
                )
                if o.time:
                    one.time.seconds, one.time.nanos = divmod(int(o.time * 1e9), 10**9)

            async def attempt(limit: Limit, wait: bool, request: Any = request) -> None:
                reply = await self._once(_wire.REPORT_OUTCOMES, request, _wire.ReportOutcomesResponse, limit, wait)
                if len(reply.answers) != len(request.outcomes):
                    raise ended(f"{len(reply.answers)} answers, expected {len(request.outcomes)}")
                answers.extend(
                    Answer(_STATUSES[a.status], a.predicted, _WANTED[a.wanted] if a.wanted else "", a.error.message)
                    for a in reply.answers
                )

            error = await self.retry(attempt, limit)
            if error is not None:
                answers.extend(Answer("unsent", error=str(error)) for _ in range(len(outcomes) - len(answers)))
        return answers

    async def decompose(
        self, model: str, complete: Complete, patience: float | None, settings: dict[str, Any]
    ) -> list[Result]:
        if settings["receipts"] and not complete.named:
            raise ValueError("receipts without ids, expected a str for each input: the same whenever it is sent again")
        values, names, messages = complete.values, complete.ids, complete.contexts
        passes, inputs, classes = values.shape
        results: list[Result] = []
        limit = Limit(self.patience if patience is None else patience)
        while len(results) < inputs:
            at = len(results)
            to = self._cut(names, messages, at, 4 * passes * classes)
            request = _wire.DecomposeRequest(
                model=model, layout=_SNK, passes=passes, inputs=to - at, input_ids=names[at:to],
                values_le=encoded(values[:, at:to]).tobytes(), contexts=messages[at:to], **settings,
            )  # fmt: skip

            async def attempt(limit: Limit, wait: bool, request: Any = request) -> None:
                await self._check_shape(model, complete, limit, wait)
                reply = await self._once(_wire.DECOMPOSE, request, _wire.DecomposeResponse, limit, wait)
                if [r.row for r in reply.results] != list(range(request.inputs)):
                    raise ended(f"results for {len(reply.results)} rows, expected {request.inputs}, in order")
                known = await self._names_of(reply.policy, limit)
                policy = policy_of(reply.policy) if reply.HasField("policy") else None
                first = len(results)
                for i, r in enumerate(reply.results):
                    results.append(result_of(names[first + i], first + i, r, known, policy))

            error = await self.retry(attempt, limit)
            if error is not None and not await self._learn(error, model):
                results.extend(Result(names[row], error=error, row=row) for row in range(len(results), inputs))
        return results

    async def _learn(self, error: Error, model: str) -> bool:
        """Learns the daemon's limit on the size of a message if it refused a larger one.

        Returns whether that is less than before. gRPC refuses such a message itself, without a reason.
        """
        if error.code != RESOURCE_EXHAUSTED or error.reason:
            return False
        request = _wire.GetModelRequest(model=model)
        with contextlib.suppress(Error):
            reply = (await self._once(_wire.GET_MODEL, request, _wire.GetModelResponse, Limit(self.patience), False)).model
            if 0 < reply.limits.message_bytes < self._message_bytes:
                self._message_bytes = reply.limits.message_bytes
                return True
        return False

    def _cut(self, ids: list[str], contexts: list[Any], at: int, input_bytes: int) -> int:
        """Returns the end of the call that begins with input at."""
        size, to = _OVERHEAD, at
        while to < len(ids) and to - at < _INPUTS_PER_CALL:
            size += input_bytes + 4 * len(ids[to]) + 6 + (contexts[to].ByteSize() + 6 if contexts else 0)
            if size > self._message_bytes and to > at:
                break
            to += 1
        return to

    async def _check_shape(self, model: str, complete: Complete, limit: Limit, wait: bool) -> None:
        """Raises ValueError if the model's policy is known not to fit the shape of complete passes."""
        known = self._latest.get(model)
        try:
            if known is None or complete.misfit(known):  # the policy may have been replaced
                known = await self._ask(model, limit, wait)
        except Error as error:
            if error.retryable or error.code == UNAUTHENTICATED:
                raise
            return  # the call itself will report the error
        if misfit := complete.misfit(known):
            raise ValueError(misfit)

    async def _names_of(self, policy: Any, limit: Limit) -> tuple[str, ...]:
        """Returns the class names of the policy that decided, or none if they cannot be learned."""
        if policy.hash not in self._names:
            with contextlib.suppress(Error):  # the decision is valid without names
                await self._ask(policy.model, limit, False)
                self._names.setdefault(policy.hash, ())  # the policy was replaced; do not ask again
        return self._names.get(policy.hash, ())

    async def _ask(self, model: str, limit: Limit, wait: bool) -> Any:
        """Returns the daemon's description of a model."""
        request = _wire.GetModelRequest(model=model)
        reply = (await self._once(_wire.GET_MODEL, request, _wire.GetModelResponse, limit, wait)).model
        self._names[reply.policy.hash], self._latest[model] = tuple(reply.classes), reply
        return reply

    async def retry(self, attempt: Callable[[Limit, bool], Awaitable[None]], limit: Limit) -> Error | None:
        """Repeats an attempt until it works or the limit is over. Returns the last error, or None.

        The first attempt fails at once without a connection, and says why. Later attempts wait for
        one, because grpc reconnects quickly only while a call waits for it; but not for a daemon of
        this process, which says when it has ended for good.
        """
        delay, before, token = 0.1, "", self.transport.connection.token
        while True:
            presented = token.current() if token else ""
            try:
                await attempt(limit, bool(before) and self.transport.connection.daemon is None)
                return None
            except Error as error:
                last = error
            daemon = self.transport.connection.daemon
            if daemon is not None and daemon.ended is not None and last.retryable:
                return daemon.ended  # type: ignore[no-any-return]
            if token and last.code == UNAUTHENTICATED and token.current() != presented:
                continue
            if isinstance(last, UnavailableError) and not last.gone:
                return late_error(limit, before)
            wait = max(delay * random.uniform(0.5, 1), last.retry_delay or 0)
            if not last.retryable or wait > limit.left():
                return last
            await self.transport.sleep(wait)
            # Longer waits relieve an overloaded daemon, but not one that is gone.
            delay, before = min(2 * delay, 0.5 if last.gone else 3.0), last.message

    async def decide(self, link: Link, batch: Batch) -> list[Result]:
        """Returns one result for every input of a batch, over a link."""
        self.transport.connection.owned()
        if not batch.ids:
            return []
        if not link.active():
            link.close()  # it ended after the last batch, for example because the policy's classes changed

        async def attempt(limit: Limit, wait: bool) -> None:
            done = False
            try:
                await self._attempt(link, batch, limit, wait)
                done = True
            finally:
                if not done:
                    link.close()  # abandons what is open on the stream

        error = await self.retry(attempt, Limit(self.patience))
        return [batch.results.get(i) or Result(id, error=error, row=i) for i, id in enumerate(batch.ids)]

    async def _attempt(self, link: Link, batch: Batch, limit: Limit, wait: bool) -> None:
        if link.stream is None:
            await link.open(self.transport, limit, wait)
        batch.fits(link.info)
        group = Group(batch, link)
        # Only where answers may save the next pass is it sent at once. Elsewhere few blocks cost less: no
        # input is decided before it has the fewest passes that its policy accepts.
        stepwise, fewest = batch.lazy and link.info.settles and link.info.acknowledges, link.info.fewest_passes
        kept = iter(list(batch.kept))
        while group.left:
            computed = next(kept, None)
            if computed is None and stepwise and len(batch.kept) >= fewest:
                await group.flush()
                while link.dealt < link.blocks and group.left:
                    group.handle(await link.receive(limit))
                if not group.left:
                    break
            if computed is None:
                begun = time.monotonic()
                computed = await batch.compute()
                limit.exclude(time.monotonic() - begun)
            if computed is None:
                await group.flush(final=True)
                break
            group.add(*computed)
            if group.held >= _BLOCK_BYTES:
                await group.flush()
        while group.left:
            group.handle(await link.receive(limit))
        if group.refused:
            raise group.refused


def late_error(limit: Limit, before: str) -> Error:
    """Returns the error of an answer that did not come in time, with what stood in its way."""
    error = limit.late()
    return UnavailableError(f"{error.message}; before that: {before}") if before else error


class Link:
    """A stream of a session, which is opened when it is needed."""

    def __init__(self, header: Any) -> None:
        self._header = header
        self._process = os.getpid()
        self.stream: Stream | None = None
        self.info: Any = None  # the daemon's first reply: classes, expected passes, limits
        self.groups = self.blocks = self.dealt = 0  # opened; sent; acknowledged

    def active(self) -> bool:
        return self.stream is None or self.stream.active()

    async def open(self, transport: Transport, limit: Limit, wait: bool) -> None:
        self.groups = self.blocks = self.dealt = 0
        self.stream = await transport.open(_wire.DECOMPOSE_STREAM, wait)
        await self.stream.send(self._header.SerializeToString())
        self.info = (await self.receive(limit)).info
        if not self.info.classes:
            raise ended("the first reply states no classes")

    async def send(self, block: bytes) -> None:
        assert self.stream is not None
        self.blocks += 1
        await self.stream.send(block)

    async def receive(self, limit: Limit) -> Any:
        """Returns the daemon's next reply."""
        assert self.stream is not None
        message = await self.stream.receive(limit.left())
        if message is None:
            raise limit.late()
        reply = _wire.StreamResponse.FromString(message)
        self.dealt = max(self.dealt, reply.blocks)  # 0 in a reply that answers no block
        return reply

    def close(self) -> None:
        """Abandons what is open. A process that was forked leaves the stream to its parent."""
        if self.stream is not None and self._process == os.getpid():
            self.stream.close()
        self.stream = None


class Complete:
    """Complete passes with their ids and contexts, checked. With own, values are a copy."""

    def __init__(
        self, values: Any, ids: Iterable[str] | None, contexts: Sequence[Context] | None, layout: str, own: bool = False
    ) -> None:
        self.named = ids is not None
        self.ids = checked_ids(ids) if ids is not None else []
        self.values = ordered(values, layout, "values", len(self.ids) if self.named else None, "ids")
        passes, inputs, classes = self.values.shape
        if inputs and not (passes and classes):
            raise ValueError(f"values have {passes} passes and {classes} classes, expected at least one of each")
        if not self.named:
            self.ids = [str(i) for i in range(inputs)]
        self.contexts, self._layout = checked_contexts(contexts, inputs), layout_of(layout)
        self.values = copied(self.values) if own else self.values

    def misfit(self, model: Any) -> str:
        """Says why the shape does not fit a model, or returns an empty text.

        Without ids, the number of passes that the policy expects tells one order of axes from the other.
        """
        passes, inputs, classes = self.values.shape
        if len(model.classes) != classes:
            return f"values have {classes} classes, expected {listed(model.classes)} of model {model.policy.model!r}"
        expected, fewest = model.expected_passes, model.fewest_passes
        if self.named or not (inputs == expected != passes or passes < fewest <= inputs):
            return ""
        return (
            f"values have {passes} passes of {inputs} inputs, expected {expected or fewest} passes by the policy of"
            f" {model.policy.model!r}{swapped(self._layout)}; ids=[...] says how many inputs there are"
        )


class Batch:
    """Inputs that are decided together, with the passes so far of those without a result.

    What forward returns or yields is copied at once. A complete array stays the caller's, and is read
    until the batch is answered; with own, it is copied too.
    """

    def __init__(
        self,
        ids: Iterable[str],
        forward: Any,
        passes: int | None,
        contexts: Sequence[Context] | None,
        layout: str = "snk",
        own: bool = False,
    ) -> None:
        self._layout, self._own = layout_of(layout), own
        self.ids = checked_ids(ids)
        self.contexts = checked_contexts(contexts, len(self.ids))
        self.results: dict[int, Result] = {}
        self._rows = np.arange(len(self.ids))  # those without a result, as of when they were counted
        self.kept: list[tuple[Any, Values]] = []
        self.classes: tuple[str, ...] | None = None
        self._forward, self._passes = forward, passes or None
        self._chooses = callable(forward)  # whether forward computes passes for chosen rows
        self.lazy = True  # whether a pass that is not needed is not computed
        self._most = 0  # passes that are computed; 0 if nothing but the iterable ends them
        self._yielded: Any = None
        if self._layout != "snk" and (self._chooses or not hasattr(forward, "shape") and not isinstance(forward, (list, tuple))):
            raise ValueError(f"layout={layout!r} beside passes one by one, which are [inputs, classes] each: expected a complete array")
        if not self._chooses and self.ids:
            checked = self._checked(forward)
            self._yielded = checked.__aiter__() if hasattr(checked, "__aiter__") else iter(checked)

    def fits(self, info: Any) -> None:
        """Raises an error if a new stream takes other inputs than the one before."""
        classes, most = tuple(info.classes), info.limits.open_inputs_per_stream
        if most and len(self.ids) > most:
            raise ValueError(f"found a batch of {len(self.ids)} inputs, expected at most {most}, which a stream may have open")
        if self.classes is None:
            self.classes = classes
        elif self.classes != classes:
            text = f"the policy changed while the stream was broken: {listed(classes)}, expected {listed(self.classes)}"
            raise RefusedError(text, reason="POLICY_CHANGED")
        self._most = min(filter(None, (self._passes, info.expected_passes)), default=0)

    def rows(self) -> Any:
        """Returns the rows without a result, rising."""
        if len(self._rows) + len(self.results) != len(self.ids):
            self._rows = np.array([i for i in self._rows if i not in self.results], dtype=np.intp)
        return self._rows

    async def compute(self) -> tuple[Any, Values] | None:
        """Returns the rows of all inputs without a result and their next pass, or None for the end."""
        if self._chooses and not self._most:
            raise ValueError("the daemon expects no number of passes, expected passes=...")
        if self._most and len(self.kept) >= self._most:
            return None
        rows = self.rows()
        if self._chooses:
            values = self._forward(rows.copy())
            if type(values) is not np.ndarray and inspect.isawaitable(values):
                values = await values
            values = self._pass(values, len(rows))
        else:
            if hasattr(self._yielded, "__anext__"):
                values = await _next(self._yielded)
            else:
                values = next(self._yielded, None)
            if values is None:
                return None
            values = self._pass(values, len(self.ids))
            values = values if len(rows) == len(self.ids) else values[rows]
        # Models write the next pass to the same buffer: TensorRT, I/O binding, out=.
        self.kept.append((rows, copied(values) if self.lazy else encoded(values)))
        return self.kept[-1]

    def _checked(self, forward: Any) -> Any:
        """Returns passes that are all there as arrays that fit the ids, and leaves others alone."""
        if isinstance(forward, (list, tuple)) and self._layout == "snk":
            self.lazy = False
            self._enough(len(forward))
            passes = [self._pass(values, len(self.ids), at, len(forward)) for at, values in enumerate(forward)]
            return [copied(values) for values in passes] if self._own else passes
        if not hasattr(forward, "shape") and not isinstance(forward, (list, tuple)):
            if not hasattr(forward, "__iter__") and not hasattr(forward, "__aiter__"):
                raise TypeError(f"found {described(forward)}, expected a function of rows, or an array [passes, inputs, classes]")
            return forward
        self.lazy = False
        values = ordered(forward, self._layout, "passes", len(self.ids), "ids")
        self._enough(len(values))
        return copied(values) if self._own else values

    def _enough(self, passes: int) -> None:
        if self._passes is not None and passes < self._passes:
            raise ValueError(f"found {passes} passes, expected {self._passes}, as was asked for")

    def _pass(self, values: Any, rows: int, at: int | None = None, passes: int = 0) -> Any:
        """Returns one pass as an array, after a look at its shape. passes counts those of a list."""
        what = f"pass {len(self.kept) if at is None else at}"
        values = numeric(values, what)
        columns = len(self.classes) if self.classes else "classes"
        if values.ndim != 2 or len(values) != rows or (self.classes and values.shape[1] != columns):
            text = f"{what} has the shape {values.shape}, expected ({rows}, {columns}): {rows} inputs"
            hint = swapped("snk") if passes == rows and values.ndim == 2 else ""
            raise ValueError(text + (f" and {listed(self.classes)}" if self.classes else "") + hint)
        return values


class Group:
    """The inputs of a batch that lack a result, on one stream."""

    def __init__(self, batch: Batch, link: Link) -> None:
        self._batch, self._link, self._opened = batch, link, False
        self.rows = batch.rows()  # rows of the batch; the position here is the row on the wire
        self.waiting = np.ones(len(self.rows), dtype=bool)  # whether an input lacks an answer, by position
        self.left = len(self.rows)  # inputs that lack an answer
        self.refused: Error | None = None  # why some inputs must be sent again
        self._passes: list[Values] = []  # of the inputs that wait, not sent yet
        self.held = 0  # bytes of these
        self._most = min(link.info.limits.message_bytes or (512 << 10), 512 << 10)  # small ones are read while others arrive
        self._each = max((self._most - _OVERHEAD) // (4 * len(link.info.classes) + 5), 1)  # rows of passes in one message
        self._head: tuple[int, bytes] | None = None  # of a block with all inputs that wait, by its number of passes

    def add(self, rows: Any, values: Values) -> None:
        """Adds a pass of some rows of the batch, which has all inputs that wait."""
        if len(rows) != self.left:
            values = values[np.searchsorted(rows, self.rows[self.waiting])]
        self._passes.append(values)
        self.held += values.nbytes

    async def flush(self, final: bool = False) -> None:
        """Sends the passes that were added. With final, the daemon decides by the passes it has."""
        most, each, inputs, passes = self._most, self._each, self.left, len(self._passes)
        step = max(each // max(inputs, 1), 1)
        if not self._opened:
            opening = sum(4 * len(id) + 6 for id in self._batch.ids) + sum(c.ByteSize() + 6 for c in self._batch.contexts)
            if opening + self.held > most - _OVERHEAD or inputs > each:
                await self._link.send(self._block(b""))
        for at in range(0, passes, step):
            part = self._passes[at : at + step]
            if inputs <= each:
                values = part[0] if len(part) == 1 else np.concatenate(part)
                last = final and at + step >= passes
                await self._link.send(self._complete(values.tobytes(), len(part), last))
                continue
            wire = self._wire_rows() or list(range(inputs))
            for first in range(0, inputs, each):
                values, some = part[0][first : first + each], wire[first : first + each]
                await self._link.send(self._block(values.tobytes(), passes=1, rows=some))
        if final and (not passes or inputs > each):
            await self._link.send(self._block(b"", final=True))
        self._passes, self.held = [], 0

    def _wire_rows(self) -> list[int]:
        """Returns the rows of the inputs that wait, or none if all do."""
        rows: list[int] = [] if self.left == len(self.rows) else np.flatnonzero(self.waiting).tolist()
        return rows

    def _complete(self, values: bytes, passes: int, final: bool) -> bytes:
        """Returns a block with passes of all inputs that wait. Pass by pass, most are alike but for the values."""
        if not self._opened or final:
            return self._block(values, passes=passes, rows=self._wire_rows(), final=final)
        if self._head is None or self._head[0] != passes:
            fields = _BLOCK(group=self._link.groups, passes=passes, rows=self._wire_rows())
            self._head = passes, _wire.before_values(fields, len(values))
        return self._head[1] + values

    def _block(self, values: bytes, **fields: Any) -> bytes:
        """Returns a block of the group, encoded. The first opens it."""
        if not self._opened:
            self._opened = True
            self._link.groups += 1
            fields["input_ids"] = [self._batch.ids[i] for i in self.rows]
            if self._batch.contexts:
                fields["contexts"] = [self._batch.contexts[i] for i in self.rows]
        return _wire.before_values(_BLOCK(group=self._link.groups, **fields), len(values)) + values

    def handle(self, reply: Any) -> None:
        """Takes the results of a reply."""
        if reply.faults:
            raise error_of(reply.faults[0])
        if not reply.results:
            return
        self._head = None  # other rows wait now
        policies = [policy_of(p) for p in reply.policies]
        for r in reply.results:
            if r.group != self._link.groups or r.row >= len(self.rows) or not self.waiting[r.row]:
                raise ended(f"row {r.row} of group {r.group} is answered, expected one that waits")
            self.waiting[r.row] = False
            self.left -= 1
            row = int(self.rows[r.row])
            error = error_of(r.error) if r.HasField("error") else None
            if error and error.retryable:
                self.refused = error
                continue
            policy = policies[r.policy] if r.policy < len(policies) else None
            self._batch.results[row] = result_of(self._batch.ids[row], row, r, self._batch.classes or (), policy)


_BLOCK = type(_wire.StreamRequest().block)


def _model_of(message: Any) -> Model:
    classes = tuple(message.classes)
    return Model(
        policy_of(message.policy), classes, tuple(classes[k] for k in message.critical),
        tuple(classes[k] for k in message.safe), message.fewest_passes, message.expected_passes, message.observes, message,
    )  # fmt: skip


async def _next(iterator: Any) -> Any:
    try:
        return await iterator.__anext__()
    except StopAsyncIteration:
        return None
