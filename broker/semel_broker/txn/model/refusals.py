"""PURE: The errors of the transaction coordinator, each with its reason and the next action."""

from __future__ import annotations

from semel_protocol.errors import ErrorCode, KafkaError

from semel_broker.txn.model.identity import ProducerIdentity
from semel_broker.txn.model.metadata import TransactionMetadata


def fenced(txn: TransactionMetadata, producer: ProducerIdentity) -> KafkaError:
    """The error for a producer whose epoch is over: it names the successor and the time."""
    return KafkaError(
        ErrorCode.PRODUCER_FENCED,
        f"{txn.transactional_id}: {producer} is fenced: {txn.why_fenced(producer)}",
    )


def concurrent(txn: TransactionMetadata) -> KafkaError:
    """The error while a transaction is being ended: ask again."""
    return KafkaError(
        ErrorCode.CONCURRENT_TRANSACTIONS, f"{txn.transactional_id}: the last transaction is in {txn.state.label}"
    )


def only_with_its_group(txn: TransactionMetadata) -> KafkaError:
    """The error for a member that wants to commit by itself."""
    return KafkaError(
        ErrorCode.INVALID_TXN_STATE,
        f"{txn.transactional_id} is in step {txn.group_epoch} of its transaction group: DecideTransactionGroup "
        "commits it, with the others",
    )


def only_to_be_ended(txn: TransactionMetadata) -> KafkaError:
    """The error for a request to add to a prepared transaction (KIP-939)."""
    return KafkaError(
        ErrorCode.INVALID_TXN_STATE,
        f"{txn.transactional_id}: the prepared transaction can be committed or aborted, not added to",
    )


def not_open(txn: TransactionMetadata, commit: bool) -> KafkaError:
    """The error for an end without an open transaction."""
    return KafkaError(
        ErrorCode.INVALID_TXN_STATE,
        f"{txn.transactional_id}: there is nothing to {'commit' if commit else 'abort'} in state {txn.state.label}",
    )
