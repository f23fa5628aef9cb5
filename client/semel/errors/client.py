"""What the client raises by itself, whatever the brokers say."""

# ruff: noqa: N818  (ProducerFenced, CommitFailedError...: the names users already catch)

from semel.errors.base import (
    AbortableError,
    ApplicationRecoverableError,
    KafkaError,
    MisconfiguredError,
    RefreshRetriableError,
    RetriableError,
)


class KafkaConfigurationError(MisconfiguredError, ValueError):
    """Settings that contradict each other, are out of range or of another type, or ask for what is not supported."""


class IllegalStateError(KafkaError):
    """The call does not fit the client's state, such as seek on a partition that is not assigned."""


class IllegalOperation(KafkaError):
    """The client was not configured for this call, such as commit without a group_id."""


class KafkaTimeoutError(RetriableError):
    """Something took longer than its setting allows."""


class KafkaConnectionError(RefreshRetriableError):
    """No connection, or the connection was lost before the answer arrived."""

    advice = "Check that the broker runs and that its advertised address can be reached from here"


class KafkaProtocolError(KafkaError):
    """The peer sent bytes that are not Kafka's protocol; its connection was closed."""

    advice = "Check that the address is a Kafka listener and not, say, HTTP or TLS"


class CorrelationIdError(KafkaProtocolError, RetriableError):
    """A response that answers no request, or out of order; its connection was closed."""

    advice = "The connection was closed and is opened again on the next request"


class UnsupportedVersionError(MisconfiguredError):
    """The broker serves no version of this API that the client can speak."""

    advice = "Upgrade the broker, or do without the feature that needs this API"


class CommitFailedError(ApplicationRecoverableError):
    """The group has moved on: these offsets were not committed."""

    advice = (
        "Another member owns the partitions now and will read these records again; call getmany more often than "
        "max_poll_interval_ms, or lower max_poll_records"
    )


class NoOffsetForPartitionError(KafkaError):
    """No committed offset, and auto_offset_reset='none'."""

    advice = "Seek to an offset, or set auto_offset_reset to 'earliest' or 'latest'"


class RecordTooLargeError(KafkaError):
    """A record at the current position is larger than the fetch limits allow."""

    advice = "Raise max_partition_fetch_bytes"


class ConsumerStoppedError(KafkaError):
    """The consumer was stopped while, or before, the call."""


class ProducerClosed(KafkaError):
    """The producer was stopped while, or before, the call; the record was not stored."""

    advice = "Create a new Producer"


# Transactions


class TransactionHasFailed(AbortableError):
    """Part of the transaction failed, so that it cannot be committed; `__cause__` says what and why."""

    advice = "Call abort_transaction(), then do the transaction again"


class TransactionAborted(KafkaError):
    """The record was not sent, or is not to be read: its transaction is being aborted."""


class TransactionWasCommitted(KafkaError):
    """abort_transaction came too late: the commit whose answer had not been heard has taken effect."""

    advice = "Do not do this transaction again; begin the next one"
