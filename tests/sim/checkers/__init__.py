"""The checkers. Each looks for one kind of anomaly: a pure function of the clients' history and the final state.

    for anomaly in check_all(history, final): ...

Names and definitions: docs/reliability.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from sim.checkers import (
    consumer_groups,
    cycles,
    elections,
    fencing,
    groups,
    isolation,
    order,
    pipelines,
    renewals,
    replicas,
    rights,
    steps,
    stored,
    topics,
    writes,
)
from sim.checkers.anomaly import Anomaly
from sim.checkers.history_index import HistoryIndex
from sim.final import Final
from sim.history import History

__all__ = ["CHECKERS", "Anomaly", "HistoryIndex", "check_all", "judge"]

Checker = Callable[[HistoryIndex], Iterator[Anomaly]]

CHECKERS: Mapping[str, Checker] = {
    "lost-write": writes.lost_write,
    "unseen": writes.unseen,
    "duplicate": writes.duplicate,
    "inconsistent-offsets": writes.inconsistent_offsets,
    "phantom-read": writes.phantom_read,
    "aborted-read": isolation.aborted_read,
    "torn-txn": isolation.torn_txn,
    "precommitted-read": isolation.precommitted_read,
    "poll-skip": order.poll_skip,
    "nonmonotonic-poll": order.nonmonotonic_poll,
    "unowned-poll": order.unowned_poll,
    "nonmonotonic-send": order.nonmonotonic_send,
    "G0": cycles.g0,
    "G1c": cycles.g1c,
    "eos-offset": pipelines.eos_offset,
    "reordered-output": pipelines.reordered_output,
    "eos-step": steps.eos_step,
    "fence-violation": fencing.fence_violation,
    "wrong-txn": stored.wrong_txn,
    "sequence-gap": stored.sequence_gap,
    "stuck-LSO": stored.stuck_lso,
    "bad-election": elections.bad_election,
    "false-commit": replicas.false_commit,
    "replica-divergence": replicas.replica_divergence,
    "lost-group-offset": groups.lost_group_offset,
    "double-assignment": groups.double_assignment,
    "zombie-commit": groups.zombie_commit,
    "double-owner": consumer_groups.double_owner,
    "stale-commit": consumer_groups.stale_commit,
    "epoch-regress": consumer_groups.epoch_regress,
    "offset-regress": consumer_groups.offset_regress,
    "unread-commit": consumer_groups.unread_commit,
    "group-mismatch": consumer_groups.group_mismatch,
    "mixed-topics": renewals.mixed_topics,
    "renewal-skip": renewals.renewal_skip,
    "foreign-commit": renewals.foreign_commit,
    "unauthorized": rights.unauthorized,
    "false-refusal": rights.false_refusal,
    "lost-topic": topics.lost_topic,
    "restored-record": topics.restored_record,
    "undrained": topics.undrained,
}
"""In the order of reports: the findings that explain most come first."""


def check_all(history: History, final: Final) -> list[Anomaly]:
    """All anomalies that any checker finds."""
    return judge(HistoryIndex(history, final))


def judge(facts: HistoryIndex) -> list[Anomaly]:
    """The same for a facts that is built already."""
    return [anomaly for checker in CHECKERS.values() for anomaly in checker(facts)]
