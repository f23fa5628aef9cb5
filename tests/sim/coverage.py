"""Statistics over runs: how often each fault occurred, in which states it found transactions and groups, what followed.

A run without findings proves something only if faults occurred; these counts show it. The world counts by name
(`SimWorld.count`). Names have the form `section/what`. A run's tally is part of its verdict, and `make sim` adds the
tallies up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from semel_broker.groups.classic.group import ClassicMembership, GroupState
from semel_broker.groups.consumer.model import ConsumerGroup
from semel_broker.txn.model.metadata import BETWEEN

from sim.checkers.history_index import HistoryIndex, TransactionOutcome
from sim.events import Assigned, Beaten, Revoked

if TYPE_CHECKING:
    from semel_broker.node import Node

    from sim.holds import HeldRequest
    from sim.world import SimWorld

Tally = dict[str, int]
CALM_GROUPS = (GroupState.EMPTY, GroupState.STABLE, GroupState.DEAD)
FAULT, MET, CAME = "fault", "met", "came"
"""Sections of the tally: faults that began; states that they met, as `kind>state`; all other events."""
OUTCOMES = {
    TransactionOutcome.COMMITTED: "committed",
    TransactionOutcome.ABORTED: "aborted",
    TransactionOutcome.UNKNOWN: "of unknown outcome",
}
LATE = ("Produce", "AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn")


def fault_met(world: SimWorld, kind: str, node: Node | None) -> None:
    """Count a fault, and the states of the transactions and groups on the broker when it begins."""
    world.count(f"{FAULT}/{kind}")
    broker = None if node is None else node.broker
    if broker is None:
        world.count(f"{MET}/{kind}>no broker")
        return
    states: dict[str, None] = {}
    for txns in broker.transactions.shards.here():
        states |= {txn.state.label: None for txn in txns.known() if txn.state not in BETWEEN}
    for groups in broker.groups.shards.here():
        for group in groups.groups.values():
            classic, consumer = group.of(ClassicMembership), group.of(ConsumerGroup)
            if classic is not None and classic.state not in CALM_GROUPS:
                states["rebalancing"] = None
            if consumer is not None and not consumer.is_blank:
                states[f"group {consumer.state_name.lower()}"] = None
    for state in states:
        world.count(f"{MET}/{kind}>{state}")


def count_history(tally: Tally, facts: HistoryIndex, held: list[HeldRequest]) -> None:
    """Add the counts of the clients' events to a tally."""

    def count(what: str, by: int) -> None:
        if by:
            tally[f"{CAME}/{what}"] = tally.get(f"{CAME}/{what}", 0) + by

    txns = list(facts.txns.values())
    for outcome, words in OUTCOMES.items():
        count(f"transactions {words}", sum(txn.outcome is outcome for txn in txns))
    count("commits never answered", sum(txn.committing_ms < txn.ended_ms == float("inf") for txn in txns))
    count("records acknowledged", sum(write.is_acknowledged for write in facts.writes.values()))
    count("records that failed", sum(write.has_failed for write in facts.writes.values()))
    count("rights taken", sum(event.stage == "taken" for event in facts.rights))
    count("sends refused for a missing right", sum("AUTHORIZATION_FAILED" in w.error for w in facts.writes.values()))
    decisions = list(facts.decisions.values())
    count("steps of transaction groups begun", len(facts.steps))
    count("steps committed", sum(bool(decision.is_ours) for decision in decisions))
    count("steps whose commit was never answered", sum(decision.is_ours is None for decision in decisions))
    count("tokens that an earlier step had committed", sum(decision.is_ours is False for decision in decisions))
    assigned = [event for event in facts.assigned if isinstance(event, Assigned) and event.generation >= 0]
    groups = {(facts.consumers[event.client].group, event.generation): None for event in assigned}
    count("generations of groups", len(groups))
    count("partitions lost by members", sum(isinstance(event, Revoked) and event.lost for event in facts.assigned))
    beaten = [event for event in facts.epochs if isinstance(event, Beaten)]
    count("heartbeats of the consumer protocol", len(beaten))
    for error in sorted({event.error for event in beaten if event.error}):
        count(f"heartbeats answered {error}", sum(event.error == error for event in beaten))
    epoch_commits = [commit for commit in facts.offset_commits.values() if commit.asked.epoch >= 0]
    count("commits with a member epoch", len(epoch_commits))
    count("of these refused", sum(commit.is_refused for commit in epoch_commits))
    count("topics under a name that is used again", len({event.topic for event in facts.renewed}))
    count("records read of these", sum(len(given.offsets) for given in facts.given))
    count("moves of consumers to another topic of the same name", _moves(facts))
    began = [(txn.began.client.partition("#")[0], txn.began.at_ms) for txn in txns]
    for each in held:
        if each.api in LATE and not each.is_answer:
            until_ms = each.at_ms + each.delay_ms
            if any(client == each.source and each.at_ms < at_ms < until_ms for client, at_ms in began):
                count(f"{each.api} held past the next transaction's begin", 1)


def _moves(facts: HistoryIndex) -> int:
    """How often a consumer got a record of another topic than the last one under the same name and partition."""
    last: dict[tuple[str, str, int], str] = {}
    moves = 0
    for given in facts.given:
        for value in given.values:
            write = facts.by_value.get(value)
            if write is not None:
                key = given.client, given.name, given.partition
                moves += last.setdefault(key, write.sent.topic) != write.sent.topic
                last[key] = write.sent.topic
    return moves


class Coverage:
    """The sums over many runs: for each name the number of events, and the number of runs with such an event."""

    def __init__(self) -> None:
        self.runs = 0
        self.times: Tally = {}
        self.within: Tally = {}

    def add(self, tally: Mapping[str, int]) -> None:
        """Add the tally of one run."""
        self.runs += 1
        for name, count in tally.items():
            self.times[name] = self.times.get(name, 0) + count
            self.within[name] = self.within.get(name, 0) + 1

    def lines(self) -> Iterator[str]:
        """The lines of a table for people."""
        states = sorted({_state(name): None for name in self.times if name.startswith(f"{MET}/")})
        yield f"events in {self.runs} runs: times (runs); for faults also the states that they met"
        for name in self._names(FAULT):
            kind = name.partition("/")[2]
            met = [(state, self.times.get(f"{MET}/{kind}>{state}", 0)) for state in states]
            words = ", ".join(f"{state} {count}" for state, count in met if count)
            yield f"  {kind:<32}{self.times[name]:>8} ({self.within[name]})  {words}"
        for name in self._names(CAME):
            yield f"  {name.partition('/')[2]:<52}{self.times[name]:>10} ({self.within[name]})"

    def _names(self, section: str) -> list[str]:
        return sorted(name for name in self.times if name.startswith(f"{section}/"))


def _state(name: str) -> str:
    return name.partition(">")[2]
