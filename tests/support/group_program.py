"""The shared part of programs with members of a group: the job as JSON, commands on stdin, events on stdout.

A program runs its members in threads. Each event is a line of JSON: the time, the member, the event, more values. The
time is that of the machine's monotonic clock, so events of several programs can be put in order.

Commands: `start NAME`, `stop NAME`, `stop` (all members, then the program ends), `hold MOMENT` (workers wait there in
their next transaction), and `go` (they continue).
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable

import msgspec

_printing = threading.Lock()


class ProgramJob(msgspec.Struct, frozen=True, kw_only=True):
    """The work of a program.

    `target`: members are workers. They read committed records and write `done-VALUE` for each into this topic, in
    transactions with the offsets. `hold`: the moment of its first transaction at which a worker waits for `go`: "sent",
    when its records are written, or "offsets", when its offsets are sent too.
    """

    bootstrap: str
    group: str = "g"
    subscription: str = "t"
    members: tuple[str, ...] = ("m",)
    target: str = ""
    hold: str = ""
    transaction_timeout_ms: int = 60_000
    config: dict[str, str | int | bool] = {}
    """More settings of the consumers, by the names of the library."""


class ProgramMember(threading.Thread):
    """One consumer. A worker has a transactional producer too, whose id is the member's name."""

    def __init__(self, name: str, job: ProgramJob) -> None:
        super().__init__(name=name, daemon=True)
        self.job = job
        self.is_leaving = threading.Event()
        self._hold = job.hold
        self._go = threading.Event()

    def run(self) -> None:
        """Work until `leave`. An error that is not expected ends the program."""
        try:
            if self.job.target:
                self.transform()
            else:
                self.read()
            self.say("closed")
        except BaseException as error:
            traceback.print_exc()
            self.say("failed", repr(error))
            os._exit(1)

    def read(self) -> None:
        """Read records one by one, and commit the offset of each."""
        raise NotImplementedError

    def transform(self) -> None:
        """Read, transform and write in transactions."""
        raise NotImplementedError

    def say(self, what: str, *more: object) -> None:
        """Print an event."""
        with _printing:
            print(json.dumps([time.monotonic(), self.name, what, *more]), flush=True)

    def reach(self, moment: str) -> None:
        """Report that a transaction has come to this moment, and wait for `go` if the job has a hold there."""
        self.say(moment)
        if moment == self._hold:
            self.say("held")
            self._go.wait()

    def leave(self) -> None:
        self.is_leaving.set()
        self.go()

    def hold(self, moment: str) -> None:
        self._go.clear()
        self._hold = moment

    def go(self) -> None:
        self._hold = ""
        self._go.set()


def run(make: Callable[[str, ProgramJob], ProgramMember]) -> None:
    """Do the job of the first argument until `stop`. Ends without cleaning up when stdin ends."""
    job = msgspec.json.decode(sys.argv[1], type=ProgramJob)
    members: dict[str, ProgramMember] = {}

    def start(name: str) -> None:
        members[name] = make(name, job)
        members[name].start()

    for name in job.members:
        start(name)
    for line in sys.stdin:
        match line.split():
            case ["start", name]:
                start(name)
            case ["stop", name]:
                members[name].leave()
            case ["hold", moment]:
                for member in members.values():
                    member.hold(moment)
            case ["go"]:
                for member in members.values():
                    member.go()
            case ["stop"]:
                for member in members.values():
                    member.leave()
                for member in members.values():
                    member.join()
                return
    os._exit(1)
