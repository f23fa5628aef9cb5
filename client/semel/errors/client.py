"""Exceptions that the client raises by itself, without an error code of a broker."""

# ruff: noqa: N818  (ProducerFenced, CommitFailedError...: names that users catch already)

from semel.errors.base import (
    AbortableError,
    ApplicationRecoverableError,
    KafkaError,
    MisconfiguredError,
    RefreshRetriableError,
    RetriableError,
)


class KafkaConfigurationError(MisconfiguredError, ValueError):
    """Settings that contradict each other, are out of range or of a wrong type, or request an unsupported feature."""


class IllegalStateError(KafkaError):
    """The call does not fit the client's state, for example a seek on a partition that is not assigned."""


class IllegalOperation(KafkaError):
    """The client's settings do not allow this call, for example a commit without group_id."""


class KafkaTimeoutError(RetriableError):
    """An operation took longer than its setting allows."""


class KafkaConnectionError(RefreshRetriableError):
    """There is no connection, or it was lost before the answer arrived."""

    advice = "Check that the broker runs and that its advertised address can be reached from here"


class KafkaProtocolError(KafkaError):
    """The peer sent bytes that are not Kafka's protocol. The connection was closed."""

    advice = "Check that the address is a Kafka listener and not, for example, HTTP or TLS"


class CorrelationIdError(KafkaProtocolError, RetriableError):
    """A response without a request, or out of order. The connection was closed."""

    advice = "The connection was closed; the next request opens a new one"


class UnsupportedVersionError(MisconfiguredError):
    """The broker and the client have no version of this API in common."""

    advice = "Upgrade the broker, or do not use the feature that needs this API"


class UnfitTypeError(KafkaError, TypeError):
    """An argument has a type that no request can carry. The text names the field of the request and the value."""


class UnfitValueError(KafkaError, ValueError):
    """An argument has a value that no request can carry. The text names the field of the request and the value."""


class NotSemelBrokerError(UnsupportedVersionError):
    """The call needs an API of semel's own, and the broker is Apache Kafka or another Kafka."""

    advice = "Use semel's brokers for this (`semel serve`); all other calls work with the brokers that you have"


class CommitFailedError(ApplicationRecoverableError):
    """The group has rebalanced: these offsets were not committed."""

    advice = (
        "Another member owns the partitions now and will read these records again; call getmany more often than "
        "max_poll_interval_ms, or lower max_poll_records"
    )


class DeletedTopicCommitError(CommitFailedError):
    """The topic of these offsets was deleted: they were not committed."""

    advice = "Nothing is left to commit; a topic that was created again under this name is read from its own positions"


class NoOffsetForPartitionError(KafkaError):
    """There is no committed offset, and auto_offset_reset='none'."""

    advice = "Seek to an offset, or set auto_offset_reset to 'earliest' or 'latest'"


class RecordTooLargeError(KafkaError):
    """A record at the current position is larger than the fetch limits allow."""

    advice = "Raise max_partition_fetch_bytes"


class ConsumerStoppedError(KafkaError):
    """The consumer was stopped before or during the call."""


class ProducerClosed(KafkaError):
    """The producer was stopped before or during the call. The record was not stored."""

    advice = "Create a new Producer"


class ProducerNotStarted(ProducerClosed):
    """The call needs a producer that was started. The record was not stored."""

    advice = "Call `await producer.start()` first, or use `async with Producer(...) as producer`"


# Transactions


class TransactionHasFailed(AbortableError):
    """A part of the transaction failed, so it can only be aborted. `__cause__` is the reason."""

    advice = "Call abort_transaction(), then repeat the transaction"


class TransactionAborted(KafkaError):
    """The record was not sent, or will not be visible: its transaction is aborted."""


class TransactionWasCommitted(KafkaError):
    """abort_transaction came too late: an earlier commit without an answer has taken effect."""

    advice = "Do not repeat this transaction; begin the next one"
