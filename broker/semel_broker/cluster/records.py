"""PURE: what a cluster keeps in its store: keys, and the values under them. JSON, so that people can read them too.

| key | value | written by |
|---|---|---|
| `cluster/id` | 22 characters of base64 | the first broker |
| `brokers/<id>` | `BrokerRecord`, as long as the broker's session lives | the broker |
| `admissions/<id>` | `Admission` | the controller |
| `leaving/<id>` | `Leaving`, as long as the broker's session lives | the broker |
| `controller` | `ControllerRecord`, as long as its session lives | whoever comes first |
| `topics/<name>` | `TopicRecord` | any broker |
| `partitions/<topic id>/<index>` | `PartitionState`; absent: `initial_state` | the controller, the partition's leader |
| `reassignments/<topic id>/<index>` | `Reassignment` | any broker begins one, the controller ends it |
| `deletions/<topic id>/<broker>` | the `TopicRecord`: that broker still has to remove its replicas | who deletes, it |
| `configs/brokers/<id or default>` | settings altered while brokers run | any broker |
| `barrier` | nothing: who has written it and sees it has seen all that was before | any broker |

The revision of a `brokers/` entry is the *broker epoch*, that of `controller` the *controller epoch*.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode
from collections.abc import Sequence
from typing import Final

import msgspec

CLUSTER_ID: Final = "cluster/id"
BROKERS: Final = "brokers/"
ADMISSIONS: Final = "admissions/"
LEAVING: Final = "leaving/"
CONTROLLER: Final = "controller"
TOPICS: Final = "topics/"
PARTITIONS: Final = "partitions/"
REASSIGNMENTS: Final = "reassignments/"
DELETIONS: Final = "deletions/"
CONFIGS: Final = "configs/"
BARRIER: Final = "barrier"

NO_LEADER: Final = -1


class BrokerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A broker that runs. `host`, `port`: told to clients; `peer_host`, `peer_port`: told to other brokers.

    `incarnation`: a random id of this session; `directory_id`: that of its data directory, which one process has at a
    time. `is_synced`: it syncs what it is sent before it says that it has it: a power cut takes nothing of that.
    """

    node_id: int
    incarnation: str
    directory_id: str
    host: str
    port: int
    peer_host: str = ""
    peer_port: int = 0
    rack: str = ""
    is_synced: bool = False


class Admission(msgspec.Struct, frozen=True):
    """The registration with this broker epoch may lead and be in sync: nothing is left of those before it. `is_synced`:
    as in that registration, for when the broker comes back and another session has taken its place."""

    epoch: int
    is_synced: bool = False


class Leaving(msgspec.Struct, frozen=True):
    """The broker with this epoch is about to stop: others are to lead what it leads."""

    epoch: int


class ControllerRecord(msgspec.Struct, frozen=True):
    """Who decides on leaders."""

    node_id: int
    broker_epoch: int


class TopicRecord(msgspec.Struct, frozen=True):
    """One topic as persisted: `replicas` are the brokers of each partition, the preferred leader first."""

    name: str
    topic_id: str
    replicas: list[list[int]]
    configs: dict[str, str]

    @property
    def id_bytes(self) -> bytes:
        """The topic id as the wire has it: 16 bytes."""
        return urlsafe_b64decode(self.topic_id + "==")


class PartitionState(msgspec.Struct, frozen=True):
    """Who leads a partition (NO_LEADER: nobody), since how many changes of leader, and which replicas are in sync."""

    leader: int
    leader_epoch: int
    isr: list[int]


class Reassignment(msgspec.Struct, frozen=True):
    """A partition on its way from the replicas `original` to `target`; until it is over its replicas are the union."""

    target: list[int]
    original: list[int]


def initial_state(replicas: Sequence[int]) -> PartitionState:
    """The state of a partition that has none in the store: nothing has happened since it was created."""
    return PartitionState(leader=replicas[0], leader_epoch=0, isr=list(replicas))


def topic_key(name: str) -> str:
    """The key of a topic. Names that collide (`.` and `_`) share it, so that compare-and-swap lets one of them in."""
    return TOPICS + collision_name(name)


def collision_name(name: str) -> str:
    """What two topic names must not share: they would have the same name in metrics, where `.` becomes `_`."""
    return name.replace(".", "_")


def broker_key(node_id: int) -> str:
    """The key of a broker's registration."""
    return f"{BROKERS}{node_id}"


def partition_key(topic_id: str, index: int) -> str:
    """The key of a partition's state. `topic_id` as in `TopicRecord`."""
    return f"{PARTITIONS}{topic_id}/{index}"


def reassignment_key(topic_id: str, index: int) -> str:
    """The key of a partition's reassignment."""
    return f"{REASSIGNMENTS}{topic_id}/{index}"


def deletion_key(topic_id: str, node_id: int) -> str:
    """The key of what a broker has yet to remove of a deleted topic."""
    return f"{DELETIONS}{topic_id}/{node_id}"


def place_of(key: str) -> tuple[str, int]:
    """(topic id, index) of a key of a partition, of a reassignment; (topic id, broker) of a deletion."""
    _, topic_id, number = key.split("/")
    return topic_id, int(number)
