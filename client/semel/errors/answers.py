"""Exceptions for the error codes of brokers, one class for each code."""

# ruff: noqa: N818  (ProducerFenced, CommitFailedError...: names that users catch already)

from semel_protocol.errors import ErrorCode

from semel.errors.base import (
    AbortableError,
    ApplicationRecoverableError,
    BrokerResponseError,
    MisconfiguredError,
    RefreshRetriableError,
    RetriableError,
)
from semel.errors.client import UnsupportedVersionError


class UnknownError(BrokerResponseError, code=ErrorCode.UNKNOWN_SERVER_ERROR):
    advice = "Look at the broker's log"


class OffsetOutOfRangeError(BrokerResponseError, code=ErrorCode.OFFSET_OUT_OF_RANGE):
    advice = "Seek to between beginning_offsets and end_offsets, or set auto_offset_reset"


class LogTruncatedError(OffsetOutOfRangeError):
    """The log was truncated below the position (KIP-320). Raised with `auto_offset_reset="none"`."""

    advice = (
        "Records that were read are gone from the log: seek() to the offset named here to read those in their place"
    )


class CorruptRecordException(BrokerResponseError, RetriableError, code=ErrorCode.CORRUPT_MESSAGE):
    advice = "Bytes were damaged on disk or in transit"


class UnknownTopicOrPartitionError(
    BrokerResponseError, RefreshRetriableError, code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
):
    advice = "Create the topic, or check its name and partition count"


class LeaderNotAvailableError(BrokerResponseError, RefreshRetriableError, code=ErrorCode.LEADER_NOT_AVAILABLE):
    advice = "The partition has no leader yet"


class NotLeaderForPartitionError(BrokerResponseError, RefreshRetriableError, code=ErrorCode.NOT_LEADER_OR_FOLLOWER):
    advice = "The partition has moved to another broker"


class RequestTimedOutError(BrokerResponseError, RetriableError, code=ErrorCode.REQUEST_TIMED_OUT):
    advice = "The broker could not finish in time; the request may or may not have taken effect"


class BrokerNotAvailableError(BrokerResponseError, code=ErrorCode.BROKER_NOT_AVAILABLE):
    advice = "This broker is offline: check which brokers run"


class ReplicaNotAvailableError(BrokerResponseError, RefreshRetriableError, code=ErrorCode.REPLICA_NOT_AVAILABLE):
    advice = "The broker has no such replica yet"


class MessageSizeTooLargeError(BrokerResponseError, code=ErrorCode.MESSAGE_TOO_LARGE):
    advice = "Send smaller records, or raise max_request_size here and max.message.bytes on the topic"

    def __init__(self, message: str = "") -> None:
        super().__init__(message.rstrip(".").removesuffix("; send smaller batches"))  # the advice of semel's brokers


class OffsetMetadataTooLargeError(BrokerResponseError, code=ErrorCode.OFFSET_METADATA_TOO_LARGE):
    advice = "Shorten the metadata of the offset commit"


class NetworkExceptionError(BrokerResponseError, RefreshRetriableError, code=ErrorCode.NETWORK_EXCEPTION):
    advice = "One broker could not reach another: check the network between them"


class GroupLoadInProgressError(BrokerResponseError, RetriableError, code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
    advice = "The coordinator is starting"


class GroupCoordinatorNotAvailableError(
    BrokerResponseError, RefreshRetriableError, code=ErrorCode.COORDINATOR_NOT_AVAILABLE
):
    advice = "The coordinator is being elected"


class NotCoordinatorForGroupError(BrokerResponseError, RefreshRetriableError, code=ErrorCode.NOT_COORDINATOR):
    advice = "The coordinator has moved"


class InvalidTopicError(BrokerResponseError, code=ErrorCode.INVALID_TOPIC_EXCEPTION):
    advice = "Topic names are 1 to 249 of a-z A-Z 0-9 . _ -, and internal topics cannot be written"


class RecordListTooLargeError(BrokerResponseError, code=ErrorCode.RECORD_LIST_TOO_LARGE):
    advice = "Lower max_batch_size, or raise segment.bytes on the topic"


class NotEnoughReplicasError(BrokerResponseError, RetriableError, code=ErrorCode.NOT_ENOUGH_REPLICAS):
    advice = "Start the missing brokers, or lower min.insync.replicas"


class NotEnoughReplicasAfterAppendError(
    BrokerResponseError, RetriableError, code=ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
):
    advice = "The leader has the records, but too few followers had them in time: they may or may not survive a failure"


class InvalidRequiredAcksError(BrokerResponseError, MisconfiguredError, code=ErrorCode.INVALID_REQUIRED_ACKS):
    advice = "acks is one of 0, 1 and 'all'"


class IllegalGenerationError(BrokerResponseError, ApplicationRecoverableError, code=ErrorCode.ILLEGAL_GENERATION):
    advice = "The group has rebalanced"


class InconsistentGroupProtocolError(
    BrokerResponseError, MisconfiguredError, code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL
):
    advice = "Give all members of the group a common partition_assignment_strategy"


class InvalidGroupIdError(BrokerResponseError, MisconfiguredError, code=ErrorCode.INVALID_GROUP_ID):
    advice = "Set a group_id that is not empty"


class UnknownMemberIdError(BrokerResponseError, ApplicationRecoverableError, code=ErrorCode.UNKNOWN_MEMBER_ID):
    advice = "The member was removed from the group"


class InvalidSessionTimeoutError(BrokerResponseError, MisconfiguredError, code=ErrorCode.INVALID_SESSION_TIMEOUT):
    advice = "Keep session_timeout_ms within the broker's group.(min|max).session.timeout.ms"


class RebalanceInProgressError(BrokerResponseError, ApplicationRecoverableError, code=ErrorCode.REBALANCE_IN_PROGRESS):
    advice = "The group is rebalancing"


class InvalidCommitOffsetSizeError(BrokerResponseError, code=ErrorCode.INVALID_COMMIT_OFFSET_SIZE):
    advice = "Commit fewer partitions or shorter metadata in one call"


class TopicAuthorizationFailedError(BrokerResponseError, MisconfiguredError, code=ErrorCode.TOPIC_AUTHORIZATION_FAILED):
    advice = "Grant this principal access to the topic"


class GroupAuthorizationFailedError(BrokerResponseError, MisconfiguredError, code=ErrorCode.GROUP_AUTHORIZATION_FAILED):
    advice = "Grant this principal access to the group"


class ClusterAuthorizationFailedError(
    BrokerResponseError, MisconfiguredError, code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED
):
    advice = "Grant this principal access to the cluster"


class InvalidTimestampError(BrokerResponseError, code=ErrorCode.INVALID_TIMESTAMP):
    advice = "Send a timestamp nearer to the broker's clock"


class UnsupportedSaslMechanismError(BrokerResponseError, MisconfiguredError, code=ErrorCode.UNSUPPORTED_SASL_MECHANISM):
    advice = "Set sasl_mechanism to one that this listener has enabled"


class BrokerUnsupportedVersionError(BrokerResponseError, UnsupportedVersionError, code=ErrorCode.UNSUPPORTED_VERSION):
    advice = "Upgrade the broker, or do not use the feature"


class TopicAlreadyExistsError(BrokerResponseError, code=ErrorCode.TOPIC_ALREADY_EXISTS):
    advice = "Use the topic, or delete it first"


class InvalidPartitionsError(BrokerResponseError, code=ErrorCode.INVALID_PARTITIONS):
    advice = "Partition counts are positive and only grow"


class InvalidReplicationFactorError(BrokerResponseError, code=ErrorCode.INVALID_REPLICATION_FACTOR):
    advice = "Use at most as many replicas as there are brokers"


class InvalidReplicationAssignmentError(BrokerResponseError, code=ErrorCode.INVALID_REPLICA_ASSIGNMENT):
    advice = "Assign each partition to distinct brokers that exist"


class InvalidConfigurationError(BrokerResponseError, code=ErrorCode.INVALID_CONFIG):
    advice = "Check the setting's name and range"


class NotControllerError(BrokerResponseError, RefreshRetriableError, code=ErrorCode.NOT_CONTROLLER):
    advice = "The controller has moved"


class InvalidRequestError(BrokerResponseError, code=ErrorCode.INVALID_REQUEST):
    advice = "Check the call's arguments"


class PolicyViolationError(BrokerResponseError, code=ErrorCode.POLICY_VIOLATION):
    advice = "Ask the operator for the cluster's policy"


class OutOfOrderSequenceNumber(BrokerResponseError, code=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
    advice = "It is not known whether the record is stored: read the end of the partition before sending it again"


class DuplicateSequenceNumber(BrokerResponseError, code=ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
    advice = "The record is already stored"


class InvalidProducerEpoch(BrokerResponseError, ApplicationRecoverableError, code=ErrorCode.INVALID_PRODUCER_EPOCH):
    advice = "A newer producer has the transactional_id: stop this one. In a transaction, abort_transaction() says more"


class InvalidTxnState(BrokerResponseError, ApplicationRecoverableError, code=ErrorCode.INVALID_TXN_STATE):
    advice = "Stop this producer, create a new one, and continue from the last committed transaction"


class InvalidProducerIdMapping(
    BrokerResponseError, ApplicationRecoverableError, code=ErrorCode.INVALID_PRODUCER_ID_MAPPING
):
    advice = "The transactional_id has expired or has a new owner: abort, and if that fails create a new Producer"


class InvalidTransactionTimeout(BrokerResponseError, MisconfiguredError, code=ErrorCode.INVALID_TRANSACTION_TIMEOUT):
    advice = "Keep transaction_timeout_ms within the broker's transaction.max.timeout.ms"


class ConcurrentTransactions(BrokerResponseError, RetriableError, code=ErrorCode.CONCURRENT_TRANSACTIONS):
    advice = "The previous transaction is still completing"


class TransactionalIdAuthorizationFailed(
    BrokerResponseError, MisconfiguredError, code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
):
    advice = "Grant this principal access to the transactional id"


class OperationNotAttempted(BrokerResponseError, code=ErrorCode.OPERATION_NOT_ATTEMPTED):
    advice = "Another part of the same request failed: look at the error of that part"


class KafkaStorageError(BrokerResponseError, RefreshRetriableError, code=ErrorCode.KAFKA_STORAGE_ERROR):
    advice = "The broker's disk has failed: look at the broker's log"


class SaslAuthenticationFailed(BrokerResponseError, MisconfiguredError, code=ErrorCode.SASL_AUTHENTICATION_FAILED):
    advice = "Retrying cannot help until the credentials or the users of the broker have changed"


class UnknownProducerId(BrokerResponseError, code=ErrorCode.UNKNOWN_PRODUCER_ID):
    advice = "The partition no longer knows this producer id"


class ReassignmentInProgress(BrokerResponseError, code=ErrorCode.REASSIGNMENT_IN_PROGRESS):
    advice = "Wait until the reassignment is done, or cancel it first"


class NonEmptyGroup(BrokerResponseError, code=ErrorCode.NON_EMPTY_GROUP):
    advice = "Stop the group's members first"


class GroupIdNotFound(BrokerResponseError, code=ErrorCode.GROUP_ID_NOT_FOUND):
    advice = "Check the group's name"


class FetchSessionIdNotFound(BrokerResponseError, RetriableError, code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND):
    advice = "The broker has forgotten the fetch session"


class InvalidFetchSessionEpoch(BrokerResponseError, RetriableError, code=ErrorCode.INVALID_FETCH_SESSION_EPOCH):
    advice = "The fetch session has moved past this request"


class ListenerNotFound(BrokerResponseError, RefreshRetriableError, code=ErrorCode.LISTENER_NOT_FOUND):
    advice = "The leader has no listener with the name of this one: check the listeners of the brokers"


class TopicDeletionDisabledError(BrokerResponseError, code=ErrorCode.TOPIC_DELETION_DISABLED):
    advice = "Set delete.topic.enable on the brokers"


class FencedLeaderEpochError(BrokerResponseError, RefreshRetriableError, code=ErrorCode.FENCED_LEADER_EPOCH):
    advice = "The partition has a newer leader"


class UnknownLeaderEpochError(BrokerResponseError, RetriableError, code=ErrorCode.UNKNOWN_LEADER_EPOCH):
    advice = "The broker does not know the newer leader yet"


class UnsupportedCompressionTypeError(
    BrokerResponseError, MisconfiguredError, code=ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
):
    advice = "Choose another compression_type"


class StaleBrokerEpochError(BrokerResponseError, code=ErrorCode.STALE_BROKER_EPOCH):
    advice = "The broker has registered again since"


class OffsetNotAvailableError(BrokerResponseError, RetriableError, code=ErrorCode.OFFSET_NOT_AVAILABLE):
    advice = "The new leader does not know the high watermark yet"


class MemberIdRequired(BrokerResponseError, code=ErrorCode.MEMBER_ID_REQUIRED):
    advice = "Join again with the member id of the answer"


class PreferredLeaderNotAvailableError(
    BrokerResponseError, RefreshRetriableError, code=ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
):
    advice = (
        "The preferred replica is offline or not in sync: start its broker, wait until it is in sync, and elect again"
    )


class GroupMaxSizeReachedError(BrokerResponseError, code=ErrorCode.GROUP_MAX_SIZE_REACHED):
    advice = "Use fewer members, or raise group.max.size"


class FencedInstanceIdError(BrokerResponseError, ApplicationRecoverableError, code=ErrorCode.FENCED_INSTANCE_ID):
    advice = "Another consumer uses the same group_instance_id: give each its own"


class EligibleLeadersNotAvailableError(
    BrokerResponseError, RefreshRetriableError, code=ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
):
    advice = "No replica that could lead is live: start one of their brokers"


class ElectionNotNeededError(BrokerResponseError, RefreshRetriableError, code=ErrorCode.ELECTION_NOT_NEEDED):
    advice = "The partition already has the leader that the election would choose"


class NoReassignmentInProgressError(BrokerResponseError, code=ErrorCode.NO_REASSIGNMENT_IN_PROGRESS):
    advice = "There is nothing to cancel: the reassignment is done or never began"


class GroupSubscribedToTopicError(BrokerResponseError, code=ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC):
    advice = "Unsubscribe the group from the topic first"


class InvalidRecordError(BrokerResponseError, code=ErrorCode.INVALID_RECORD):
    advice = "The broker refused the record: a compacted topic needs a key"


class UnstableOffsetCommitError(BrokerResponseError, RetriableError, code=ErrorCode.UNSTABLE_OFFSET_COMMIT):
    advice = "A transaction with these offsets is still open"


class ThrottlingQuotaExceededError(BrokerResponseError, RetriableError, code=ErrorCode.THROTTLING_QUOTA_EXCEEDED):
    advice = "Too many changes at a time: wait before the next one"


class ProducerFenced(BrokerResponseError, ApplicationRecoverableError, code=ErrorCode.PRODUCER_FENCED):
    advice = "Stop this producer; a new one continues from the last committed transaction"


class UnknownTopicIdError(BrokerResponseError, RefreshRetriableError, code=ErrorCode.UNKNOWN_TOPIC_ID):
    advice = "The topic was deleted and created again"


class InconsistentTopicIdError(BrokerResponseError, RefreshRetriableError, code=ErrorCode.INCONSISTENT_TOPIC_ID):
    advice = "The topic was deleted and created again"


class FencedMemberEpochError(BrokerResponseError, ApplicationRecoverableError, code=ErrorCode.FENCED_MEMBER_EPOCH):
    advice = "The coordinator has removed this member; the consumer joins the group again"


class UnreleasedInstanceIdError(BrokerResponseError, code=ErrorCode.UNRELEASED_INSTANCE_ID):
    advice = "Another running member has this group_instance_id: stop it, or give each member its own"


class UnsupportedAssignorError(BrokerResponseError, MisconfiguredError, code=ErrorCode.UNSUPPORTED_ASSIGNOR):
    advice = "Set group_remote_assignor to an assignor of the broker's group.consumer.assignors, or leave it out"


class StaleMemberEpochError(BrokerResponseError, ApplicationRecoverableError, code=ErrorCode.STALE_MEMBER_EPOCH):
    advice = "The group has rebalanced since this member's last heartbeat"


class InvalidRegularExpressionError(BrokerResponseError, MisconfiguredError, code=ErrorCode.INVALID_REGULAR_EXPRESSION):
    advice = "Brokers use the syntax of RE2: it has no lookahead and no backreferences"


class TransactionalIdNotFound(BrokerResponseError, code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND):
    advice = "Check the transactional id: it was never used here, or has expired"


class FetchSessionTopicIdError(BrokerResponseError, RetriableError, code=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR):
    advice = "One fetch session used both names and ids for topics"


class TransactionAbortable(BrokerResponseError, AbortableError, code=ErrorCode.TRANSACTION_ABORTABLE):
    advice = "Call abort_transaction(), then repeat the transaction"


# Codes that semel's broker never answers, and Kafka's may


class InvalidFetchRequestError(BrokerResponseError, code=ErrorCode.INVALID_FETCH_SIZE):
    advice = "Raise max_partition_fetch_bytes"


class StaleControllerEpochError(BrokerResponseError, code=ErrorCode.STALE_CONTROLLER_EPOCH):
    advice = "The controller has changed: try again"


class IllegalSaslStateError(BrokerResponseError, code=ErrorCode.ILLEGAL_SASL_STATE):
    advice = "Use security_protocol='PLAINTEXT' or 'SSL' here, or a listener with SASL"


class UnsupportedForMessageFormatError(BrokerResponseError, code=ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT):
    advice = "The topic has record batches of Kafka before 0.11: raise its message.format.version"


class TransactionCoordinatorFenced(
    BrokerResponseError, ApplicationRecoverableError, code=ErrorCode.TRANSACTION_COORDINATOR_FENCED
):
    advice = "Another coordinator has taken over: create a new Producer"


class SecurityDisabled(BrokerResponseError, MisconfiguredError, code=ErrorCode.SECURITY_DISABLED):
    advice = "Configure an authorizer on the brokers first"


class LogDirNotFound(BrokerResponseError, code=ErrorCode.LOG_DIR_NOT_FOUND):
    advice = "Name a log directory that the broker has"


class DelegationTokenAuthDisabled(BrokerResponseError, code=ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED):
    advice = "Turn delegation tokens on in the broker"


class DelegationTokenNotFound(BrokerResponseError, code=ErrorCode.DELEGATION_TOKEN_NOT_FOUND):
    advice = "Create a new token"


class DelegationTokenOwnerMismatch(BrokerResponseError, code=ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH):
    advice = "Use a token of this principal"


class DelegationTokenRequestNotAllowed(BrokerResponseError, code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED):
    advice = "Ask over a connection that was authenticated without a token"


class DelegationTokenAuthorizationFailed(BrokerResponseError, code=ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED):
    advice = "Have the principal allowed to use the token"


class DelegationTokenExpired(BrokerResponseError, code=ErrorCode.DELEGATION_TOKEN_EXPIRED):
    advice = "Renew the token, or create a new one"


class InvalidPrincipalType(BrokerResponseError, code=ErrorCode.INVALID_PRINCIPAL_TYPE):
    advice = "Use the principal type User"


class ResourceNotFoundError(BrokerResponseError, MisconfiguredError, code=ErrorCode.RESOURCE_NOT_FOUND):
    advice = "Correct the name, or create it first"


class DuplicateResourceError(BrokerResponseError, MisconfiguredError, code=ErrorCode.DUPLICATE_RESOURCE):
    advice = "Name each thing once in a request"


class UnacceptableCredentialError(BrokerResponseError, MisconfiguredError, code=ErrorCode.UNACCEPTABLE_CREDENTIAL):
    advice = "Give the user another name, or 4096 to 16384 iterations"
