"""What can still go wrong, exactly (docs/old-clients.md): with a client of transaction version 1 that gives a request
up, keeps its epoch, and has other connections to partitions and groups than to the coordinator of its transactions."""

from __future__ import annotations

from sim.old_clients.table import Row

GIVEN_UP = "Produce, given up"
REUSED = "Produce, given up, its sequence numbers used again"
OFFSETS = "TxnOffsetCommit, given up"
UNWRITTEN = "behind AddPartitionsToTxn of the next transaction"
ONE_LATER = "behind the next transaction"
"""By then the transaction after that has the partition, and nothing of it is there yet."""
WITHOUT_OFFSETS = "behind AddOffsetsToTxn of the next transaction"

TAKEN_IN = "aborted-read, wrong-txn"
"""What was aborted is read as committed, with the transaction that it was taken into."""
TAKEN_FOR = "aborted-read, inconsistent-offsets, lost-write, torn-txn, wrong-txn"
"""And the record that has its sequence numbers now is taken for it sent again: acknowledged, and not stored."""
TAKEN_FOR_AT_THE_END = "aborted-read, inconsistent-offsets, torn-txn, unseen, wrong-txn"

KNOWN: tuple[Row, ...] = (
    (GIVEN_UP, UNWRITTEN, "records alone", TAKEN_IN),
    (GIVEN_UP, UNWRITTEN, "writes the same", TAKEN_IN),
    (GIVEN_UP, UNWRITTEN, "writes the same, aborts", "wrong-txn"),
    (GIVEN_UP, ONE_LATER, "offsets alone", TAKEN_IN),
    (GIVEN_UP, ONE_LATER, "writes elsewhere", TAKEN_IN),
    (REUSED, UNWRITTEN, "records alone", TAKEN_FOR),
    (REUSED, UNWRITTEN, "writes the same", TAKEN_FOR),
    (REUSED, UNWRITTEN, "writes the same, aborts", "inconsistent-offsets, lost-write"),
    (REUSED, ONE_LATER, "offsets alone", TAKEN_FOR_AT_THE_END),
    (REUSED, ONE_LATER, "writes elsewhere", TAKEN_FOR_AT_THE_END),
    (OFFSETS, WITHOUT_OFFSETS, "offsets alone", "lost-group-offset"),
    (OFFSETS, WITHOUT_OFFSETS, "writes elsewhere", "lost-group-offset"),
)
"""One case each."""
