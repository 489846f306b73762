"""Tests what goes over a stream, with a daemon that answers by a script."""

import types

import numpy as np
import pytest

from ckd import _engine, _wire
from ckd._client import _run

PASSES, FEWEST = 6, 3


class Daemon:
    """A stream whose daemon decides row 1 after four passes and the other rows after all."""

    def __init__(self, message_bytes):
        self.message_bytes = message_bytes
        self.blocks, self.replies, self.passes, self.waiting = [], [], {}, set()
        self.connection = types.SimpleNamespace(token=None, daemon=None, owned=lambda: None)

    async def open(self, method, wait):
        return self

    async def send(self, message):
        request, reply = _wire.StreamRequest.FromString(message), _wire.StreamResponse()
        if request.HasField("header"):
            info = reply.info
            info.classes.extend("ab")
            info.expected_passes, info.fewest_passes, info.settles, info.acknowledges = PASSES, FEWEST, True, True
            info.limits.message_bytes = self.message_bytes
            self.replies.append(reply.SerializeToString())
            return
        assert len(message) <= (self.message_bytes or len(message))
        block = request.block
        self.blocks.append(block)
        for row, id in enumerate(block.input_ids):
            self.passes[row] = []
            self.waiting.add(row)
        rows = list(block.rows) or sorted(self.waiting)
        values = np.frombuffer(block.values_le, dtype="<f4").reshape(block.passes, len(rows), 2) if block.passes else []
        for one in values:
            for row, value in zip(rows, one):
                self.passes[row].append(value)
        reply.blocks = len(self.blocks)
        for row in sorted(self.waiting):
            if len(self.passes[row]) >= (4 if row == 1 else PASSES):
                result = reply.results.add(row=row, group=block.group, input_id="xyz"[row])
                result.decomposition.passes = len(self.passes[row])
                self.waiting.discard(row)
        self.replies.append(reply.SerializeToString())

    async def receive(self, timeout):
        return self.replies.pop(0)

    def active(self):
        return True

    def close(self):
        pass


@pytest.mark.parametrize("message_bytes", [0, 150])
def test_passes_that_can_decide_nothing_are_not_awaited(message_bytes):
    daemon = Daemon(message_bytes)
    rng = np.random.default_rng(7)
    computed, asked = [], []

    def forward(rows):
        asked.append((rows.tolist(), len(daemon.blocks)))
        values = rng.random((3, 2)).astype(np.float32)
        computed.append(values)
        return values[rows]

    engine = _engine.Engine(daemon, 5.0, 4 << 20)
    batch = _engine.Batch(["x", "y", "z"], forward, None, None)
    results = _run(engine.decide(_engine.Link(_wire.StreamRequest(header={"model": "m"})), batch))
    assert [r.passes for r in results] == [6, 4, 6] and [r.id for r in results] == ["x", "y", "z"]
    assert [rows for rows, _ in asked] == [[0, 1, 2]] * 4 + [[0, 2]] * 2
    for row, got in daemon.passes.items():
        assert np.array_equal(got, [values[row] for values in computed[: len(got)]])
    assert all(block.group == 1 for block in daemon.blocks)
    if not message_bytes:
        assert [block.passes for block in daemon.blocks] == [3, 1, 1, 1]
        assert [list(block.rows) for block in daemon.blocks] == [[], [], [0, 2], [0, 2]]
        assert [blocks for _, blocks in asked] == [0, 0, 0, 1, 2, 3]
