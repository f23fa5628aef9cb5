"""The Admin: creates, describes, alters and deletes topics, settings, groups, transactions and records.

    async with Admin(bootstrap_servers="localhost:9092") as admin:
        await admin.create_topics([NewTopic("flights", 8)])

Names are those of aiokafka. Results are values of `semel.admin` and `semel.structs`. A call that names several things
attempts all of them. If some are refused, it raises the first exception with the others as notes (`__notes__`); the
rest is done. A call is retried within `max_block_ms` or its `timeout_ms` while brokers cannot be reached or leaders and
coordinators move.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType

from semel_protocol.acls import Acl, AclFilter, Operation, PatternType, Permission, ResourceType
from semel_protocol.quotas import QuotaEntity, QuotaFilter
from semel_protocol.scram import ScramMechanism

from semel._admin import (
    acls as _admin_acls,
)
from semel._admin import (
    configs as _admin_configs,
)
from semel._admin import (
    groups as _admin_groups,
)
from semel._admin import (
    partitions as _admin_partitions,
)
from semel._admin import (
    quotas as _admin_quotas,
)
from semel._admin import (
    replicas as _admin_replicas,
)
from semel._admin import (
    topics as _admin_topics,
)
from semel._admin import (
    transactions as _admin_transactions,
)
from semel._admin import (
    users as _admin_users,
)
from semel._admin.types import (
    BrokerStatus,
    ClusterDescription,
    ConfigDescription,
    ConfigEntry,
    ConfigResource,
    ConfigResourceType,
    ConfigSource,
    ConfigSynonym,
    ConsumerGroupDescription,
    ConsumerGroupListing,
    FencedProducer,
    FenceRecord,
    LogDirDescription,
    MemberDescription,
    NewPartitions,
    NewTopic,
    PartitionReassignment,
    ProducerState,
    RecordsToDelete,
    ReplicaSize,
    ScramCredentialInfo,
    TransactionDescription,
    TransactionGroupDescription,
    TransactionGroupMember,
    TransactionListing,
    UserScramCredentialDeletion,
    UserScramCredentialsDescription,
    UserScramCredentialUpsertion,
)
from semel._config.arguments import checked
from semel._config.client import AdminConfig, takes_settings
from semel._net.calls import Calls
from semel._net.cluster import Cluster
from semel._net.lifecycle import ConnectionParts, Lifecycle
from semel._transactions import groups as transaction_groups
from semel.structs import OffsetAndMetadata, OffsetAndTimestamp, TopicMetadata, TopicPartition

__all__ = [
    "EARLIEST",
    "LATEST",
    "MAX_TIMESTAMP",
    "Acl",
    "AclFilter",
    "Admin",
    "BrokerStatus",
    "ClusterDescription",
    "ConfigDescription",
    "ConfigEntry",
    "ConfigResource",
    "ConfigResourceType",
    "ConfigSource",
    "ConfigSynonym",
    "ConsumerGroupDescription",
    "ConsumerGroupListing",
    "FenceRecord",
    "FencedProducer",
    "LogDirDescription",
    "MemberDescription",
    "NewPartitions",
    "NewTopic",
    "Operation",
    "PartitionReassignment",
    "PatternType",
    "Permission",
    "ProducerState",
    "QuotaEntity",
    "QuotaFilter",
    "RecordsToDelete",
    "ReplicaSize",
    "ResourceType",
    "ScramCredentialInfo",
    "ScramMechanism",
    "TransactionDescription",
    "TransactionGroupDescription",
    "TransactionGroupMember",
    "TransactionListing",
    "UserScramCredentialDeletion",
    "UserScramCredentialUpsertion",
    "UserScramCredentialsDescription",
]

LATEST = -1
"""For `list_offsets`: the end of the partition."""
EARLIEST = -2
"""For `list_offsets`: the first offset of the partition."""
MAX_TIMESTAMP = -3
"""For `list_offsets`: the record with the largest timestamp (KIP-734)."""


class Admin:
    """Creates, describes, alters and deletes what a cluster holds. `help(Admin.__init__)` lists the settings.

    async with Admin(bootstrap_servers="localhost:9092") as admin:
        await admin.create_topics([NewTopic("flights", num_partitions=8)])
        print(await admin.list_topics())

    timeout_ms, where a call has it: milliseconds for the whole call, retries included; None is `max_block_ms`.
    Every call may raise KafkaTimeoutError, KafkaConnectionError, UnsupportedVersionError and the authorization errors.
    The docstrings name the other exceptions. Any number of tasks of one event loop may share an Admin.
    """

    @takes_settings(AdminConfig)
    def __init__(self, config: AdminConfig) -> None:
        self._cluster = Cluster(config, auto_create_topics=False)
        self._made_calls = Calls(self._cluster)
        self._life = Lifecycle(self, "admin", config.client_id, parts=ConnectionParts(self._cluster))

    async def start(self) -> None:
        """Connect to the cluster. Raises KafkaConnectionError when no bootstrap server answers."""
        await self._life.start()

    async def close(self) -> None:
        """Close every connection. Calling it again has no effect. Calls after it raise IllegalStateError."""
        await self._life.stop()

    async def __aenter__(self) -> Admin:
        await self.start()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def _calls(self) -> Calls:
        self._life.check_running()
        return self._made_calls

    # Topics

    @checked
    async def create_topics(
        self, new_topics: Sequence[NewTopic], timeout_ms: float | None = None, validate_only: bool = False
    ) -> None:
        """Create topics, durably. With `validate_only` only checks the request.

        Raises TopicAlreadyExistsError, InvalidTopicError, InvalidPartitionsError, InvalidReplicationFactorError,
        InvalidReplicationAssignmentError, InvalidConfigurationError, PolicyViolationError.
        """
        await _admin_topics.create_topics(self._calls, new_topics, timeout_ms, validate_only)

    @checked
    async def delete_topics(self, topics: Sequence[str], timeout_ms: float | None = None) -> None:
        """Delete topics with their records. Raises UnknownTopicOrPartitionError, InvalidTopicError."""
        await _admin_topics.delete_topics(self._calls, topics, timeout_ms)

    @checked
    async def create_partitions(
        self,
        topic_partitions: Mapping[str, NewPartitions],
        timeout_ms: float | None = None,
        validate_only: bool = False,
    ) -> None:
        """Raise the number of partitions of topics to a total. Keys may map to other partitions afterwards.

        Raises UnknownTopicOrPartitionError, InvalidPartitionsError, InvalidReplicationAssignmentError.
        """
        await _admin_topics.create_partitions(self._calls, topic_partitions, timeout_ms, validate_only)

    async def list_topics(self) -> list[str]:
        """The names of all topics, internal ones included, sorted."""
        return await _admin_topics.list_topics(self._calls)

    @checked
    async def describe_topics(self, topics: Sequence[str] | None = None) -> list[TopicMetadata]:
        """Topics with their partitions, in the order of `topics`; None: all topics, sorted by name.

        Each partition has its leader and leader epoch (-1 without a leader), its replicas with the preferred leader
        first, its ISR, and the replicas on brokers that are offline.

        Raises UnknownTopicOrPartitionError, InvalidTopicError.
        """
        return await _admin_topics.describe_topics(self._calls, topics)

    async def describe_cluster(self) -> ClusterDescription:
        """The live brokers with their racks, the controller and the cluster id."""
        return await _admin_topics.describe_cluster(self._calls)

    @checked
    async def check_brokers(self, node_ids: Iterable[int], timeout_ms: float = 2_000) -> dict[int, BrokerStatus]:
        """Whether each of these brokers answers. All are asked at the same time, each for at most `timeout_ms`.

        Raises nothing for a broker that does not answer: its BrokerStatus holds the error.
        """
        return await _admin_topics.check_brokers(self._calls, node_ids, timeout_ms)

    # Replicas

    @checked
    async def elect_leaders(
        self,
        partitions: Iterable[TopicPartition] | None = None,
        preferred: bool = True,
        timeout_ms: float | None = None,
    ) -> list[TopicPartition]:
        """Elect the preferred replicas (the first ones) as leaders; None: of every partition that has another leader.

        preferred=False: where no replica of the ISR is live, elects one that may lack records. The missing records are
        lost (unclean election, KIP-460).
        Returns the partitions that have a new leader. A partition that has the right leader already is left out.

        Raises UnknownTopicOrPartitionError, PreferredLeaderNotAvailableError, EligibleLeadersNotAvailableError.
        """
        return await _admin_replicas.elect_leaders(self._calls, partitions, preferred, timeout_ms)

    @checked
    async def alter_partition_reassignments(
        self, targets: Mapping[TopicPartition, Sequence[int] | None], timeout_ms: float | None = None
    ) -> None:
        """Begin to move partitions to these brokers, the preferred leader first. None cancels a reassignment
        (KIP-455).

        The brokers continue by themselves. `list_partition_reassignments` shows what is not done.

        Raises UnknownTopicOrPartitionError, InvalidReplicationAssignmentError, NoReassignmentInProgressError,
        ReassignmentInProgress.
        """
        await _admin_replicas.alter_partition_reassignments(self._calls, targets, timeout_ms)

    @checked
    async def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None, timeout_ms: float | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        """The reassignments in progress, of these partitions or of all. A partition without one is left out."""
        return await _admin_replicas.list_partition_reassignments(self._calls, partitions, timeout_ms)

    @checked
    async def describe_log_dirs(
        self,
        node_ids: Iterable[int],
        partitions: Iterable[TopicPartition] | None = None,
        timeout_ms: float | None = None,
    ) -> dict[int, list[LogDirDescription]]:
        """The data directories of these brokers, with the size of each replica, or of those of `partitions` (KIP-113).

        Raises ClusterAuthorizationFailedError, and KafkaConnectionError for a broker that does not answer.
        """
        return await _admin_replicas.describe_log_dirs(self._calls, node_ids, partitions, timeout_ms)

    # Settings

    @checked
    async def describe_configs(
        self,
        config_resources: Sequence[ConfigResource],
        include_synonyms: bool = False,
        include_documentation: bool = False,
    ) -> list[ConfigDescription]:
        """The settings of topics and brokers, in the order of `config_resources`. A broker's settings are requested
        from it.

        include_synonyms: also the values that apply where a setting is not set. include_documentation: also the texts
        that explain the settings.

        Raises UnknownTopicOrPartitionError, InvalidRequestError, and KafkaConfigurationError for a broker that does not
        exist.
        """
        return await _admin_configs.describe_configs(
            self._calls, config_resources, include_synonyms, include_documentation
        )

    @checked
    async def list_config_resources(self, resource_types: Iterable[ConfigResourceType] = ()) -> list[ConfigResource]:
        """The resources that have settings, of these types or of all, by type and name (KIP-1142). Groups and client
        metrics are listed if they were given settings.

        Raises UnsupportedVersionError for a broker that cannot list them, such as Apache Kafka before 4.1.
        """
        return await _admin_configs.list_config_resources(self._calls, list(resource_types))

    @checked
    async def alter_configs(self, config_resources: Sequence[ConfigResource], validate_only: bool = False) -> None:
        """Change the named settings and no others (KIP-339). A value sets; None restores the default.

        aiokafka's call resets every setting that is not named; this one does not. A resource is altered completely or
        not at all. Raises UnknownTopicOrPartitionError, InvalidConfigurationError, InvalidRequestError.
        """
        await _admin_configs.alter_configs(self._calls, config_resources, validate_only)

    # Consumer groups

    @checked
    async def find_coordinator(self, group_id: str) -> int:
        """The node id of the group's coordinator."""
        self._calls.cluster.forget_coordinator(group_id)
        return await self._calls.cluster.coordinator(group_id)

    @checked
    async def list_consumer_groups(
        self,
        broker_ids: Sequence[int] | None = None,
        states_filter: Sequence[str] = (),
        types_filter: Sequence[str] = (),
    ) -> list[ConsumerGroupListing]:
        """The groups of the cluster, or of these brokers, sorted by name.

        states_filter: only groups in one of these states, such as "Stable". types_filter: only groups of these
        protocols, "classic" or "consumer". Neither minds upper and lower case. Both work with any broker: groups are
        described where their broker lists no states.
        """
        return await _admin_groups.list_consumer_groups(self._calls, broker_ids, states_filter, types_filter)

    @checked
    async def describe_consumer_groups(self, group_ids: Sequence[str]) -> list[ConsumerGroupDescription]:
        """State, members and assignments of groups, in the order of `group_ids`. A group that does not exist is "Dead".

        Groups of the consumer protocol (KIP-848) have epochs, and target assignments of their members, as well.

        Raises InvalidGroupIdError.
        """
        return await _admin_groups.describe_consumer_groups(self._calls, group_ids)

    @checked
    async def delete_consumer_groups(self, group_ids: Sequence[str]) -> None:
        """Delete groups with their committed offsets. A group that has members is refused.

        Raises NonEmptyGroup, GroupIdNotFound.
        """
        await _admin_groups.delete_consumer_groups(self._calls, group_ids)

    @checked
    async def list_consumer_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The group's committed offsets, of these partitions or of all. A partition without one is left out."""
        return await _admin_groups.list_consumer_group_offsets(self._calls, group_id, partitions)

    @checked
    async def alter_consumer_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        """Commit offsets for a group without members. Creates the group if it does not exist.

        offsets: for each partition the offset of the *next* record to read.

        Raises UnknownMemberIdError while the group has members, UnknownTopicOrPartitionError,
        OffsetMetadataTooLargeError.
        """
        await _admin_groups.alter_consumer_group_offsets(self._calls, group_id, offsets)

    @checked
    async def delete_consumer_group_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Delete committed offsets (KIP-496).

        Raises GroupIdNotFound, and GroupSubscribedToTopicError while a member subscribes to the topic.
        """
        await _admin_groups.delete_consumer_group_offsets(self._calls, group_id, partitions)

    # Partitions

    @checked
    async def list_offsets(
        self, partitions: Mapping[TopicPartition, int], read_committed: bool = False, timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Offset and timestamp of the first record at or after each timestamp (ms), or of EARLIEST, LATEST,
        MAX_TIMESTAMP.

        Offset and timestamp are -1 without such a record. EARLIEST and LATEST have timestamp -1.
        partitions: for each partition a time in milliseconds since the epoch, or one of the three names.
        read_committed: LATEST is the last stable offset, which open transactions hold back.

        Raises UnknownTopicOrPartitionError.
        """
        return await _admin_partitions.list_offsets(self._calls, partitions, read_committed, timeout_ms)

    @checked
    async def delete_records(
        self, records_to_delete: Mapping[TopicPartition, RecordsToDelete | int], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Delete every record below an offset (-1: all records). Returns the first remaining offset.

        Raises UnknownTopicOrPartitionError, OffsetOutOfRangeError.
        """
        return await _admin_partitions.delete_records(self._calls, records_to_delete, timeout_ms)

    # Access control

    @checked
    async def describe_acls(self, acl_filter: AclFilter | None = None, timeout_ms: float | None = None) -> list[Acl]:
        """The access control entries that a filter selects; None: all of them. Sorted.

        Raises SecurityDisabled for a broker without an authorizer, ClusterAuthorizationFailedError.
        """
        return await _admin_acls.describe_acls(self._calls, acl_filter or AclFilter(), timeout_ms)

    @checked
    async def create_acls(self, acls: Sequence[Acl], timeout_ms: float | None = None) -> None:
        """Store access control entries. One that exists already is no error.

        Raises InvalidRequestError for an entry that means nothing, SecurityDisabled,
        ClusterAuthorizationFailedError.
        """
        await _admin_acls.create_acls(self._calls, acls, timeout_ms)

    @checked
    async def delete_acls(self, filters: Sequence[AclFilter], timeout_ms: float | None = None) -> list[Acl]:
        """Remove the access control entries that filters select. Returns those that the last answer names: if an
        answer was lost, what it had removed is not among them.

        Raises SecurityDisabled, ClusterAuthorizationFailedError.
        """
        return await _admin_acls.delete_acls(self._calls, filters, timeout_ms)

    # Users

    @checked
    async def describe_user_scram_credentials(
        self, users: Sequence[str] | None = None, timeout_ms: float | None = None
    ) -> dict[str, UserScramCredentialsDescription]:
        """The users of the cluster with their SCRAM mechanisms (KIP-554), by name; None: all of them.

        Raises ResourceNotFoundError for a user that does not exist, ClusterAuthorizationFailedError.
        """
        return await _admin_users.describe(self._calls, users, timeout_ms)

    @checked
    async def alter_user_scram_credentials(
        self,
        alterations: Sequence[UserScramCredentialUpsertion | UserScramCredentialDeletion],
        timeout_ms: float | None = None,
    ) -> None:
        """Create users, change their passwords, and delete them. All alterations of a user are made, or none; on
        Apache Kafka, which takes one of a user in a request, those before a refused one are made.

        Passwords do not leave this process; hashing one takes some milliseconds. Raises ResourceNotFoundError for a
        credential that does not exist, UnacceptableCredentialError, DuplicateResourceError,
        ClusterAuthorizationFailedError.
        """
        await _admin_users.alter(self._calls, alterations, timeout_ms)

    # Quotas

    @checked
    async def describe_client_quotas(
        self, quota_filter: QuotaFilter | None = None, timeout_ms: float | None = None
    ) -> dict[QuotaEntity, dict[str, float]]:
        """The entities that a filter selects and their quotas by name; None: all of them. Sorted.

        Raises InvalidRequestError, ClusterAuthorizationFailedError.
        """
        return await _admin_quotas.describe_client_quotas(self._calls, quota_filter or QuotaFilter(), timeout_ms)

    @checked
    async def alter_client_quotas(
        self,
        alterations: Mapping[QuotaEntity, Mapping[str, float | None]],
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> None:
        """Set quotas of entities by name (KIP-546); None as the value removes one. Others stay as they are.

        Raises InvalidRequestError for an entity or a value that means nothing, ClusterAuthorizationFailedError.
        """
        await _admin_quotas.alter_client_quotas(self._calls, alterations, timeout_ms, validate_only=validate_only)

    # Transactions

    @checked
    async def list_transactions(
        self, states: Sequence[str] = (), producer_ids: Sequence[int] = ()
    ) -> list[TransactionListing]:
        """The transactional ids of the cluster, sorted. Filters by these states and these producer ids where given.

        Raises InvalidRequestError for a state that does not exist.
        """
        return await _admin_transactions.list_transactions(self._calls, states, producer_ids)

    @checked
    async def describe_transactions(self, transactional_ids: Sequence[str]) -> list[TransactionDescription]:
        """Transactional ids as their coordinators know them, in the order given. Raises TransactionalIdNotFound."""
        return await _admin_transactions.describe_transactions(self._calls, transactional_ids)

    @checked
    async def describe_producers(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, list[ProducerState]]:
        """The producers that each partition knows, with their open transactions there (KIP-664).

        Raises UnknownTopicOrPartitionError.
        """
        return await _admin_transactions.describe_producers(self._calls, partitions)

    @checked
    async def fence_producers(
        self, transactional_ids: Sequence[str], reason: str = "fence_producers"
    ) -> dict[str, FencedProducer]:
        """Fence the producers of these ids, as a new producer would: open transactions are aborted (KIP-360).

        The next request of a fenced producer raises ProducerFenced. reason: a text for the fence ledger of a semel
        broker.
        """
        return await _admin_transactions.fence_producers(self._calls, transactional_ids, reason)

    @checked
    async def abort_transaction(self, partition: TopicPartition, producer: ProducerState) -> None:
        """Abort a *hanging* transaction, which no coordinator will end: write the abort marker into the partition
        (KIP-664).

        producer: a value from `describe_producers`. Do not use it while a coordinator knows the transaction: use
        `fence_producers` then. Raises InvalidProducerEpoch, InvalidRequestError, ClusterAuthorizationFailedError.
        """
        await _admin_transactions.abort_transaction(self._calls, partition, producer)

    # Transaction groups

    @checked
    async def describe_transaction_groups(
        self, names: Sequence[str] | None = None
    ) -> list[TransactionGroupDescription]:
        """Transaction groups, in the order of `names`; None: all of the cluster, sorted by name.

        Raises TransactionalIdNotFound, and UnsupportedVersionError when the brokers are not semel's.
        """
        return await transaction_groups.describe(self._calls, names)

    @checked
    async def abort_transaction_group(self, name: str, reason: str) -> TransactionGroupDescription:
        """Abort the open transactions of the group and fence its members and its driver. Returns the group before the
        abort.

        reason: a text that the fenced members and driver get. Raises TransactionalIdNotFound.
        """
        return await transaction_groups.abort(self._calls, name, reason)
