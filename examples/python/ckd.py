"""A client of ckd, the uncertainty daemon, for model servers in Python.

It needs grpcio, protobuf and numpy, and the file ckd.binpb beside it, which
holds the wire contract; any version of protobuf from 3.20 on reads it, and no
generated code is needed. Copy both files.

An error is never a retain: an input that was answered with an error, or not at
all, has not been cleared. Result.retained is true for nothing but a decision to
retain.
"""

import dataclasses
import pathlib
import queue
import random
import threading
import time

import grpc
import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

# The messages, in a pool of their own: nothing else in the process may disagree.
_pool = descriptor_pool.DescriptorPool()
for _file in descriptor_pb2.FileDescriptorSet.FromString(
    pathlib.Path(__file__).with_name("ckd.binpb").read_bytes()
).file:
    _pool.AddSerializedFile(_file.SerializeToString())
if not hasattr(message_factory, "GetMessageClass"):
    _factory = message_factory.MessageFactory(_pool)


def _message(name):
    descriptor = _pool.FindMessageTypeByName(name)
    if hasattr(message_factory, "GetMessageClass"):
        return message_factory.GetMessageClass(descriptor)
    return _factory.GetPrototype(descriptor)


DecomposeRequest = _message("ckd.v1.DecomposeRequest")
DecomposeResponse = _message("ckd.v1.DecomposeResponse")
StreamRequest = _message("ckd.v1.DecomposeStreamRequest")
StreamResponse = _message("ckd.v1.DecomposeStreamResponse")
Status = _message("google.rpc.Status")
ErrorInfo = _message("google.rpc.ErrorInfo")
RetryInfo = _message("google.rpc.RetryInfo")

DECISION, VECTORS, FULL = 1, 2, 3  # how much a result carries
NSK = 2  # the layout of complete passes: [inputs][passes][classes]

# What time may mend: the daemon stops, or has too much to do.
PASSING = {"DRAINING", "OVERLOADED", "TOO_MANY_STREAMS"}


def _names(enum):
    values = _pool.FindEnumTypeByName("ckd.v1." + enum).values_by_number
    prefix = values[0].name[: -len("UNSPECIFIED")]
    return {number: value.name[len(prefix) :].lower() for number, value in values.items()}


ACTIONS, SCORES, REASONS = _names("Action"), _names("Score"), _names("DecisionReason")


@dataclasses.dataclass
class Result:
    """The answer for one input: a decomposition with its decision, or an error."""

    id: str
    decomposition: object = None
    error: str = ""  # why there is no decision
    reason: str = ""  # the daemon's reason for the error, if it gave one

    @property
    def action(self):
        """retain, defer or observe; error where there is no decision."""
        return "error" if self.decomposition is None else ACTIONS[self.decomposition.decision.action]

    @property
    def retained(self):
        """Whether the model's answer stands; otherwise a person must see the input."""
        return self.action == "retain"

    @property
    def settled(self):
        """Whether it was decided before its last pass; decomposition.passes says on how many."""
        return self.decomposition is not None and self.decomposition.settled

    def __str__(self):
        if self.decomposition is None:
            return f"no decision: {self.error}"
        decision = self.decomposition.decision
        text = f"{self.action}: {SCORES[decision.score]} {decision.value:.4f}"
        if decision.HasField("threshold"):
            text += f", threshold {decision.threshold:.4f}"
        return f"{text} ({REASONS[decision.reason]})"


class Client:
    """A connection to a daemon.

    target is host:port or unix:/path. ca, cert and key are PEM files for TLS;
    token_file holds a bearer token, and is read for every stream and call. Without
    TLS, only a unix socket or the loopback is accepted, unless plaintext says
    otherwise. patience is for how many seconds answers are waited for and inputs are
    sent again.
    """

    def __init__(self, target, *, ca=None, cert=None, key=None, token_file=None, plaintext=False, patience=30.0):
        read = lambda path: pathlib.Path(path).read_bytes() if path else None
        options = [
            ("grpc.max_receive_message_length", 64 << 20),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 3_000),
            # A daemon that is connected, and does not answer any more, is given up; it
            # bears pings every ten seconds.
            ("grpc.keepalive_time_ms", 15_000),
            ("grpc.keepalive_timeout_ms", 10_000),
            ("grpc.http2.max_pings_without_data", 0),
        ]
        if ca or cert:
            credentials = grpc.ssl_channel_credentials(read(ca), read(key), read(cert))
            self._channel = grpc.secure_channel(target, credentials, options)
        elif plaintext or target.startswith("unix:") or target.rsplit(":", 1)[0] in ("localhost", "127.0.0.1", "[::1]"):
            self._channel = grpc.insecure_channel(target, options)
        else:
            raise ValueError(f"{target}: plaintext is for unix sockets and loopback addresses, expected ca=...")
        service = "/ckd.v1.UncertaintyService/"
        self._unary = self._channel.unary_unary(
            service + "Decompose", DecomposeRequest.SerializeToString, DecomposeResponse.FromString
        )
        self._stream = self._channel.stream_stream(
            service + "DecomposeStream", StreamRequest.SerializeToString, StreamResponse.FromString
        )
        self._token_file = token_file
        self.patience = patience

    def close(self):
        self._channel.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def session(self, model, passes=0, detail=VECTORS, accept_settled=False):
        """A stream for batches whose passes are sent as they are computed.

        With accept_settled, inputs are answered as soon as their decision is settled, where
        the policy has a rule for it: see Session.decide.
        """
        return Session(self, model, passes, detail, accept_settled)

    def decompose(self, model, values, ids=None, detail=VECTORS, patience=None):
        """Decides on complete passes, an array [inputs, passes, classes].

        patience, if given, is in place of the client's.
        """
        values = np.ascontiguousarray(values, dtype="<f4")
        inputs, passes, _ = values.shape
        if inputs == 0:
            return []
        ids = list(ids) if ids is not None else [str(i) for i in range(inputs)]
        request = DecomposeRequest(
            model=model, detail=detail, layout=NSK, passes=passes, inputs=inputs, input_ids=ids, values_le=values.tobytes()
        )
        results = {}

        def attempt(limit):
            reply = self._unary(request, metadata=self._metadata(), timeout=limit.left())
            results.update((r.row, _result(ids[r.row], r)) for r in reply.results)

        fault = self._persist(attempt, _Limit(self.patience if patience is None else patience))
        return [results.get(i) or Result(ids[i], error=fault.text, reason=fault.reason) for i in range(inputs)]

    def _metadata(self):
        if not self._token_file:
            return ()
        return (("authorization", "Bearer " + pathlib.Path(self._token_file).read_text().strip()),)

    def _persist(self, attempt, limit):
        """Attempts until it works or the limit is over; gives the fault, if it did not."""
        delay = 0.1
        while True:
            try:
                attempt(limit)
                return None
            except _Fault as fault:
                last = fault
            except grpc.RpcError as error:
                last = _Fault.of_call(error)
            wait = max(delay * random.uniform(0.5, 1), last.retry_delay)
            if not last.passes or wait > limit.left():
                return last
            time.sleep(wait)
            delay = min(2 * delay, 3.0)


class _Limit:
    """The time in which there is to be an answer. What the model takes does not count."""

    def __init__(self, seconds):
        self.seconds, self._until = seconds, time.monotonic() + seconds

    def left(self):
        return max(self._until - time.monotonic(), 0)

    def stands_still(self, work):
        """Does work that does not count."""
        begun = time.monotonic()
        try:
            return work()
        finally:
            self._until += time.monotonic() - begun


class Session:
    """One stream to the daemon, on which one batch after the other is decided.

    It is for one thread: open another session for another. When the stream breaks,
    another takes its place, and inputs without an answer are sent again: deciding
    changes nothing but counts.
    """

    def __init__(self, client, model, passes=0, detail=VECTORS, accept_settled=False):
        self._client, self._call, self._group = client, None, 0
        self._header = StreamRequest()
        header = self._header.header
        header.model, header.passes, header.detail, header.accept_settled = model, passes, detail, accept_settled

    def close(self):
        if self._call is not None:
            self._requests.put(None)
            self._call.cancel()
            self._reader.join()
            self._call = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def decide(self, ids, forward, passes=None):
        """One result for every id, in their order.

        forward(rows) computes one pass of the inputs that still need one, and gives an
        array [rows, classes]; rows is an array of their positions in ids, rising. It is
        called until all inputs are answered, or as often as the daemon expects, or as
        passes says if that is less. Or forward is no function: it yields one pass after the other of all
        inputs, arrays [inputs, classes].

        Where inputs are settled early, forward waits until the daemon has dealt with the
        pass before. Each pass is sent at once, and kept until the batch is answered. Without an
        answer within the client's patience, in which the time that forward takes does
        not count, the results are errors.
        """
        ids = list(ids)
        if not ids:
            return []
        batch = _Batch(ids, forward, passes)

        def attempt(limit):
            try:
                self._attempt(batch, limit)
            except BaseException:
                self.close()  # with what is open on it
                raise

        fault = self._client._persist(attempt, _Limit(self._client.patience))
        return [batch.results.get(i) or Result(ids[i], error=fault.text, reason=fault.reason) for i in range(len(ids))]

    def _attempt(self, batch, limit):
        if self._call is None:
            self._open(limit)
        group = _Group(batch)
        self._group += 1
        block = StreamRequest()
        block.block.group = self._group
        block.block.input_ids.extend(batch.ids[i] for i in group.rows)
        self._send(block)  # the daemon learns of the inputs before their first pass
        kept = iter(list(batch.kept))
        while group.waiting.any():
            computed = next(kept, None)
            if computed is None and batch.chooses and self.info.settles and self.info.acknowledges:
                while self._dealt < self._blocks:  # so that nothing is computed in vain
                    group.take(self._reply(limit))
                if not group.waiting.any():
                    break
            computed = computed or limit.stands_still(lambda: batch.compute(self.info.expected_passes))
            if computed is None:
                block = StreamRequest()
                block.block.group, block.block.final = self._group, True
                self._send(block)
                break
            while (reply := self._reply()) is not None:
                group.take(reply)
            if group.waiting.any():
                self._pass(*group.share(*computed))
        while group.waiting.any():
            group.take(self._reply(limit))
        if group.refused:
            raise group.refused

    def _open(self, limit):
        self._requests, self._replies, self._group = queue.SimpleQueue(), queue.SimpleQueue(), 0
        self._blocks = self._dealt = 0  # that were sent, and that the daemon has dealt with
        self._call = self._client._stream(iter(self._requests.get, None), metadata=self._client._metadata())
        self._reader = threading.Thread(target=_read, args=(self._call, self._replies), daemon=True)
        self._reader.start()
        self._send(self._header)
        # Classes, passes that are expected, limits, and whether inputs may be settled early.
        self.info = self._reply(limit).info

    def _reply(self, limit=None):
        """The daemon's next reply. Without a limit it is not waited for: None where there is none."""
        try:
            reply = self._replies.get(timeout=limit.left()) if limit else self._replies.get_nowait()
        except queue.Empty:
            if limit:
                raise _Fault(f"the daemon did not answer within {limit.seconds:g} s") from None
            return None
        if isinstance(reply, Exception):
            raise reply
        self._dealt = max(self._dealt, reply.blocks)  # 0 in a reply to no block
        return reply

    def _pass(self, rows, values):
        block = StreamRequest()
        block.block.group, block.block.passes, block.block.values_le = self._group, 1, values.tobytes()
        block.block.rows.extend(rows)
        self._send(block)

    def _send(self, request):
        self._blocks += request.HasField("block")
        self._requests.put(request)


def _read(call, replies):
    """Takes what comes on a stream until it ends, and then why it did."""
    try:
        for reply in call:
            replies.put(reply)
        replies.put(_Fault("the daemon ended the stream"))
    except grpc.RpcError as error:
        replies.put(error)


class _Batch:
    """Inputs that are decided together, and all passes so far of those without a result."""

    def __init__(self, ids, forward, passes):
        self.ids, self.results, self.kept = ids, {}, []
        self._forward, self._passes = forward, passes
        self._yielded = None if callable(forward) else iter(forward)
        self.chooses = self._yielded is None  # for which inputs it computes the next pass

    def rows(self):
        return np.array([i for i in range(len(self.ids)) if i not in self.results])

    def compute(self, expected):
        """The next pass of all inputs without a result, with their rows; None when there is none."""
        rows = self.rows()
        if not self.chooses:
            values = next(self._yielded, None) if self._passes is None or len(self.kept) < self._passes else None
            if values is None:
                return None
            values = np.asarray(values)[rows]
        else:
            most = min(filter(None, (self._passes, expected)), default=0)
            if not most:
                raise ValueError("the daemon expects no number of passes, expected passes=...")
            if len(self.kept) >= most:
                return None
            values = np.asarray(self._forward(rows.copy()))
            if len(values) != len(rows):
                raise ValueError(f"forward gave {len(values)} rows, expected {len(rows)}")
        self.kept.append((rows, np.ascontiguousarray(values, dtype="<f4")))
        return self.kept[-1]


class _Group:
    """The inputs of a batch without a result, on one stream."""

    def __init__(self, batch):
        self._batch = batch
        self.rows = batch.rows()  # of the batch; the place here is the row on the wire
        self.waiting = np.ones(len(self.rows), dtype=bool)  # for an answer, by place
        self.refused = None  # why some inputs have to be sent again

    def share(self, rows, values):
        """What a pass of some rows of the batch, of which none that waits is missing, has for those that wait."""
        values = values[np.searchsorted(rows, self.rows[self.waiting])]
        return [] if self.waiting.all() else np.flatnonzero(self.waiting).tolist(), values

    def take(self, reply):
        if reply.faults:
            raise _Fault.of_status(reply.faults[0])
        for r in reply.results:
            self.waiting[r.row] = False
            row = int(self.rows[r.row])
            fault = _Fault.of_status(r.error) if r.HasField("error") else None
            if fault and fault.passes:
                self.refused = fault
            else:
                self._batch.results[row] = _result(self._batch.ids[row], r)


class _Fault(Exception):
    """Why an attempt failed, and whether another may do better."""

    def __init__(self, text, reason="", passes=False, retry_delay=0.0):
        super().__init__(text)
        self.text, self.reason, self.passes, self.retry_delay = text, reason, passes, retry_delay

    @classmethod
    def of_status(cls, status):
        info, retry = ErrorInfo(), RetryInfo()
        for detail in status.details:
            _ = detail.Is(ErrorInfo.DESCRIPTOR) and detail.Unpack(info)
            _ = detail.Is(RetryInfo.DESCRIPTOR) and detail.Unpack(retry)
        delay = retry.retry_delay.seconds + retry.retry_delay.nanos / 1e9
        reason = info.reason if info.domain == "ckd.v1" else ""
        gone = status.code == grpc.StatusCode.UNAVAILABLE.value[0]
        # Without a delay, it is what would take all of the memory alone.
        crowded = reason == "OUT_OF_MEMORY_BUDGET" and retry.HasField("retry_delay")
        return cls(status.message, reason, gone or crowded or reason in PASSING, delay)

    @classmethod
    def of_call(cls, error):
        status = Status()
        for name, value in error.trailing_metadata() or ():
            if name == "grpc-status-details-bin":
                status.ParseFromString(value)
        status.code, status.message = error.code().value[0], error.details()
        return cls.of_status(status)


def _result(id, r):
    if r.HasField("error"):
        fault = _Fault.of_status(r.error)
        return Result(id, error=fault.text, reason=fault.reason)
    if r.input_id != id or not r.HasField("decomposition"):
        return Result(id, error=f"answered as {r.input_id!r}, or with nothing")
    return Result(id, r.decomposition)
