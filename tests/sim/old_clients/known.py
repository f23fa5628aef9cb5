"""The known anomalies of clients of transaction version 1, as in docs/old-clients.md.

They occur if the client gives a request up, keeps its epoch, and uses other connections to partitions and groups than
to the coordinator of its transactions.
"""

from __future__ import annotations

from sim.old_clients.table import Row

GIVEN_UP = "Produce, given up"
REUSED = "Produce, given up, its sequence numbers used again"
OFFSETS = "TxnOffsetCommit, given up"
UNWRITTEN = "behind AddPartitionsToTxn of the next transaction"
ONE_LATER = "behind the next transaction"
"""The transaction after the next one has then added the partition, and has not written to it yet."""
WITHOUT_OFFSETS = "behind AddOffsetsToTxn of the next transaction"

TAKEN_IN = "aborted-read, wrong-txn"
"""An aborted record is read as committed, as part of the transaction that was open when it arrived."""
TAKEN_FOR = "aborted-read, inconsistent-offsets, lost-write, torn-txn, wrong-txn"
"""Also, the broker takes the next record with these sequence numbers for a repetition: acknowledged, not stored."""
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
"""Each row occurs in exactly one case."""
