"""Requests over very many partitions, groups and ids: no turn of the loop grows with their number, for every API.

Each request does all its work: its partitions exist. The length of a turn is counted in function calls, so that it does
not depend on the machine. A handler that works on all rows in one turn makes some calls for each of them, which shows
in the difference between two sizes.
"""

from __future__ import annotations

import pytest
from broker.net.test_long_requests import with_broker
from broker.wire import Wire
from semel_broker.node import Node
from semel_broker.scheduling import turns
from semel_protocol.api import APIS
from semel_protocol.headers import encode_request_frame, response_body_at
from support.virtual_loop import VirtualLoop
from support.wide_requests import WIDE_REQUESTS, Wide

STEPS = 16
"""Steps of a slice here, so that few rows take several slices."""
NARROW, WIDE = 600, 1_500
CALLS_PER_ROW_MAX = 4.5
"""One turn may go over the keys of all rows, and no more: some 3 ms for 10,000 rows."""
CALLS_PER_ROW = {
    "CreateTopics": 13.0,
    "CreatePartitions": 13.0,
    "CreateTopics, replicas given, validated": 12.0,
    "AlterPartitionReassignments": 6.5,
    "EndTxn, commit": 6.0,
    "EndTxn, KIP-890": 6.0,
    "DeleteTopics": 70.0,
}
"""The work that takes effect as a whole: the image of the cluster takes the record of a topic, a group the offsets
of a transaction, and an assignor decides on all partitions. The disk in memory syncs a directory in one turn.
"""


async def longest_turns(node: Node, loop: VirtualLoop, width: int) -> dict[str, int]:
    """The calls in the longest turn of each request."""
    wide, found = Wide(width, now_ms=1_700_000_000_000), {}
    wire = await Wire.connect(node.port)
    for asked in WIDE_REQUESTS:
        api = APIS[asked.key]
        sent = b"".join(encode_request_frame(api, asked.version, 1, "wide", asked.make(wide)))
        with loop.counting_calls() as most:
            wire.send_bytes(sent)
            frame = await wire.receive_frame()
        found[asked.name] = most()
        answer = api.decode_response(frame, asked.version, response_body_at(api, asked.version, frame))
        asked.check(answer)
        asked.learn(wide, answer)
    await wire.close()
    return found


@pytest.mark.proves("one-client-blocks-others")
def test_no_turn_of_the_loop_grows_with_the_rows_of_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "SLICE_STEPS", STEPS)
    found: list[dict[str, int]] = []
    for width in (NARROW, WIDE):
        loop = VirtualLoop()

        async def talk(node: Node, loop: VirtualLoop = loop, width: int = width) -> None:
            found.append(await longest_turns(node, loop, width))

        with_broker(loop, talk)
    narrow, wide = found
    calls_per_row = {name: (wide[name] - narrow[name]) / (WIDE - NARROW) for name in narrow}
    grown = {
        name: f"{each:.1f} calls for each row in one turn, of {wide[name]}"
        for name, each in calls_per_row.items()
        if each > CALLS_PER_ROW.get(name, CALLS_PER_ROW_MAX)
    }
    assert not grown, "\n".join(f"{name}: {what}" for name, what in grown.items())
