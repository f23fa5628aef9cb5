"""What `Admin` takes and answers. Names and fields are aiokafka's where it has them; results are values."""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

import msgspec

from semel.structs import BrokerMetadata, TopicPartition


class NewTopic(msgspec.Struct, frozen=True):
    """A topic to create. -1: the cluster's default. `replica_assignments`: partition -> brokers, instead of both."""

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    replica_assignments: Mapping[int, Sequence[int]] = {}
    topic_configs: Mapping[str, str] = {}


class NewPartitions(msgspec.Struct, frozen=True):
    """How many partitions a topic shall have in all; `new_assignments`: the brokers of each new one."""

    total_count: int
    new_assignments: Sequence[Sequence[int]] | None = None


class RecordsToDelete(NamedTuple):
    """Every record below this offset; -1: all that is committed."""

    before_offset: int


class ConfigResourceType(IntEnum):
    """What has settings."""

    TOPIC = 2
    BROKER = 4


class ConfigResource(msgspec.Struct, frozen=True):
    """A topic by name, or a broker by its id; broker "" stands for all brokers.

    `configs`: for `describe_configs` the names wanted (None: all), for `alter_configs` name -> value, where None
    makes the setting follow its default again.
    """

    resource_type: ConfigResourceType
    name: str
    configs: Mapping[str, str | None] | Sequence[str] | None = None


class ConfigSource(IntEnum):
    """Where a setting's value comes from (KIP-226)."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5

    @classmethod
    def _missing_(cls, value: object) -> "ConfigSource":
        return cls.UNKNOWN  # newer brokers know more sources


class ConfigSynonym(NamedTuple):
    """The same setting on one of the levels it may be given on; the first one is in force."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(msgspec.Struct, frozen=True):
    """One setting as it stands; `value` is None when it has none, or when it is sensitive."""

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool = False
    is_sensitive: bool = False
    synonyms: tuple[ConfigSynonym, ...] = ()
    documentation: str | None = None

    @property
    def is_default(self) -> bool:
        return self.source is ConfigSource.DEFAULT


class ConfigDescription(msgspec.Struct, frozen=True):
    """The settings of one resource by name."""

    resource_type: ConfigResourceType
    name: str
    configs: dict[str, ConfigEntry]


class ClusterDescription(msgspec.Struct, frozen=True):
    """The cluster's brokers by node id."""

    cluster_id: str | None
    controller_id: int
    brokers: dict[int, BrokerMetadata]


class ConsumerGroupListing(NamedTuple):
    """A group in a listing; `protocol_type` is "" for one that only stores offsets."""

    group_id: str
    protocol_type: str


class MemberDescription(msgspec.Struct, frozen=True):
    """A member of a group. `subscription` and `assignment` are empty for other protocols than "consumer"."""

    member_id: str
    client_id: str
    client_host: str
    group_instance_id: str | None = None
    subscription: tuple[str, ...] = ()
    assignment: tuple[TopicPartition, ...] = ()


class ConsumerGroupDescription(msgspec.Struct, frozen=True):
    """A group. `state`: PreparingRebalance, CompletingRebalance, Stable, Empty, or Dead when there is none."""

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    coordinator: int
    members: tuple[MemberDescription, ...]
