"""Fifty consumers in one group of the consumer protocol (KIP-848) join, are restarted one by one, killed, and leave.

They are librdkafka's or semel's.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from support.group_processes import (
    SETTINGS,
    GroupProcess,
    Library,
    ProcessEvent,
    committed,
    not_once,
    ownership_faults,
    shared,
    until,
)
from support.group_program import ProgramJob
from support.processes import BrokerProcess
from support.strangers import ConfluentStranger

PARTITIONS, PROCESSES, MEMBERS = 60, 5, 10
SLOWER = {
    # Longer than members and broker are kept from running on a busy machine: no session may end but those of the dead.
    "group.consumer.session.timeout.ms": "15000",
    "group.consumer.heartbeat.interval.ms": "500",
}
LONG_FETCHES = {"librdkafka": {"fetch.wait.max.ms": 2000}, "semel": {"fetch_max_wait_ms": 2000}}
TIMEOUT_S = 120


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path / "data", **{**SETTINGS, **SLOWER}).start()
    yield process
    process.stop()


@pytest.fixture
def processes(broker: BrokerProcess) -> Iterator[list[GroupProcess]]:
    """The processes that a test starts here are killed at its end."""
    started: list[GroupProcess] = []
    yield started
    for process in started:
        process.kill()


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("library", get_args(Library))
def test_fifty_members_share_sixty_partitions_while_they_are_rolled_and_ten_are_killed(
    broker: BrokerProcess, processes: list[GroupProcess], library: Library
) -> None:
    face = ConfluentStranger(broker.address)
    face.create_topic("t", PARTITIONS)
    sent = 0

    def start(number: int) -> GroupProcess:
        job = ProgramJob(
            bootstrap=broker.address,
            members=tuple(f"{number}-{member}" for member in range(MEMBERS)),
            config=LONG_FETCHES[library],
        )
        processes.append(GroupProcess(job, library))
        return processes[-1]

    def produce(count: int) -> None:
        nonlocal sent
        face.produce("t", [(number % PARTITIONS, None, b"%d" % number) for number in range(sent, sent + count)])
        sent += count

    def settle(running: list[GroupProcess], what: str) -> None:
        until(lambda: shared(running, PARTITIONS), running, what, TIMEOUT_S)

    def drain(running: list[GroupProcess]) -> None:
        until(lambda: committed(processes) == sent, running, "all is read and committed", TIMEOUT_S)

    produce(300)  # is read while they join
    running = [start(number) for number in range(PROCESSES)]
    settle(running, "fifty members share")
    for member in range(MEMBERS):
        produce(120)  # is read while five of them are replaced
        for number, process in enumerate(running):
            process.tell("stop", f"{number}-{member}")
            process.start_member(f"{number}-{member}-again")
        settle(running, f"five more are replaced, {member + 1} times")
    drain(running)
    running.pop(0).kill()
    produce(300)
    settle(running, "forty members take over from ten")
    running.append(start(PROCESSES))
    produce(300)
    settle(running, "ten others join")
    while len(running) > 1:
        produce(120)
        running.pop(0).leave()
        settle(running, f"{len(running)} processes are left")
    drain(running)
    running.pop().leave()
    assert not_once([value for process in processes for value in process.values], map(str, range(sent))) == {}
    assert ownership_faults(event for process in processes for event in process.events) == []


def said(at_s: int, member: str, what: str, *partitions: int) -> ProcessEvent:
    return ProcessEvent(at_s, member, what, tuple(("t", partition) for partition in partitions))


@pytest.mark.parametrize(
    ("events", "faults"),
    [
        ([said(1, "a", "assigned", 0, 1), said(2, "a", "revoked", 1), said(3, "b", "assigned", 1)], 0),
        ([said(1, "a", "assigned", 0, 1), said(2, "b", "assigned", 1), said(3, "a", "revoked", 1)], 1),
        ([said(1, "a", "assigned", 0), said(2, "a", "killed"), said(3, "b", "assigned", 0)], 0),
        ([said(1, "a", "assigned", 0), said(2, "b", "assigned", 0), said(3, "a", "killed")], 1),
        ([said(1, "a", "assigned", 0), said(2, "a", "lost", 0), said(3, "b", "assigned", 0)], 1),
        ([said(3, "b", "assigned", 0), said(1, "a", "assigned", 0), said(2, "a", "revoked", 0)], 0),
    ],
    ids=["revoked-first", "revoked-late", "killed-first", "killed-late", "lost", "said-out-of-order"],
)
def test_a_second_owner_is_found_in_what_callbacks_say(events: list[ProcessEvent], faults: int) -> None:
    assert len(ownership_faults(events)) == faults
