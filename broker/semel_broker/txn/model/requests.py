"""PURE: The requests to the coordinator of a transactional id, and its decisions, independent of API versions."""

from __future__ import annotations

import msgspec
from semel_protocol.errors import ErrorCode, KafkaError

from semel_broker.txn.model.identity import NO_IDENTITY, ClientName, ProducerIdentity
from semel_broker.txn.model.metadata import TIMEOUT_NEVER_MS, TransactionMetadata

BUMPING_VERSION = 2
"""The transaction version from which on every end bumps the epoch (KIP-890)."""


class TransactionStep(msgspec.Struct, frozen=True):
    """The decision on one request.

    `then`: the metadata to persist and apply; None: nothing changes. `answer`: the identity that the producer continues
    with; None: the coordinator decides again once the transaction that `then` ends is complete. `awaits_markers`: the
    answer waits until every partition has its marker, for up to `Limits.transaction_hold_ms_max`. `kept`: the prepared
    transaction that was kept open (KIP-939).
    """

    then: TransactionMetadata | None
    answer: ProducerIdentity | None = None
    awaits_markers: bool = False
    kept: ProducerIdentity = NO_IDENTITY


class Init(msgspec.Struct, frozen=True, kw_only=True):
    """InitProducerId with a transactional id.

    `expected`: the producer's identity (KIP-360), NO_IDENTITY for a new instance.
    `note`: text of an operator's tool, for the ledger. `group_epoch`: the step of a transaction group that the
    instance is to be part of. `version`: the transaction version of the broker. From version 2 on a producer whose
    transaction timed out may continue.
    """

    transactional_id: str
    timeout_ms: int
    expected: ProducerIdentity = NO_IDENTITY
    client: ClientName = ClientName()
    keep_prepared: bool = False
    note: str = ""
    group_epoch: int = -1
    version: int = 0


class End(msgspec.Struct, frozen=True, kw_only=True):
    """EndTxn. `version`: the transaction version that the client speaks, 2 from EndTxn v5 on."""

    producer: ProducerIdentity
    commit: bool
    version: int = 0


class TransactionRules(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that decide (`transaction.max.timeout.ms`, `transaction.two.phase.commit.enable`)."""

    timeout_ms_max: int
    two_phase_commit: bool = False

    def timeout_ms_of(self, asked_ms: int, *, enable_2pc: bool, keep_prepared: bool) -> int:
        """The timeout that a producer gets. Raises INVALID_REQUEST, INVALID_TRANSACTION_TIMEOUT,
        TRANSACTIONAL_ID_AUTHORIZATION_FAILED."""
        if keep_prepared and not enable_2pc:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "a prepared transaction is kept only for a producer with two-phase commit"
            )
        if enable_2pc:
            if not self.two_phase_commit:
                raise KafkaError(
                    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                    "two-phase commit is off: set transaction.two.phase.commit.enable of the broker",
                )
            return TIMEOUT_NEVER_MS
        if not 0 < asked_ms <= self.timeout_ms_max:
            raise KafkaError(
                ErrorCode.INVALID_TRANSACTION_TIMEOUT,
                f"a transaction timeout of {asked_ms} ms is outside [1, {self.timeout_ms_max}]: change "
                "transaction.timeout.ms, or transaction.max.timeout.ms of the broker",
            )
        return asked_ms
