"""Log lines that peers cause are bounded and counted, and none is dropped silently. Other lines are not affected."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from broker.harness import Harness
from broker.members import WireMember
from broker.wire import EventLog, Wire
from hypothesis import given
from hypothesis import strategies as st
from semel_broker.scheduling.folded_log import (
    EVENT_LINES_MAX,
    EVENTS,
    INTERVAL_S,
    KIND_LINES_MAX,
    KINDS_MAX,
    TEXT_MAX,
    FoldedLog,
)

BROKER = Path(__file__).parents[3] / "broker" / "semel_broker"


class FoldedLogSetup:
    """A log whose clock a test moves."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.out = EventLog()
        self.log = FoldedLog(self.out, lambda: self.now_s)

    def closed(self, host: str = "10.0.0.1", reason: str = "version_not_served", **fields: object) -> None:
        self.log.warning("connection_closed", reason=reason, client_host=host, **fields)

    def of(self, event: str) -> int:
        return len(self.out.of(event))


@pytest.fixture
def folded() -> FoldedLogSetup:
    return FoldedLogSetup()


def test_the_first_lines_of_a_kind_are_written_and_the_rest_is_counted(folded: FoldedLogSetup) -> None:
    for number in range(324):
        folded.closed(number=number)
    assert [line["number"] for line in folded.out.of("connection_closed")] == list(range(KIND_LINES_MAX))
    assert folded.of("connection_closed_repeated") == 0
    folded.now_s = INTERVAL_S
    folded.log.info("ready")
    (line,) = folded.out.of("connection_closed_repeated")
    assert line["times"] == 324 - KIND_LINES_MAX
    assert (line["reason"], line["client_host"]) == ("version_not_served", "10.0.0.1")
    folded.closed()
    assert folded.of("connection_closed") == KIND_LINES_MAX + 1


def test_one_client_does_not_hide_another(folded: FoldedLogSetup) -> None:
    for _ in range(100):
        folded.closed()
    folded.closed("10.0.0.2")
    folded.closed(reason="malformed_frame")
    assert folded.of("connection_closed") == KIND_LINES_MAX + 2


def test_a_client_with_ever_new_names_is_bounded_in_lines_and_memory(folded: FoldedLogSetup) -> None:
    for number in range(20_000):
        folded.closed(f"2001:db8::{number:x}")
    assert folded.of("connection_closed") == EVENT_LINES_MAX
    assert len(folded.log._counts) <= KINDS_MAX
    folded.now_s = INTERVAL_S
    folded.log.info("ready")
    repeated = folded.out.of("connection_closed_repeated")
    assert sum(int(str(line["times"])) for line in repeated) == 20_000 - EVENT_LINES_MAX


def test_folded_lines_are_reported_when_the_log_ends(folded: FoldedLogSetup) -> None:
    for _ in range(100):
        folded.closed()
    folded.log.flush()
    assert [line["times"] for line in folded.out.of("connection_closed_repeated")] == [100 - KIND_LINES_MAX]


def test_what_the_broker_and_administrators_do_is_not_folded(folded: FoldedLogSetup) -> None:
    for event in ("ready", "acl_created", "acl_deleted", "user_altered", "quota_altered", "isr_changed"):
        for _ in range(1_000):
            folded.log.info(event, by="User:root")
        assert folded.of(event) == 1_000


def test_lines_that_are_not_written_do_not_count(folded: FoldedLogSetup) -> None:
    for _ in range(100):
        folded.log.debug("connection_closed", reason="idle", client_host="10.0.0.1")
    folded.closed(reason="idle")
    assert folded.of("connection_closed") == 101


def test_long_texts_are_cut(folded: FoldedLogSetup) -> None:
    folded.log.info("group_generation_stored", group="g" * 32_000, generation=1)
    (line,) = folded.out.of("group_generation_stored")
    assert len(str(line["group"])) == TEXT_MAX + 3


@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "b", "c"]), st.floats(0, 40), st.sampled_from(["connection_closed", "ready"]))
    )
)
def test_every_line_is_written_or_counted(calls: list[tuple[str, float, str]]) -> None:
    folded = FoldedLogSetup()
    for host, pause_s, event in calls:
        folded.now_s += pause_s
        for _ in range(7):
            folded.log.warning(event, reason="x", client_host=host)
    folded.log.flush()
    told = sum(int(str(line["times"])) for line in folded.out.of("connection_closed_repeated"))
    assert folded.of("connection_closed") + told == 7 * sum(event == "connection_closed" for *_, event in calls)
    assert folded.of("ready") == 7 * sum(event == "ready" for *_, event in calls)


def test_the_table_names_events_that_there_are() -> None:
    source = "\n".join(path.read_text() for path in BROKER.rglob("*.py") if path.name != "folded_log.py")
    missing = [event for event in EVENTS if not re.search(f'"{event}"', source)]
    assert missing == []


async def test_a_client_of_an_unserved_version_and_a_group_that_joins_again_and_again(broker: Harness) -> None:
    for _ in range(40):
        wire = await broker.wire()
        wire.send_bytes(b"\x00\x00\x00\x0a\x00\x01\x7f\xff\x00\x00\x00\x07\xff\xff")
        assert await wire.closed_by_peer()
    member = WireMember(await broker.wire(), "g")
    for _ in range(40):
        await member.join()
        await member.sync({member.member_id: b""})
    log = broker.log
    assert len(log.of("group_generation_stored")) == KIND_LINES_MAX
    reasons = [line["reason"] for line in log.of("connection_closed")]
    assert reasons.count("version_not_served") == KIND_LINES_MAX
    await asyncio.sleep(INTERVAL_S)
    await Wire.connect(broker.port)
    await broker.stop()
    (closed,) = log.of("connection_closed_repeated")
    assert closed["times"] == 40 - KIND_LINES_MAX
    assert sum(int(str(line["times"])) for line in log.of("group_generation_stored_repeated")) >= 40 - KIND_LINES_MAX
