"""PURE: the names of the audit's checks, and the breaches that the audit finds."""

from __future__ import annotations

from enum import StrEnum

import msgspec

NOTED_MAX = 50
"""The most breaches of one check that one segment range describes; all breaches are counted."""


class Check(StrEnum):
    """Each value is a row of the result table; the members are in the order of the rows."""

    BATCH = "whole batches, one after the other"
    CRC = "CRC-32C"
    OFFSETS = "offsets without a gap"
    COUNTS = "record counts"
    TIMESTAMPS = "batch timestamps"
    LEADER_EPOCHS = "leader epochs ascend"
    PRODUCER_EPOCHS = "producer epochs ascend"
    SEQUENCES = "sequences without a gap"
    REPEATS = "no sequence twice"
    TRANSACTIONS = "a marker ends each transaction"
    MARKERS = "one marker a transaction"
    COORDINATOR_EPOCHS = "coordinator epochs ascend"
    ABORTED_INDEX = "aborted transactions in the index"


class Breach(msgspec.Struct, frozen=True, array_like=True):
    """One place where the log breaks an invariant."""

    check: Check
    offset: int
    what: str


class Breaches(msgspec.Struct, array_like=True):
    """The breaches of one segment range or partition: all are counted, the first ones of each check are described."""

    counts: dict[Check, int] = {}
    noted: list[Breach] = []

    def add(self, check: Check, offset: int, what: str) -> None:
        self.counts[check] = self.counts.get(check, 0) + 1
        if self.counts[check] <= NOTED_MAX:
            self.noted.append(Breach(check, offset, what))

    def merge(self, other: Breaches) -> None:
        """Add the breaches of a later segment range."""
        for check, count in other.counts.items():
            self.counts[check] = self.counts.get(check, 0) + count
        self.noted += other.noted
