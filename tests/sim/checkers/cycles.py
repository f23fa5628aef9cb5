"""G0, G1c: cycles between committed transactions (Adya).

Kafka lets transactions of different producers interleave in different partitions, so a cycle of their writes alone
proves nothing. Here each edge means "was committed before". A correct history has no cycle of such edges:

session     one transactional id's transactions, in the order of their begin. Transactions without writes are left out:
            their commit sends no request, so even a fenced producer succeeds with it.
write-write one transactional id's records, in the order of their offsets in a partition
write-read  a reader of committed data read a record within another transaction
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from sim.checkers.anomaly import Anomaly
from sim.checkers.history_index import HistoryIndex, TransactionOutcome

Edges = dict[int, dict[int, str]]
"""Transaction -> the transactions that must come after it, with the kind of the edge."""


def g0(facts: HistoryIndex) -> Iterator[Anomaly]:
    """A cycle of writes."""
    cycle = find_cycle(_writes(facts))
    if cycle:
        yield Anomaly("G0", cycle)


def g1c(facts: HistoryIndex) -> Iterator[Anomaly]:
    """A cycle of writes and reads, at least one of them a read."""
    edges = _writes(facts)
    if find_cycle(edges):
        return  # `g0` reports it
    for txn in _committed(facts):
        for poll in facts.txns[txn].polls:
            if not facts.is_read_committed(poll.client):
                continue
            for value in poll.values:
                writer = facts.txn_of(value)
                if writer is not None and writer.outcome is TransactionOutcome.COMMITTED and writer.began.op != txn:
                    edges[writer.began.op].setdefault(txn, f"write-read {value!r}")
    cycle = find_cycle(edges)
    if cycle:
        yield Anomaly("G1c", cycle)


def _committed(facts: HistoryIndex) -> list[int]:
    return [op for op, txn in facts.txns.items() if txn.outcome is TransactionOutcome.COMMITTED]


def _writes(facts: HistoryIndex) -> Edges:
    edges: Edges = {op: {} for op in _committed(facts)}
    last: dict[str, int] = {}
    for op in edges:
        if not facts.txns[op].writes and not facts.txns[op].offsets:
            continue
        owner = facts.txns[op].began.transactional_id
        if owner in last:
            edges[last[owner]].setdefault(op, "session")
        last[owner] = op
    for place, end in facts.final.partitions.items():
        latest: dict[str, int] = {}
        for row in end.committed:
            txn = facts.txn_of(row.value)
            if txn is None or txn.outcome is not TransactionOutcome.COMMITTED:
                continue
            owner, op = txn.began.transactional_id, txn.began.op
            if latest.get(owner, op) != op:
                edges[latest[owner]].setdefault(op, f"write-write in {place[0]}-{place[1]}@{row.offset}")
            latest[owner] = op
    return edges


def find_cycle(edges: Edges) -> str:
    """A cycle as text; "" if there is none. Searches depth first, without recursion."""
    done: dict[int, None] = {}
    for root in edges:
        if root in done:
            continue
        path = [root]
        on_path = {root: 0}
        pending = [iter(edges[root])]
        while path:
            for child in pending[-1]:
                if child in on_path:
                    return _in_words(edges, [*path[on_path[child] :], child])
                if child not in done:
                    on_path[child] = len(path)
                    path.append(child)
                    pending.append(iter(edges[child]))
                    break
            else:
                pending.pop()
                node = path.pop()
                del on_path[node]
                done[node] = None
    return ""


def _in_words(edges: Edges, cycle: list[int]) -> str:
    return f"{cycle[0]}" + "".join(f" -[{edges[a][b]}]-> {b}" for a, b in pairwise(cycle))
