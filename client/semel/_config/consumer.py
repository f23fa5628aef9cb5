"""Settings of `Consumer`: Kafka's names in snake_case with Kafka's defaults, and one of semel's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from semel._assignment.assignors import Assignor, assignors_of
from semel._config.client import ClientConfig, ClientKeywords, Deserializer, not_below
from semel._config.settings import Meaning, NotNegative, Positive, PositiveLong, Rule, whole
from semel.errors import KafkaConfigurationError

Strategies = str | Sequence[str | Assignor | type[Assignor]]
SETTINGS_OF_THE_BROKER = {
    "session_timeout_ms": "group.consumer.session.timeout.ms, or consumer.session.timeout.ms of the group",
    "heartbeat_interval_ms": "group.consumer.heartbeat.interval.ms, or consumer.heartbeat.interval.ms of the group",
    "partition_assignment_strategy": "group.consumer.assignors; group_remote_assignor chooses one of them",
}
"""Settings that only the classic protocol has, and the broker's settings in their place (KIP-848)."""


def refuse_settings_of_the_broker(given: Mapping[str, object]) -> None:
    """Raise KafkaConfigurationError when group_protocol='consumer' is given with a setting that the broker decides."""
    if given.get("group_protocol") != "consumer":
        return
    for name, instead in SETTINGS_OF_THE_BROKER.items():
        if name in given:
            raise KafkaConfigurationError(
                f"{name} is given with group_protocol='consumer', where the broker decides it: leave it out; the "
                f"broker's setting is {instead}"
            )


def _is_assignors(value: object) -> bool:
    listed = value.split(",") if isinstance(value, str) else value
    if not isinstance(listed, list | tuple):
        return False
    return all(isinstance(each, str | Assignor) or _is_assignor_class(each) for each in listed)


def _is_assignor_class(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Assignor)


ASSIGNORS = Rule("names of assignors, or assignors of this package", _is_assignors)

# Settings that the BatchReader has too.
IsolationLevel = Annotated[
    Literal["read_uncommitted", "read_committed"],
    Meaning("'read_committed' returns records of committed transactions only, and none behind an open transaction."),
]
CheckCrcs = Annotated[bool, Meaning("Check the CRC of each batch. A wrong one raises CorruptRecordException.")]
FetchMinBytes = Annotated[
    NotNegative, Meaning("The broker answers a fetch once it has this many bytes, or after fetch_max_wait_ms.")
]
FetchMaxBytes = Annotated[
    Positive, Meaning("The bytes of one fetch's answer. A first batch that is larger is returned whole.")
]
FetchMaxWaitMs = Annotated[
    NotNegative, Meaning("How long the broker waits for fetch_min_bytes. Must be less than request_timeout_ms.")
]
ClientRack = Annotated[
    str,
    Meaning(
        "The rack of this client. It fetches from a replica there if brokers have `replica.selector.class` (KIP-392)."
    ),
]


class ConsumerConfig(ClientConfig, frozen=True, kw_only=True):
    """Settings of `Consumer`. Each is a keyword argument of it."""

    group_id: Annotated[
        str | None,
        Meaning(
            "The group that shares partitions and keeps offsets. None: no group and no commits; all partitions are "
            "read."
        ),
    ] = None
    group_instance_id: Annotated[
        str | None, Meaning("Makes a static member (KIP-345): a restart within session_timeout_ms causes no rebalance.")
    ] = None
    group_protocol: Annotated[
        Literal["classic", "consumer"],
        Meaning(
            "'consumer' is the protocol of KIP-848: the broker assigns the partitions, and only those that move are "
            "revoked. It needs brokers that serve it: semel's, or Apache Kafka from 4.0 on. The broker then decides "
            "session_timeout_ms, heartbeat_interval_ms and partition_assignment_strategy, which must not be given."
        ),
    ] = "classic"
    group_remote_assignor: Annotated[
        str | None,
        Meaning(
            "With group_protocol='consumer': the broker's assignor, such as 'uniform' or 'range'. None: the broker's "
            "default."
        ),
    ] = None
    key_deserializer: Annotated[
        Deserializer | None,
        Meaning("Makes `record.key` from the bytes, or from None for a record without key. None: keys stay bytes."),
    ] = None
    value_deserializer: Annotated[
        Deserializer | None,
        Meaning(
            "Makes `record.value` from the bytes, or from None for a record without value. None: values stay bytes."
        ),
    ] = None
    auto_offset_reset: Annotated[
        Literal["latest", "earliest", "none"],
        Meaning(
            "Where to start without a committed offset, or when it does not exist any more. 'none' raises an error "
            "instead."
        ),
    ] = "latest"
    enable_auto_commit: Annotated[
        bool,
        Meaning(
            "Commit the consumed offsets every auto_commit_interval_ms and before partitions are revoked. A record is "
            "consumed when the application asks for the next one."
        ),
    ] = True
    auto_commit_interval_ms: Annotated[Positive, Meaning("The time between two commits, with enable_auto_commit.")] = (
        5_000
    )
    max_poll_records: Annotated[
        int | None,
        whole(1, none="all that is there"),
        Meaning("The largest number of records that getmany returns. None: all that are buffered."),
    ] = 500
    max_poll_interval_ms: Annotated[
        Positive,
        Meaning("A member that does not ask for records for longer leaves the group. It joins again when it asks."),
    ] = 300_000
    session_timeout_ms: Annotated[
        Positive,
        Meaning(
            "The coordinator removes a member from the group after this time without a heartbeat. The broker allows a "
            "range: group.min.session.timeout.ms to group.max.session.timeout.ms."
        ),
    ] = 45_000
    heartbeat_interval_ms: Annotated[
        Positive, Meaning("The time between two heartbeats; at most a third of session_timeout_ms is usual.")
    ] = 3_000
    rebalance_timeout_ms: Annotated[
        int | None,
        whole(1, none="max_poll_interval_ms"),
        Meaning(
            "How long a rebalance may wait for this member. While the application processes records, the revocation of "
            "their partition waits for at most about this time. None: max_poll_interval_ms, as Kafka."
        ),
    ] = None
    partition_assignment_strategy: Annotated[
        Strategies,
        ASSIGNORS,
        Meaning(
            "Names or assignors, the preferred one first. Cooperative rebalancing needs all of them to be cooperative "
            "(KIP-429)."
        ),
    ] = ("range", "cooperative-sticky")
    fetch_min_bytes: FetchMinBytes = 1
    fetch_max_bytes: FetchMaxBytes = 52_428_800
    fetch_max_wait_ms: FetchMaxWaitMs = 500
    max_partition_fetch_bytes: Annotated[
        Positive,
        Meaning("The bytes of one partition in a fetch's answer. A first batch that is larger is returned whole."),
    ] = 1_048_576
    fetch_buffer_bytes: Annotated[
        PositiveLong, Meaning("semel's own: the bound on bytes fetched ahead of the application, over all partitions.")
    ] = 67_108_864
    isolation_level: IsolationLevel = "read_uncommitted"
    check_crcs: CheckCrcs = True
    exclude_internal_topics: Annotated[
        bool, Meaning("Whether a pattern leaves out internal topics such as __consumer_offsets.")
    ] = True
    allow_auto_create_topics: Annotated[
        bool,
        Meaning(
            "Let the broker create subscribed topics that do not exist, if its auto.create.topics.enable allows it."
        ),
    ] = True
    client_rack: ClientRack = ""
    default_api_timeout_ms: Annotated[
        Positive,
        Meaning(
            "How long commit, committed, position, beginning_offsets and similar calls may take, retries included."
        ),
    ] = 60_000
    consumer_timeout_ms: Annotated[
        int | None,
        whole(0, none="the same, as it has no effect"),
        Meaning("Accepted for programs written for aiokafka. It has no effect."),
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        not_below(self, "fetch_buffer_bytes", "max_partition_fetch_bytes")
        self._check_group()
        if self.fetch_max_wait_ms >= self.request_timeout_ms:
            raise KafkaConfigurationError(
                f"fetch_max_wait_ms={self.fetch_max_wait_ms} must be less than "
                f"request_timeout_ms={self.request_timeout_ms}: otherwise a fetch without data times out"
            )

    def _check_group(self) -> None:
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise KafkaConfigurationError(
                f"heartbeat_interval_ms={self.heartbeat_interval_ms} must be less than "
                f"session_timeout_ms={self.session_timeout_ms}: lower it to a third"
            )
        if self.group_id == "":
            raise KafkaConfigurationError("group_id is empty: give the group a name, or None for no group")
        if self.group_instance_id is not None and self.group_id is None:
            raise KafkaConfigurationError("group_instance_id is given but group_id is not: give the group's name")
        if self.group_remote_assignor is not None and not self.is_consumer_protocol:
            raise KafkaConfigurationError(
                "group_remote_assignor is given but group_protocol is 'classic': set it to 'consumer', or give "
                "partition_assignment_strategy instead"
            )

    @property
    def is_consumer_protocol(self) -> bool:
        """Whether the group speaks the protocol of KIP-848."""
        return self.group_protocol == "consumer"

    @property
    def assignors(self) -> tuple[Assignor, ...]:
        return assignors_of(self.partition_assignment_strategy)

    @property
    def read_committed(self) -> bool:
        return self.isolation_level == "read_committed"

    @property
    def rebalance_wait_ms(self) -> int:
        """`rebalance_timeout_ms`, or max_poll_interval_ms without one."""
        return self.max_poll_interval_ms if self.rebalance_timeout_ms is None else self.rebalance_timeout_ms


class ConsumerKeywords(ClientKeywords, total=False):
    """The keyword arguments of `Consumer`, for editors and type checkers. A test compares them with the settings.

    The deserializers are not among them: they decide the type arguments of `Consumer[K, V]`, so its signature names
    them.
    """

    group_id: str | None
    group_instance_id: str | None
    group_protocol: Literal["classic", "consumer"]
    group_remote_assignor: str | None
    auto_offset_reset: Literal["latest", "earliest", "none"]
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    max_poll_records: int | None
    max_poll_interval_ms: int
    session_timeout_ms: int
    heartbeat_interval_ms: int
    rebalance_timeout_ms: int | None
    partition_assignment_strategy: Strategies
    fetch_min_bytes: int
    fetch_max_bytes: int
    fetch_max_wait_ms: int
    max_partition_fetch_bytes: int
    fetch_buffer_bytes: int
    isolation_level: Literal["read_uncommitted", "read_committed"]
    check_crcs: bool
    exclude_internal_topics: bool
    allow_auto_create_topics: bool
    client_rack: str
    default_api_timeout_ms: int
    consumer_timeout_ms: int | None
