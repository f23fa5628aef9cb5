"""PURE: the creation, growth and settings of topics: each function checks a request and returns the record to store."""

import re
from base64 import urlsafe_b64encode
from collections.abc import Collection, Generator, Mapping, Sequence
from typing import Final

import msgspec
from semel_protocol.errors import ErrorCode, KafkaError

from semel_broker.cluster import placement
from semel_broker.cluster.records import TopicRecord
from semel_broker.config import topic_configs
from semel_broker.config.loading import BrokerConfig, ConfigError

OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
INTERNAL_TOPICS: Final = (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)

_LEGAL_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")
_NO_ASSIGNMENTS: Final[Mapping[int, Sequence[int]]] = {}
_NO_CONFIGS: Final[Mapping[str, str | None]] = {}


class NewTopic(msgspec.Struct, frozen=True, kw_only=True):
    """A topic to create. -1: the broker's default. `assignments`: partition -> brokers, instead of both numbers."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str | None] = _NO_CONFIGS
    assignments: Mapping[int, Sequence[int]] = _NO_ASSIGNMENTS


class Sites(msgspec.Struct, frozen=True):
    """The brokers that can hold replicas, each with its rack ("": none), and their load."""

    racks: Mapping[int, str]
    load: placement.Load | None = None
    hanging: Collection[int] = ()
    """Those of them whose disks hang."""

    def racks_for(self, factor: int) -> Mapping[int, str]:
        """The racks of brokers for partitions of so many replicas: a disk that hangs gets none if others suffice."""
        found = {node_id: rack for node_id, rack in self.racks.items() if node_id not in self.hanging}
        return found if len(found) >= factor else self.racks


def text_of_id(topic_id: bytes) -> str:
    """A topic id as text: Kafka's unpadded base64url."""
    return urlsafe_b64encode(topic_id).decode().rstrip("=")


def check_name(name: str, config: BrokerConfig) -> None:
    """Check a topic's name. Raises INVALID_TOPIC_EXCEPTION, which names the broken rule."""
    length_max = config.limits.topic_name_length_max
    if not name:
        problem = "a topic name must not be empty"
    elif name in (".", ".."):
        problem = f"a topic must not be named {name!r}"
    elif len(name) > length_max:
        problem = f"a topic name may have {length_max} characters at most, this one has {len(name)}"
    elif _LEGAL_NAME.fullmatch(name) is None:
        problem = f"topic name {name!r} may only have ASCII letters, digits, '.', '_' and '-'"
    else:
        return
    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)


def internal_topic(name: str, config: BrokerConfig) -> NewTopic:
    """An internal topic with the broker's settings for it."""
    offsets_factor, transactions_factor = config.internal_topics_factor
    partitions, replication_factor, segment_bytes = {
        OFFSETS_TOPIC: (
            config.offsets_topic_num_partitions,
            offsets_factor,
            config.offsets_topic_segment_bytes,
        ),
        TRANSACTIONS_TOPIC: (
            config.transaction_state_log_num_partitions,
            transactions_factor,
            config.transaction_state_log_segment_bytes,
        ),
    }[name]
    return NewTopic(
        name=name,
        partitions=partitions,
        replication_factor=replication_factor,
        configs={
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(segment_bytes),
            # A record holds a whole group with its members' metadata, or a transaction with all its partitions. It
            # may be larger than message.max.bytes.
            "max.message.bytes": str(segment_bytes),
            **({"min.insync.replicas": "2"} if replication_factor > 2 else {}),  # one of three may be down
        },
    )


def create(new: NewTopic, *, topic_id: bytes, sites: Sites, config: BrokerConfig) -> Generator[int, None, TopicRecord]:
    """The record of a new topic, made in steps (`placement.place`).

    Raises INVALID_TOPIC_EXCEPTION, INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT,
    INVALID_CONFIG, INVALID_REQUEST.
    """
    brokers = list(sites.racks)
    check_name(new.name, config)
    if new.assignments:
        _check_count(len(new.assignments), config)
        replicas = _assigned(new, brokers)
    else:
        count, factor = _partition_count(new, config), _replication_factor(new, brokers, config)
        replicas = yield from placement.place(count, factor, sites.racks_for(factor), elsewhere=sites.load)
    return TopicRecord(new.name, text_of_id(topic_id), replicas, check_configs(new.configs, config))


def grow(
    record: TopicRecord,
    count: int,
    *,
    assignments: Sequence[Sequence[int]] | None = None,
    sites: Sites,
    config: BrokerConfig,
) -> Generator[int, None, TopicRecord]:
    """The record with `count` partitions in total, made in steps (`placement.place`).

    Raises INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT.
    """
    brokers = list(sites.racks)
    has = len(record.replicas)
    if count <= has:
        verb = "already has" if count == has else "cannot shrink: it has"
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"topic {record.name!r} {verb} {has} partitions")
    _check_count(count, config)
    if assignments is None:
        factor = len(record.replicas[0])
        if factor > len(brokers):
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"topic {record.name!r} has {factor} replicas of each partition, and only {len(brokers)} brokers are "
                "live: start the others, or assign the new partitions to brokers by hand",
            )
        more = yield from placement.place(
            count - has, factor, sites.racks_for(factor), existing=record.replicas, elsewhere=sites.load
        )
    else:
        if len(assignments) != count - has:
            raise _bad_assignment(f"{count - has} partitions are to be added, {len(assignments)} are assigned")
        more = [_replica_list(ids, brokers, len(record.replicas[0])) for ids in assignments]
    return msgspec.structs.replace(record, replicas=[*record.replicas, *more])


def reconfigure(record: TopicRecord, configs: Mapping[str, str | None], config: BrokerConfig) -> TopicRecord:
    """The record with these settings in place of its own. Raises INVALID_CONFIG."""
    return msgspec.structs.replace(record, configs=check_configs(configs, config))


def check_configs(configs: Mapping[str, str | None], config: BrokerConfig) -> dict[str, str]:
    """Topic settings in canonical text. Raises INVALID_CONFIG, which names the key, the value and the allowed
    values.
    """
    try:
        return topic_configs.check(configs, config)
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None


def _partition_count(new: NewTopic, config: BrokerConfig) -> int:
    count = config.num_partitions if new.partitions == -1 else new.partitions
    if count < 1:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"{count} partitions: must be at least 1, or -1 for the default")
    _check_count(count, config)
    return count


def _check_count(count: int, config: BrokerConfig) -> None:
    most = config.limits.partitions_per_topic_max
    if count > most:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"{count} partitions: a topic may have {most} at most")


def _replication_factor(new: NewTopic, brokers: Sequence[int], config: BrokerConfig) -> int:
    factor = config.default_replication_factor if new.replication_factor == -1 else new.replication_factor
    if not 1 <= factor <= len(brokers):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {factor}: must be -1 for the default, or from 1 to {len(brokers)} (all brokers)",
        )
    return factor


def _assigned(new: NewTopic, brokers: Sequence[int]) -> list[list[int]]:
    if new.partitions != -1 or new.replication_factor != -1:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "with a manual assignment, partitions and replication factor must both be -1"
        )
    if sorted(new.assignments) != list(range(len(new.assignments))):
        raise _bad_assignment(f"partitions must be 0 to {len(new.assignments) - 1}, each once")
    factor = len(new.assignments[0])
    return [_replica_list(new.assignments[p], brokers, factor) for p in range(len(new.assignments))]


def _replica_list(ids: Sequence[int], brokers: Sequence[int], factor: int) -> list[int]:
    if not ids or len(ids) != factor:
        raise _bad_assignment(
            f"every partition needs the same number of replicas, at least 1; {list(ids)} has {len(ids)}"
        )
    if len(dict.fromkeys(ids)) != len(ids):
        raise _bad_assignment(f"{list(ids)} names a broker twice")
    missing = [broker for broker in ids if broker not in brokers]
    if missing:
        raise _bad_assignment(f"there is no broker {missing[0]}; the brokers are {list(brokers)}")
    return list(ids)


def _bad_assignment(problem: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
