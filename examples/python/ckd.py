"""A client of ckd, the uncertainty daemon, for model servers in Python.

It needs grpcio, protobuf (3.20 or later) and numpy, and the file ckd.binpb beside it,
which holds the wire contract. No generated code is needed. Copy both files.

An error is never a retain: an input that was answered with an error, or not at all, has
not been cleared. Result.retained is true only for a decision to retain.
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

# The messages have a pool of their own, so that they cannot clash with others in the process.
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
InputContext = _message("ckd.v1.InputContext")
StreamRequest = _message("ckd.v1.DecomposeStreamRequest")
StreamResponse = _message("ckd.v1.DecomposeStreamResponse")
GetModelRequest = _message("ckd.v1.GetModelRequest")
GetModelResponse = _message("ckd.v1.GetModelResponse")
ReportOutcomesRequest = _message("ckd.v1.ReportOutcomesRequest")
ReportOutcomesResponse = _message("ckd.v1.ReportOutcomesResponse")
Status = _message("google.rpc.Status")
ErrorInfo = _message("google.rpc.ErrorInfo")
RetryInfo = _message("google.rpc.RetryInfo")

DECISION, VECTORS, FULL = 1, 2, 3  # how much a result carries
NSK = 2  # the layout of complete passes: [inputs][passes][classes]
NO_RECEIPTS, REVIEWED, ALL = 0, 1, 2  # which results carry a receipt

# Errors that may go away by themselves: the daemon is stopping or overloaded.
RETRYABLE = {"DRAINING", "OVERLOADED", "TOO_MANY_STREAMS"}

# How grpc reconnects. At most 0.6 s pass between two attempts, so a restarted daemon is found
# within a second, however long it was away.
CONNECTING = [
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),  # more or less by a fifth
    ("grpc.min_reconnect_backoff_ms", 5_000),  # bounds one attempt, despite its name
    ("grpc.dns_min_time_between_resolutions_ms", 1_000),
]


def _names(enum):
    values = _pool.FindEnumTypeByName("ckd.v1." + enum).values_by_number
    prefix = values[0].name[: -len("UNSPECIFIED")]
    return {number: value.name[len(prefix) :].lower() for number, value in values.items()}


ACTIONS, SCORES, REASONS = _names("Action"), _names("Score"), _names("DecisionReason")
STATUSES, WANTED, KINDS = _names("OutcomeStatus"), _names("Wanted"), _names("OutcomeKind")

OUTCOMES_PER_CALL = 1000  # the ledger writes each call to its disk before it answers


@dataclasses.dataclass
class Result:
    """The answer for one input: a decomposition with its decision, or an error."""

    id: str
    decomposition: object = None
    error: str = ""  # why there is no decision
    reason: str = ""  # the daemon's reason for the error, if it gave one
    classes: tuple = dataclasses.field(default=(), repr=False)  # names of the policy that decided; empty if unknown

    @property
    def action(self):
        """retain, defer or observe; error without a decision."""
        return "error" if self.decomposition is None else ACTIONS[self.decomposition.decision.action]

    @property
    def retained(self):
        """Whether the model's answer stands; otherwise a person must see the input."""
        return self.action == "retain"

    @property
    def settled(self):
        """Whether it was decided before its last pass; decomposition.passes says after how many."""
        return self.decomposition is not None and self.decomposition.settled

    @property
    def review(self):
        """Whether a person should find out the truth: it was deferred, or drawn for an audit.

        Only with receipts.
        """
        return self.decomposition is not None and self.decomposition.review

    @property
    def receipt(self):
        """The sealed record of the decision, to be kept and sent back with the truth; empty for none."""
        return b"" if self.decomposition is None else self.decomposition.receipt

    @property
    def predicted(self):
        """The class with the largest mean prediction; empty without a decision."""
        return "" if self.decomposition is None else self._name(self.decomposition.predicted)

    @property
    def deciding(self):
        """The critical class that set the score of a deferred input; empty if no single class did."""
        if self.decomposition is None or not self.decomposition.decision.HasField("deciding_class"):
            return ""
        return self._name(self.decomposition.decision.deciding_class)

    def _name(self, number):
        return self.classes[number] if number < len(self.classes) else f"class {number}"

    def __str__(self):
        if self.decomposition is None:
            return f"no decision: {self.error}"
        decision = self.decomposition.decision
        text = f"{self.action}: predicted {self.predicted}, {SCORES[decision.score]} {decision.value:.4f}"
        if decision.HasField("threshold"):
            text += f", threshold {decision.threshold:.4f}"
        if self.deciding:
            text += f", deciding class {self.deciding}"
        return f"{text} ({REASONS[decision.reason]})"


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


class Client:
    """A connection to a daemon.

    target is host:port or unix:/path. ca, cert and key are PEM files for TLS. token_file
    holds a bearer token and is read for every stream and call. Without TLS, only a unix
    socket or the loopback is accepted, unless plaintext is true. The client waits for
    answers, and sends inputs again, for patience seconds. It finds a restarted daemon
    within a second.
    """

    def __init__(self, target, *, ca=None, cert=None, key=None, token_file=None, plaintext=False, patience=30.0):
        read = lambda path: pathlib.Path(path).read_bytes() if path else None
        options = [
            ("grpc.max_receive_message_length", 64 << 20),
            *CONNECTING,
            # Pings detect a daemon that is connected but no longer answers. It permits one every
            # ten seconds.
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
        self._get_model = self._channel.unary_unary(
            service + "GetModel", GetModelRequest.SerializeToString, GetModelResponse.FromString
        )
        self._report = self._channel.unary_unary(
            "/ckd.v1.OutcomeService/ReportOutcomes", ReportOutcomesRequest.SerializeToString, ReportOutcomesResponse.FromString
        )
        self._token_file = token_file
        self._asking = threading.Lock()  # guards the class names below
        self._names = {}  # by hash of the policy
        self._latest = {}  # by name of the model
        self.patience = patience

    def close(self):
        self._channel.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def session(self, model, passes=0, detail=VECTORS, accept_settled=False, receipts=NO_RECEIPTS, model_version=""):
        """Returns a session that sends the passes of batches as they are computed.

        With accept_settled, an input is answered as soon as its decision is certain enough, if the
        policy has an early-stopping rule: see Session.decide. With receipts, REVIEWED or ALL,
        results have Result.review and Result.receipt; model_version is for the receipts.
        """
        return Session(self, model, passes, detail, accept_settled, receipts, model_version)

    def report_outcomes(self, outcomes, patience=None):
        """Sends outcomes to a daemon that keeps a ledger. Returns one Answer for each, in order.

        What is answered as counted is on its disk. Sending an outcome again does no harm.
        """
        answers, limit = [], _Limit(self.patience if patience is None else patience)
        outcomes = list(outcomes)
        numbers = {name: number for number, name in KINDS.items()}
        for i, o in enumerate(outcomes):
            if o.kind not in numbers:
                raise ValueError(f"outcomes[{i}].kind is {o.kind!r}, expected reading, biopsy or follow_up")
        while len(answers) < len(outcomes):
            request = ReportOutcomesRequest()
            for o in outcomes[len(answers) : len(answers) + OUTCOMES_PER_CALL]:
                one = request.outcomes.add(receipt=o.receipt, truth=o.truth, source=o.source, saw_model=o.saw_model, kind=numbers[o.kind])
                if o.time:
                    one.time.seconds, one.time.nanos = divmod(int(o.time * 1e9), 10**9)

            def attempt(limit, wait):
                reply = self._report(request, metadata=self._metadata(), timeout=limit.left(), wait_for_ready=wait)
                answers.extend(
                    Answer(STATUSES[a.status], a.predicted, WANTED[a.wanted] if a.wanted else "", a.error.message) for a in reply.answers
                )

            fault = self._retry(attempt, limit)
            if fault is not None:
                answers.extend(Answer("unsent", error=fault.text) for _ in range(len(outcomes) - len(answers)))
        return answers

    def decompose(
        self, model, values, ids=None, detail=VECTORS, patience=None, receipts=NO_RECEIPTS, model_version="", contexts=None
    ):
        """Returns the results for complete passes, an array [inputs, passes, classes].

        patience, if given, replaces the client's. receipts and model_version are as in session,
        contexts as in Session.decide. Receipts need ids of the caller's. Invalid values, ids or
        contexts raise TypeError or ValueError before anything is sent.
        """
        if receipts and ids is None:
            raise ValueError("receipts without ids, expected a str for each input: the same whenever it is sent again")
        values = _array(values, "values")
        if values.ndim != 3:
            raise ValueError(f"values have the shape {values.shape}, expected three axes: [inputs, passes, classes]")
        inputs, passes, classes = values.shape
        ids = _ids(ids) if ids is not None else [str(i) for i in range(inputs)]
        if len(ids) != inputs:
            hint = " (are they [passes, inputs, classes]? Send values.transpose(1, 0, 2))" if len(ids) == passes else ""
            raise ValueError(f"found {len(ids)} ids for values of the shape {values.shape}, expected {inputs}: one for each input{hint}")
        if inputs == 0:
            return []
        if not passes or not classes:
            raise ValueError(f"values have the shape {values.shape}, expected at least one pass and one class")
        values = np.ascontiguousarray(values, dtype="<f4")
        request = DecomposeRequest(
            model=model, detail=detail, layout=NSK, passes=passes, inputs=inputs, input_ids=ids, values_le=values.tobytes(),
            receipts=receipts, model_version=model_version, contexts=_contexts(contexts, inputs),
        )
        results = {}

        def attempt(limit, wait):
            self._check_classes(model, classes, limit, wait)
            reply = self._unary(request, metadata=self._metadata(), timeout=limit.left(), wait_for_ready=wait)
            names = self._names_of(reply.policy, limit)
            results.update((r.row, _result(ids[r.row], r, names)) for r in reply.results)

        fault = self._retry(attempt, _Limit(self.patience if patience is None else patience))
        return [results.get(i) or Result(ids[i], error=fault.text, reason=fault.reason) for i in range(inputs)]

    def _check_classes(self, model, classes, limit, wait):
        """Raises ValueError if the model's policy is known to have another number of classes."""
        try:
            names = self._ask(model, limit, wait, lambda: self._latest.get(model))
            if len(names) != classes:  # the policy may have been replaced
                names = self._ask(model, limit, wait)
        except grpc.RpcError as error:
            if _Fault.of_call(error).retryable:
                raise
            return  # the call itself will report the error
        if len(names) != classes:
            raise ValueError(f"values have {classes} classes, expected {_listed(names)} of model {model!r}")

    def _names_of(self, policy, limit):
        """Returns the class names of the policy that decided, or none if they cannot be learned."""
        try:
            self._ask(policy.model, limit, False, lambda: self._names.get(policy.hash))
        except (grpc.RpcError, _Fault):
            pass  # the decision is valid without names
        else:
            self._names.setdefault(policy.hash, ())  # the policy was replaced; do not ask again
        return self._names.get(policy.hash, ())

    def _ask(self, model, limit, wait, known=lambda: None):
        """Returns the class names of a model, from known() or else from the daemon."""
        if not self._asking.acquire(timeout=limit.left()):
            raise limit.late()
        try:
            names = known()
            if names is None:
                request, metadata = GetModelRequest(model=model), self._metadata()
                reply = self._get_model(request, metadata=metadata, timeout=limit.left(), wait_for_ready=wait).model
                self._names[reply.policy.hash] = self._latest[model] = names = tuple(reply.classes)
            return names
        finally:
            self._asking.release()

    def _metadata(self):
        if not self._token_file:
            return ()
        return (("authorization", "Bearer " + pathlib.Path(self._token_file).read_text().strip()),)

    def _retry(self, attempt, limit):
        """Repeats an attempt until it works or the limit is over. Returns the last fault, or None.

        The first attempt fails at once without a connection, and says why. Later attempts wait
        for one, because grpc reconnects quickly only while a call waits for it.
        """
        delay, before = 0.1, None
        while True:
            try:
                attempt(limit, before is not None)
                return None
            except _Fault as fault:
                last = fault
            except grpc.RpcError as error:
                last = _Fault.of_call(error)
                if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED and not last.reason:
                    last = limit.late()
            if last.late and before:
                last.text += f"; before that: {before.text}"
            wait = max(delay * random.uniform(0.5, 1), last.retry_delay)
            if not last.retryable or wait > limit.left():
                return last
            time.sleep(wait)
            # Longer waits relieve an overloaded daemon, but not one that is gone.
            delay, before = min(2 * delay, 0.5 if last.gone else 3.0), last


class _Limit:
    """The time within which an answer must come, without the time that the model takes."""

    def __init__(self, seconds):
        self.seconds, self._until = seconds, time.monotonic() + seconds

    def left(self):
        return max(self._until - time.monotonic(), 0)

    def late(self):
        return _Fault(f"the daemon did not answer within {self.seconds:g} s", late=True)

    def excluding(self, work):
        """Does work whose time does not count."""
        begun = time.monotonic()
        try:
            return work()
        finally:
            self._until += time.monotonic() - begun


class Session:
    """A stream to the daemon that decides one batch after the other.

    Use a session in one thread only, and open another for each further thread. When the
    stream breaks, the session opens another and sends inputs without an answer again. That
    is safe, because a decision changes nothing but counts.
    """

    def __init__(
        self, client, model, passes=0, detail=VECTORS, accept_settled=False, receipts=NO_RECEIPTS, model_version=""
    ):
        self._client, self._call, self._group = client, None, 0
        self._header = StreamRequest()
        header = self._header.header
        header.model, header.passes, header.detail, header.accept_settled = model, passes, detail, accept_settled
        header.receipts, header.model_version = receipts, model_version

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

    def decide(self, ids, forward, passes=None, contexts=None):
        """Returns one result for every id, in their order.

        forward(rows) computes one pass of the inputs that still need one and returns an array
        [rows, classes]; rows is an array of their positions in ids, rising. It is called until
        all inputs are answered, but no more often than the daemon expects, or than passes if
        that is less. Instead of a function, forward may be an iterable that yields passes of
        all inputs, arrays [inputs, classes].

        Each pass is sent at once and kept until the batch is answered. With early stopping,
        forward is called only when the daemon has dealt with the pass before. Results are
        errors if no answer comes within the client's patience, not counting the time that
        forward takes.

        contexts, if given, says for each input what its receipt holds beside the decision: None,
        or a dict with "group", such as a patient, and "slices", a dict of str.

        Invalid ids, contexts or passes raise TypeError or ValueError before anything is sent, or,
        if forward computes passes one by one, before that pass is sent.
        """
        ids = _ids(ids)
        if not ids:
            return []
        batch = _Batch(ids, forward, passes, _contexts(contexts, len(ids)))
        if self._call is not None and not self._call.is_active():
            self.close()  # it ended after the last batch, for example because the policy's classes changed

        def attempt(limit, wait):
            try:
                self._attempt(batch, limit, wait)
            except BaseException:
                self.close()  # abandons what is open on the stream
                raise

        fault = self._client._retry(attempt, _Limit(self._client.patience))
        return [batch.results.get(i) or Result(ids[i], error=fault.text, reason=fault.reason) for i in range(len(ids))]

    def _attempt(self, batch, limit, wait):
        if self._call is None:
            self._open(limit, wait)
        batch.fits(self.info.classes)
        group = _Group(batch)
        opened = False
        kept = iter(list(batch.kept))
        while group.waiting.any():
            computed = next(kept, None)
            if computed is None and batch.chooses and self.info.settles and self.info.acknowledges:
                while self._dealt < self._blocks:  # answers may save the next pass
                    group.handle(self._reply(limit))
                if not group.waiting.any():
                    break
            computed = computed or limit.excluding(lambda: batch.compute(self.info))
            if not opened:  # only now, because the first pass may be invalid
                opened = True
                self._open_group(batch, group)
            if computed is None:
                block = StreamRequest()
                block.block.group, block.block.final = self._group, True
                self._send(block)
                break
            while (reply := self._reply()) is not None:
                group.handle(reply)
            if group.waiting.any():
                self._pass(*group.share(*computed))
        while group.waiting.any():
            group.handle(self._reply(limit))
        if group.refused:
            raise group.refused

    def _open(self, limit, wait):
        self._requests, self._replies, self._group = queue.SimpleQueue(), queue.SimpleQueue(), 0
        self._blocks = self._dealt = 0  # blocks sent, and blocks acknowledged
        self._call = self._client._stream(iter(self._requests.get, None), metadata=self._client._metadata(), wait_for_ready=wait)
        self._reader = threading.Thread(target=_read, args=(self._call, self._replies), daemon=True)
        self._reader.start()
        self._send(self._header)
        # The first reply states classes, expected passes, limits, and whether early stopping is on.
        self.info = self._reply(limit).info

    def _open_group(self, batch, group):
        self._group += 1
        block = StreamRequest()
        block.block.group = self._group
        block.block.input_ids.extend(batch.ids[i] for i in group.rows)
        if batch.contexts:
            block.block.contexts.extend(batch.contexts[i] for i in group.rows)
        self._send(block)

    def _reply(self, limit=None):
        """Returns the daemon's next reply. Without a limit it does not wait, and may return None."""
        try:
            reply = self._replies.get(timeout=limit.left()) if limit else self._replies.get_nowait()
        except queue.Empty:
            if limit:
                raise limit.late() from None
            return None
        if isinstance(reply, Exception):
            raise reply
        self._dealt = max(self._dealt, reply.blocks)  # 0 in a reply that answers no block
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
    """Puts the replies of a stream into a queue, and at its end the reason."""
    try:
        for reply in call:
            replies.put(reply)
        replies.put(_Fault("the daemon ended the stream"))
    except grpc.RpcError as error:
        replies.put(error)


class _Batch:
    """Inputs that are decided together, with the passes so far of those without a result."""

    def __init__(self, ids, forward, passes, contexts):
        self.ids, self.contexts, self.results, self.kept, self.classes = ids, contexts, {}, [], None
        self._forward, self._passes = forward, passes or None
        self.chooses = callable(forward)  # whether forward computes passes for chosen rows
        self._yielded = None if self.chooses else iter(self._checked(forward))

    def fits(self, classes):
        """Raises a fault if a new stream has other classes than the one before."""
        if self.classes is None:
            self.classes = tuple(classes)
        elif self.classes != tuple(classes):
            text = f"the policy changed while the stream was broken: {_listed(classes)}, expected {_listed(self.classes)}"
            raise _Fault(text, "POLICY_CHANGED")

    def rows(self):
        return np.array([i for i in range(len(self.ids)) if i not in self.results])

    def compute(self, info):
        """The next pass of all inputs without a result, with their rows; None when there is none."""
        rows = self.rows()
        if not self.chooses:
            values = next(self._yielded, None) if self._passes is None or len(self.kept) < self._passes else None
            if values is None:
                return None
            values = self._pass(values, len(self.ids))[rows]
        else:
            most = min(filter(None, (self._passes, info.expected_passes)), default=0)
            if not most:
                raise ValueError("the daemon expects no number of passes, expected passes=...")
            if len(self.kept) >= most:
                return None
            values = self._pass(self._forward(rows.copy()), len(rows))
        self.kept.append((rows, np.ascontiguousarray(values, dtype="<f4")))
        return self.kept[-1]

    def _checked(self, forward):
        """Returns passes that are all there as arrays that fit the ids, and leaves alone what yields them one by one."""
        if isinstance(forward, (list, tuple)):
            self._enough(len(forward))
            return [self._pass(values, len(self.ids), at) for at, values in enumerate(forward)]
        if not hasattr(forward, "shape"):
            if not hasattr(forward, "__iter__"):
                raise TypeError(f"found {_described(forward)}, expected a function of rows, or an array [passes, inputs, classes]")
            return forward
        values = _array(forward, "the passes")
        if values.ndim != 3:
            raise ValueError(f"the passes have the shape {values.shape}, expected three axes: [passes, inputs, classes]")
        if values.shape[1] != len(self.ids):
            hint = " (are they [inputs, passes, classes]? Send their transpose(1, 0, 2))" if len(values) == len(self.ids) else ""
            text = f"found {len(self.ids)} ids for passes of the shape {values.shape}, expected {values.shape[1]}"
            raise ValueError(f"{text}: one for each input{hint}")
        self._enough(len(values))
        return values

    def _enough(self, passes):
        if self._passes is not None and passes < self._passes:
            raise ValueError(f"found {passes} passes, expected {self._passes}, as was asked for")

    def _pass(self, values, rows, at=None):
        """Returns one pass as an array, after a look at its shape."""
        what = f"pass {len(self.kept) if at is None else at}"
        values = _array(values, what)
        columns = len(self.classes) if self.classes else "classes"
        if values.ndim != 2 or len(values) != rows or (self.classes and values.shape[1] != columns):
            text = f"{what} has the shape {values.shape}, expected ({rows}, {columns}): {rows} inputs"
            raise ValueError(text + (f" and {_listed(self.classes)}" if self.classes else ""))
        return values


class _Group:
    """The inputs of a batch that lack a result, on one stream."""

    def __init__(self, batch):
        self._batch = batch
        self.rows = batch.rows()  # rows of the batch; the position here is the row on the wire
        self.waiting = np.ones(len(self.rows), dtype=bool)  # whether an input lacks an answer, by position
        self.refused = None  # why some inputs must be sent again

    def share(self, rows, values):
        """Returns the rows and values of a pass for the inputs that still wait."""
        values = values[np.searchsorted(rows, self.rows[self.waiting])]
        return [] if self.waiting.all() else np.flatnonzero(self.waiting).tolist(), values

    def handle(self, reply):
        if reply.faults:
            raise _Fault.of_status(reply.faults[0])
        for r in reply.results:
            self.waiting[r.row] = False
            row = int(self.rows[r.row])
            fault = _Fault.of_status(r.error) if r.HasField("error") else None
            if fault and fault.retryable:
                self.refused = fault
            else:
                self._batch.results[row] = _result(self._batch.ids[row], r, self._batch.classes)


class _Fault(Exception):
    """Why an attempt failed, and whether another may succeed."""

    def __init__(self, text, reason="", retryable=False, retry_delay=0.0, gone=False, late=False):
        super().__init__(text)
        self.text, self.reason, self.retryable, self.retry_delay = text, reason, retryable, retry_delay
        self.gone, self.late = gone, late  # the daemon cannot be reached; it did not answer in time

    @classmethod
    def of_status(cls, status):
        info, retry = ErrorInfo(), RetryInfo()
        for detail in status.details:
            _ = detail.Is(ErrorInfo.DESCRIPTOR) and detail.Unpack(info)
            _ = detail.Is(RetryInfo.DESCRIPTOR) and detail.Unpack(retry)
        delay = retry.retry_delay.seconds + retry.retry_delay.nanos / 1e9
        reason = info.reason if info.domain == "ckd.v1" else ""
        gone = status.code == grpc.StatusCode.UNAVAILABLE.value[0]
        # Without a delay, the request exceeds the whole budget by itself.
        no_room = reason == "OUT_OF_MEMORY_BUDGET" and retry.HasField("retry_delay")
        return cls(status.message, reason, gone or no_room or reason in RETRYABLE, delay, gone)

    @classmethod
    def of_call(cls, error):
        status = Status()
        for name, value in error.trailing_metadata() or ():
            if name == "grpc-status-details-bin":
                status.ParseFromString(value)
        status.code, status.message = error.code().value[0], error.details()
        return cls.of_status(status)


def _result(id, r, classes):
    if r.HasField("error"):
        fault = _Fault.of_status(r.error)
        return Result(id, error=fault.text, reason=fault.reason)
    if r.input_id != id or not r.HasField("decomposition"):
        return Result(id, error=f"answered as {r.input_id!r}, or with nothing")
    return Result(id, r.decomposition, classes=classes)


def _ids(ids):
    """Returns the ids as a list of str, and checks that no two are the same."""
    try:
        ids = list(ids)
    except TypeError:
        raise TypeError(f"ids is {_described(ids)}, expected a list with one str for each input") from None
    places = {}
    for i, id in enumerate(ids):
        if not isinstance(id, str):
            raise TypeError(f"id {i} is {id!r} ({_described(id)}), expected a str, as of [str(id) for id in ids]")
        if id and places.setdefault(id, i) != i:
            raise ValueError(f"ids {places[id]} and {i} are both {id!r}, expected each id once, or empty ones")
    return ids


def _contexts(contexts, inputs):
    """Returns contexts as messages, one for each input, or none."""
    if contexts is None:
        return []
    contexts = list(contexts)
    if len(contexts) != inputs:
        raise ValueError(f"found {len(contexts)} contexts, expected {inputs}: one for each input")
    messages = []
    for i, context in enumerate(contexts):
        try:
            messages.append(InputContext(**(context or {})))
        except (TypeError, ValueError, AttributeError) as error:
            form = '{"group": str, "slices": {str: str}}'
            raise TypeError(f"context {i} is {context!r}, expected None or a dict {form}: {error}") from None
    return messages


def _array(values, what):
    """Returns values as an array of numbers, or raises TypeError that says what they are."""
    why = ""
    try:
        array = np.asarray(values)
        if array.dtype.kind in "fiu":
            return array
        if not hasattr(values, "dtype"):
            why = f", of which NumPy makes {array.dtype}"
    except Exception as error:  # of any library
        why = f": {error}"
    how = " (.detach().float().cpu().numpy() gives one)" if hasattr(values, "detach") else ""
    raise TypeError(
        f"{what}: found {_described(values)}{why}; expected an array of float16, float32 or float64 in the memory of the CPU{how}"
    )


def _described(value):
    """Describes the type of a value, and the properties of a tensor."""
    about = [f"{name} {getattr(value, name)}" for name in ("dtype", "device") if hasattr(value, name)]
    about += ["requires grad"] if getattr(value, "requires_grad", False) is True else []
    return type(value).__name__ + (f" ({', '.join(about)})" if about else "")


def _listed(classes):
    """Describes the number of classes and the names of the first ten."""
    return f"the {len(classes)} classes {', '.join(classes[:10])}" + (", ..." if len(classes) > 10 else "")
