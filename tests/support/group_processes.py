"""Processes with members of a group of the consumer protocol: their events, and the owner of each partition over
time.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from support.group_program import ProgramJob

TESTS = Path(__file__).parents[1]
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.session.timeout.ms": "2000",
    "group.consumer.session.timeout.ms": "2000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
}
"""The settings of brokers: sessions are short, so that the partitions of a dead member soon have another owner."""
END_S = 60

Library = Literal["librdkafka", "semel"]
Place = tuple[str, int]
"""Topic and partition."""


class ProcessEvent(NamedTuple):
    at_s: float
    member: str
    what: str
    more: tuple[Any, ...]


class GroupProcess:
    """A process with members, which a test can pause and kill."""

    def __init__(self, job: ProgramJob, library: Library = "librdkafka") -> None:
        self.job = job
        self.events: list[ProcessEvent] = []
        self.values: list[str] = []
        self.committed = 0
        """Records whose offsets are committed, in transactions or without."""
        self.owned: dict[str, set[Place]] = {member: set() for member in job.members}
        """The partitions of each member that is not closed."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"support.group_{library}", msgspec.json.encode(job).decode()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(TESTS)},
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            at_s, member, what, *more = json.loads(line)
            self._note(ProcessEvent(at_s, member, what, tuple(more)))

    def _note(self, event: ProcessEvent) -> None:
        self.events.append(event)
        match event.what:
            case "value":
                self.values += event.more
            case "committed":
                self.committed += event.more[0]
            case "assigned":
                self.owned[event.member] = self.owned.get(event.member, set()) | _places(event)
            case "revoked" | "lost":
                self.owned[event.member] = self.owned[event.member] - _places(event)
            case "closed":
                self.owned.pop(event.member, None)

    @property
    def assigned(self) -> list[int]:
        """The numbers of the partitions that the members own, sorted."""
        return sorted(partition for places in list(self.owned.values()) for _, partition in places)

    def more_of(self, what: str) -> list[object]:
        """The other values of these events, for example the names of errors."""
        return [each for event in list(self.events) if event.what == what for each in event.more]

    def count_of(self, what: str) -> int:
        return sum(event.what == what for event in list(self.events))

    def has_said(self, what: str) -> bool:
        return self.count_of(what) > 0

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def tell(self, *words: str) -> None:
        """Send a command; see `group_program`."""
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(words) + "\n")
        self._process.stdin.flush()

    def start_member(self, name: str) -> None:
        self.owned[name] = set()
        self.tell("start", name)

    def hold(self, moment: str) -> Callable[[], bool]:
        """The workers wait at this moment of their next transaction. The result says whether one does."""
        before = self.count_of("held")
        self.tell("hold", moment)
        return lambda: self.count_of("held") > before

    def leave(self) -> None:
        """All members stop reading, and close their consumers."""
        self.tell("stop")
        try:
            assert self._process.wait(END_S) == 0
        except subprocess.TimeoutExpired:
            raise AssertionError(f"does not end; last events: {self.events[-5:]}") from None
        self._reader.join(END_S)

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL. The events end with it."""
        was_running, at_s = self.is_running, time.monotonic()
        self._process.kill()
        self._process.wait(END_S)
        self._reader.join(END_S)
        if was_running:
            for member in list(self.owned):
                self.events.append(ProcessEvent(at_s, member, "killed", ()))
            self.owned.clear()


def _places(event: ProcessEvent) -> set[Place]:
    return {(topic, partition) for topic, partition in event.more}


def until(condition: Callable[[], bool], running: Iterable[GroupProcess], what: str, timeout_s: float = 60) -> None:
    """Wait for a condition. Fails when one of the processes that should run has ended."""
    processes = list(running)
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert all(each.is_running for each in processes), what
        if time.monotonic() > deadline:
            state = [(each.assigned, each.committed, [*each.events[-3:]]) for each in processes]
            raise AssertionError(f"{what}: not within {timeout_s} s: {state}")
        time.sleep(0.02)


def committed(processes: Iterable[GroupProcess]) -> int:
    return sum(each.committed for each in processes)


def shared(processes: Iterable[GroupProcess], partitions: int = 6) -> bool:
    """Whether each partition of a topic has one owner, and no member has two more than another."""
    members = [places for each in processes for places in list(each.owned.values())]
    counts = [len(places) for places in members]
    owned = sorted(partition for places in members for _, partition in places)
    return owned == list(range(partitions)) and min(counts) > 0 and max(counts) - min(counts) <= 1


def ownership_faults(events: Iterable[ProcessEvent]) -> list[str]:
    """Each moment at which a partition was assigned to a member while another one had it, as callbacks say.

    An owner has a partition until its callback for the revocation begins, or until it is killed. A member that says
    that it lost partitions is a fault, too: it had them longer than the group knew.
    """
    owners: dict[Place, str] = {}
    found: list[str] = []
    for event in sorted(events):
        if event.what == "assigned":
            for place in _places(event):
                if place in owners:
                    found.append(f"{event.at_s:.3f}: {place} to {event.member}, while {owners[place]} has it")
                owners[place] = event.member
        elif event.what in ("revoked", "lost", "closed", "killed"):
            places = _places(event) if event.more else {p for p, owner in owners.items() if owner == event.member}
            for place in places:
                if owners.get(place) == event.member:
                    del owners[place]
        if event.what == "lost" and event.more:
            found.append(f"{event.at_s:.3f}: {event.member} lost {sorted(_places(event))}")
    return found


def not_once(values: Iterable[str], wanted: Iterable[str]) -> dict[str, int]:
    """How often values occur that do not occur once, and values that are not wanted. Empty: all is well."""
    counts = Counter(values)
    expected = set(wanted)
    return {value: counts[value] for value in expected | counts.keys() if counts[value] != (value in expected)}
