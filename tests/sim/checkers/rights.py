"""unauthorized, false-refusal: a request with its rights succeeds, and a request without them is refused."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

import msgspec

from sim.checkers.anomaly import Anomaly, few
from sim.checkers.history_index import HistoryIndex, TransactionOutcome
from sim.events import NO_TXN, RightChanged

FOLLOWED_WITHIN_MS = 8_000
"""Every broker of several follows a change within this time, or serves nothing: its session has ended."""


class Denial(msgspec.Struct):
    """A time in which a right is denied. It is perhaps denied a little earlier and later."""

    right: RightChanged
    perhaps_from_ms: float
    from_ms: float = inf
    to_ms: float = inf
    perhaps_to_ms: float = inf

    def __str__(self) -> str:
        return f"{self.right.what} {self.right.name} is denied from {self.from_ms:.0f} to {self.to_ms:.0f} ms"


class Denials:
    """The denials of a history, by host."""

    def __init__(self, facts: HistoryIndex) -> None:
        self._delay_ms = FOLLOWED_WITHIN_MS if facts.history.has_followers else 0
        self.by_host: dict[str, list[Denial]] = {}
        latest: dict[tuple[str, str, str], Denial] = {}
        for event in facts.rights:
            key = (event.host, event.what, event.name)
            denial = latest.get(key)
            match event.stage:
                case "taking" if denial is None:
                    latest[key] = denial = Denial(event, event.at_ms)
                    self.by_host.setdefault(event.host, []).append(denial)
                case "taken" if denial is not None:
                    denial.from_ms = min(denial.from_ms, event.at_ms + self._delay_ms)
                case "giving back" if denial is not None:
                    denial.to_ms = min(denial.to_ms, event.at_ms)
                case "given back" if denial is not None:
                    denial.perhaps_to_ms = event.at_ms + self._delay_ms
                    del latest[key]

    def of(self, client: str) -> list[Denial]:
        """The denials that concern a client object, by the name of its host."""
        name = client.partition("#")[0]
        hosts = [host for host in self.by_host if name == host or name.startswith((f"{host}-", f"{host}."))]
        return self.by_host[max(hosts, key=len)] if hosts else []

    def broken(self, client: str, what: str, name: str, asked_ms: float, done_ms: float) -> Iterator[Denial]:
        """The denials in force from before the request until after its answer."""
        for denial in self.of(client):
            is_meant = (denial.right.what, denial.right.name) == (what, name)
            if is_meant and denial.from_ms < asked_ms and done_ms < denial.to_ms:
                yield denial


def unauthorized(facts: HistoryIndex) -> Iterator[Anomaly]:
    """A request was acknowledged although a right for it was denied all the time from its sending to its answer; or a
    reader got a record that was sent after its right to read had been denied."""
    denials = Denials(facts)
    if found := [*_writes(facts, denials), *_reads(facts, denials), *_commits(facts, denials)]:
        yield Anomaly("unauthorized", few(found))


def _writes(facts: HistoryIndex, denials: Denials) -> Iterator[str]:
    for write in facts.writes.values():
        sent = write.sent
        if write.is_acknowledged and sent.acks != 0:
            for denial in denials.broken(sent.client, "write topic", sent.topic, sent.at_ms, write.ended_ms):
                yield f"{write}, sent at {sent.at_ms:.0f} ms; {denial}"


def _reads(facts: HistoryIndex, denials: Denials) -> Iterator[str]:
    for poll in facts.polls:
        for value in poll.values:
            write = facts.by_value.get(value) if value is not None else None
            if write is None:
                continue
            for denial in denials.broken(poll.client, "read topic", poll.topic, write.sent.at_ms, poll.at_ms):
                yield f"{write} was read by {poll.client} at {poll.at_ms:.0f} ms; {denial}"


def _commits(facts: HistoryIndex, denials: Denials) -> Iterator[str]:
    for txn in facts.txns.values():
        is_empty = not txn.writes and not txn.offsets
        if txn.outcome is not TransactionOutcome.COMMITTED or is_empty:
            continue
        began = txn.began
        for denial in denials.broken(
            began.client, "write transactional id", began.transactional_id, txn.committing_ms, txn.ended_ms
        ):
            yield f"{txn} was committed at {txn.ended_ms:.0f} ms; {denial}"
    for commit in facts.offset_commits.values():
        asked = commit.asked
        if asked.txn == NO_TXN and commit.ended_ms < inf and not commit.is_refused:
            for denial in denials.broken(asked.client, "read group", asked.group, asked.at_ms, commit.ended_ms):
                yield f"offsets of {asked.group} were committed at {commit.ended_ms:.0f} ms; {denial}"


def false_refusal(facts: HistoryIndex) -> Iterator[Anomaly]:
    """A send was refused for a missing right while the client had all of them."""
    denials = Denials(facts)
    found = [
        f"{write}, sent at {write.sent.at_ms:.0f} ms: {write.error}"
        for write in facts.writes.values()
        if "AUTHORIZATION_FAILED" in write.error
        and not any(
            denial.perhaps_from_ms < write.ended_ms and write.sent.at_ms < denial.perhaps_to_ms
            for denial in denials.of(write.sent.client)
        )
    ]
    if found:
        yield Anomaly("false-refusal", few(found))
