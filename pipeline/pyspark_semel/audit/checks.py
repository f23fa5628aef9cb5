"""PURE: what the audit checks, by name, and how a breach is told."""

from __future__ import annotations

from enum import StrEnum

import msgspec

NOTED_MAX = 50
"""Breaches of one check told one by one, of one stretch; all are counted."""


class Check(StrEnum):
    """Each value is the row of the result; the order is that of the table."""

    BATCH = "whole batches, one behind the other"
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
    ABORTED_INDEX = "aborted ones in the index"


class Breach(msgspec.Struct, frozen=True, array_like=True):
    """One place where the log is not what it should be."""

    check: Check
    offset: int
    what: str


class Breaches(msgspec.Struct, array_like=True):
    """All are counted, some are told."""

    counts: dict[Check, int] = {}
    noted: list[Breach] = []

    def add(self, check: Check, offset: int, what: str) -> None:
        self.counts[check] = self.counts.get(check, 0) + 1
        if self.counts[check] <= NOTED_MAX:
            self.noted.append(Breach(check, offset, what))

    def take(self, other: Breaches) -> None:
        """Those of a later stretch."""
        for check, count in other.counts.items():
            self.counts[check] = self.counts.get(check, 0) + count
        self.noted += other.noted
