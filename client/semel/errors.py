"""What the client raises. Names are aiokafka's (kafka-python's) where those have one; each says what to do next.

`error_for(code, context)` turns a broker's error code into its exception; how the client itself reacts to a code is
the action table in `_retry`.
"""

# ruff: noqa: N818  (ProducerFenced, CommitFailedError...: the names users already catch)

from typing import ClassVar

from semel_protocol.errors import ErrorCode, error_code


class KafkaError(Exception):
    """Base of everything this client raises on its own account.

    `retriable`: the same call may succeed later, unchanged. `advice`: what to do about it, part of the message.
    """

    retriable: ClassVar[bool] = False
    advice: ClassVar[str] = ""

    def __init__(self, message: str = "") -> None:
        self.message = message
        super().__init__(". ".join(part for part in (message.rstrip("."), self.advice) if part))


# Raised by the client itself


class KafkaConfigurationError(KafkaError, ValueError):
    """Settings that contradict each other or are out of range."""


class IllegalStateError(KafkaError):
    """The call does not fit the client's state, such as seek on a partition that is not assigned."""


class IllegalOperation(KafkaError):
    """The client was not configured for this call, such as commit without a group_id."""


class KafkaTimeoutError(KafkaError):
    """Something took longer than its setting allows."""

    retriable = True


class KafkaConnectionError(KafkaError):
    """No connection, or the connection was lost before the answer arrived."""

    retriable = True
    advice = "Check that the broker runs and that its advertised address can be reached from here"


class KafkaProtocolError(KafkaError):
    """The peer sent bytes that are not Kafka's protocol; its connection was closed."""

    advice = "Check that the address is a Kafka listener and not, say, HTTP or TLS"


class CorrelationIdError(KafkaProtocolError):
    """A response that answers no request, or out of order; its connection was closed."""

    retriable = True
    advice = "The connection was closed and is opened again on the next request"


class UnsupportedVersionError(KafkaError):
    """The broker serves no version of this API that the client can speak."""

    advice = "Upgrade the broker, or do without the feature that needs this API"


class CommitFailedError(KafkaError):
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


# Answers of a broker


class BrokerResponseError(KafkaError):
    """A broker answered with an error code: `code` (an ErrorCode); `errno` is the same as a plain number."""

    code: ClassVar[ErrorCode] = ErrorCode.UNKNOWN_SERVER_ERROR

    def __init__(self, message: str = "") -> None:
        super().__init__(f"[{self.code.value} {self.code.name}] {message}".rstrip())

    @property
    def errno(self) -> int:
        return int(self.code)

    def __init_subclass__(cls, code: ErrorCode | None = None) -> None:
        if code is not None:
            cls.code, cls.retriable = code, code.retriable
            ERROR_OF[code] = cls


ERROR_OF: dict[ErrorCode, type[BrokerResponseError]] = {}
"""The exception of each error code that has its own."""


class UnknownError(BrokerResponseError, code=ErrorCode.UNKNOWN_SERVER_ERROR):
    advice = "Look into the broker's log"


class OffsetOutOfRangeError(BrokerResponseError, code=ErrorCode.OFFSET_OUT_OF_RANGE):
    advice = "Seek to between beginning_offsets and end_offsets, or set auto_offset_reset"


class CorruptRecordException(BrokerResponseError, code=ErrorCode.CORRUPT_MESSAGE):
    advice = "Bytes were damaged on the way or on disk"


class UnknownTopicOrPartitionError(BrokerResponseError, code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
    advice = "Create the topic, or check its name and partition count"


class LeaderNotAvailableError(BrokerResponseError, code=ErrorCode.LEADER_NOT_AVAILABLE):
    advice = "The partition has no leader yet"


class NotLeaderForPartitionError(BrokerResponseError, code=ErrorCode.NOT_LEADER_OR_FOLLOWER):
    advice = "The partition has moved to another broker"


class RequestTimedOutError(BrokerResponseError, code=ErrorCode.REQUEST_TIMED_OUT):
    advice = "The broker could not finish in time; the request may or may not have taken effect"


class MessageSizeTooLargeError(BrokerResponseError, code=ErrorCode.MESSAGE_TOO_LARGE):
    advice = "Send smaller records, or raise max_request_size here and max.message.bytes on the topic"


class OffsetMetadataTooLargeError(BrokerResponseError, code=ErrorCode.OFFSET_METADATA_TOO_LARGE):
    advice = "Shorten the metadata of the offset commit"


class GroupLoadInProgressError(BrokerResponseError, code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
    advice = "The coordinator is starting"


class GroupCoordinatorNotAvailableError(BrokerResponseError, code=ErrorCode.COORDINATOR_NOT_AVAILABLE):
    advice = "The coordinator is being elected"


class NotCoordinatorForGroupError(BrokerResponseError, code=ErrorCode.NOT_COORDINATOR):
    advice = "The coordinator has moved"


class InvalidTopicError(BrokerResponseError, code=ErrorCode.INVALID_TOPIC_EXCEPTION):
    advice = "Topic names are 1 to 249 of a-z A-Z 0-9 . _ -, and internal topics cannot be written"


class RecordListTooLargeError(BrokerResponseError, code=ErrorCode.RECORD_LIST_TOO_LARGE):
    advice = "Lower max_batch_size, or raise segment.bytes on the topic"


class NotEnoughReplicasError(BrokerResponseError, code=ErrorCode.NOT_ENOUGH_REPLICAS):
    advice = "Bring brokers back, or lower min.insync.replicas"


class InvalidRequiredAcksError(BrokerResponseError, code=ErrorCode.INVALID_REQUIRED_ACKS):
    advice = "acks is one of 0, 1 and 'all'"


class IllegalGenerationError(BrokerResponseError, code=ErrorCode.ILLEGAL_GENERATION):
    advice = "The group has rebalanced"


class InconsistentGroupProtocolError(BrokerResponseError, code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL):
    advice = "Give all members of the group a common partition_assignment_strategy"


class InvalidGroupIdError(BrokerResponseError, code=ErrorCode.INVALID_GROUP_ID):
    advice = "Set a group_id that is not empty"


class UnknownMemberIdError(BrokerResponseError, code=ErrorCode.UNKNOWN_MEMBER_ID):
    advice = "The member was removed from the group"


class InvalidSessionTimeoutError(BrokerResponseError, code=ErrorCode.INVALID_SESSION_TIMEOUT):
    advice = "Keep session_timeout_ms within the broker's group.(min|max).session.timeout.ms"


class RebalanceInProgressError(BrokerResponseError, code=ErrorCode.REBALANCE_IN_PROGRESS):
    advice = "The group is rebalancing"


class TopicAuthorizationFailedError(BrokerResponseError, code=ErrorCode.TOPIC_AUTHORIZATION_FAILED):
    advice = "Grant this principal access to the topic"


class GroupAuthorizationFailedError(BrokerResponseError, code=ErrorCode.GROUP_AUTHORIZATION_FAILED):
    advice = "Grant this principal access to the group"


class ClusterAuthorizationFailedError(BrokerResponseError, code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED):
    advice = "Grant this principal access to the cluster"


class InvalidTimestampError(BrokerResponseError, code=ErrorCode.INVALID_TIMESTAMP):
    advice = "Send a timestamp nearer to the broker's clock"


class UnsupportedSaslMechanismError(BrokerResponseError, code=ErrorCode.UNSUPPORTED_SASL_MECHANISM):
    advice = "Use a mechanism the listener has enabled"


class BrokerUnsupportedVersionError(BrokerResponseError, UnsupportedVersionError, code=ErrorCode.UNSUPPORTED_VERSION):
    advice = "Upgrade the broker, or do without the feature"


class TopicAlreadyExistsError(BrokerResponseError, code=ErrorCode.TOPIC_ALREADY_EXISTS):
    advice = "Use it, or delete it first"


class InvalidPartitionsError(BrokerResponseError, code=ErrorCode.INVALID_PARTITIONS):
    advice = "Partition counts are positive and only grow"


class InvalidReplicationFactorError(BrokerResponseError, code=ErrorCode.INVALID_REPLICATION_FACTOR):
    advice = "Use at most as many replicas as there are brokers"


class InvalidReplicationAssignmentError(BrokerResponseError, code=ErrorCode.INVALID_REPLICA_ASSIGNMENT):
    advice = "Assign each partition to distinct brokers that exist"


class InvalidConfigurationError(BrokerResponseError, code=ErrorCode.INVALID_CONFIG):
    advice = "Check the setting's name and range"


class NotControllerError(BrokerResponseError, code=ErrorCode.NOT_CONTROLLER):
    advice = "The controller has moved"


class InvalidRequestError(BrokerResponseError, code=ErrorCode.INVALID_REQUEST):
    advice = "Check the call's arguments"


class PolicyViolationError(BrokerResponseError, code=ErrorCode.POLICY_VIOLATION):
    advice = "Ask the operator for the cluster's policy"


class OutOfOrderSequenceNumber(BrokerResponseError, code=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
    advice = "It is not known whether the record is stored: read the end of the partition before sending it again"


class DuplicateSequenceNumber(BrokerResponseError, code=ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
    advice = "The record is already stored"


class InvalidProducerEpoch(BrokerResponseError, code=ErrorCode.INVALID_PRODUCER_EPOCH):
    advice = "A newer producer has taken over this producer id"


class InvalidTxnState(BrokerResponseError, code=ErrorCode.INVALID_TXN_STATE):
    advice = "Begin a transaction first"


class InvalidProducerIdMapping(BrokerResponseError, code=ErrorCode.INVALID_PRODUCER_ID_MAPPING):
    advice = "The transactional id has expired or has a new owner: create a new Producer"


class InvalidTransactionTimeout(BrokerResponseError, code=ErrorCode.INVALID_TRANSACTION_TIMEOUT):
    advice = "Keep transaction_timeout_ms within the broker's transaction.max.timeout.ms"


class ConcurrentTransactions(BrokerResponseError, code=ErrorCode.CONCURRENT_TRANSACTIONS):
    advice = "The previous transaction is still completing"


class TransactionalIdAuthorizationFailed(BrokerResponseError, code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED):
    advice = "Grant this principal access to the transactional id"


class OperationNotAttempted(BrokerResponseError, code=ErrorCode.OPERATION_NOT_ATTEMPTED):
    advice = "Another part of the same request failed: look at that one"


class KafkaStorageError(BrokerResponseError, code=ErrorCode.KAFKA_STORAGE_ERROR):
    advice = "The broker's disk has failed: look into its log"


class SaslAuthenticationFailed(BrokerResponseError, code=ErrorCode.SASL_AUTHENTICATION_FAILED):
    advice = "Check user name and password"


class UnknownProducerId(BrokerResponseError, code=ErrorCode.UNKNOWN_PRODUCER_ID):
    advice = "The broker no longer knows this producer"


class NonEmptyGroup(BrokerResponseError, code=ErrorCode.NON_EMPTY_GROUP):
    advice = "Stop the group's members first"


class GroupIdNotFound(BrokerResponseError, code=ErrorCode.GROUP_ID_NOT_FOUND):
    advice = "Check the group's name"


class FencedLeaderEpochError(BrokerResponseError, code=ErrorCode.FENCED_LEADER_EPOCH):
    advice = "The partition has a newer leader"


class UnknownLeaderEpochError(BrokerResponseError, code=ErrorCode.UNKNOWN_LEADER_EPOCH):
    advice = "The broker has not yet heard of the newer leader"


class UnsupportedCompressionTypeError(BrokerResponseError, code=ErrorCode.UNSUPPORTED_COMPRESSION_TYPE):
    advice = "Choose another compression_type"


class OffsetNotAvailableError(BrokerResponseError, code=ErrorCode.OFFSET_NOT_AVAILABLE):
    advice = "The new leader does not know the high watermark yet"


class MemberIdRequired(BrokerResponseError, code=ErrorCode.MEMBER_ID_REQUIRED):
    advice = "Join again with the member id of the answer"


class GroupMaxSizeReachedError(BrokerResponseError, code=ErrorCode.GROUP_MAX_SIZE_REACHED):
    advice = "Use fewer members, or raise group.max.size"


class FencedInstanceIdError(BrokerResponseError, code=ErrorCode.FENCED_INSTANCE_ID):
    advice = "Another consumer uses the same group_instance_id: give each its own"


class GroupSubscribedToTopicError(BrokerResponseError, code=ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC):
    advice = "Unsubscribe the group from the topic first"


class InvalidRecordError(BrokerResponseError, code=ErrorCode.INVALID_RECORD):
    advice = "The broker refused the record: a compacted topic needs a key"


class UnstableOffsetCommitError(BrokerResponseError, code=ErrorCode.UNSTABLE_OFFSET_COMMIT):
    advice = "A transaction with these offsets is still open"


class ProducerFenced(BrokerResponseError, code=ErrorCode.PRODUCER_FENCED):
    advice = "A newer producer uses the same transactional_id: stop this one"


class UnknownTopicIdError(BrokerResponseError, code=ErrorCode.UNKNOWN_TOPIC_ID):
    advice = "The topic was deleted and created again"


class TransactionalIdNotFound(BrokerResponseError, code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND):
    advice = "Check the transactional id"


class TransactionAbortable(BrokerResponseError, code=ErrorCode.TRANSACTION_ABORTABLE):
    advice = "Abort the transaction and begin it again"


def error_for(code: int, context: str = "") -> KafkaError:
    """The exception of a broker's error code; `context` says what was attempted ("produce to flights-3")."""
    known = error_code(code)
    if known is ErrorCode.UNKNOWN_SERVER_ERROR and code != known:
        return UnknownError(f"{context}: error code {code}, which this client does not know")
    if known in ERROR_OF:
        return ERROR_OF[known](context)
    return UnknownError(f"{context}: {known.name}")
