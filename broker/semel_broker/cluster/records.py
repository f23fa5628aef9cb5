"""PURE: the records of a cluster in its store: their keys and values. Values are JSON, so that people can read them.

| key | value | written by |
|---|---|---|
| `cluster/id` | 22 characters of base64 | the first broker |
| `brokers/<id>` | `BrokerRecord`, as long as the broker's session lives | the broker |
| `admissions/<id>` | `BrokerAdmission` | the controller |
| `leaving/<id>` | `Leaving`, as long as the broker's session lives | the broker |
| `offline/<id>` | `Offline`, as long as the broker's session lives | the broker |
| `controller` | `ControllerRecord`, as long as its session lives | the first broker that writes it |
| `topics/<name>` | `TopicRecord` | any broker |
| `partitions/<topic id>/<index>` | `PartitionState`; absent: `initial_state` | the controller; the partition's leader |
| `reassignments/<topic id>/<index>` | `Reassignment` | any broker begins one, the controller ends it |
| `deletions/<topic id>/<broker>` | `TopicRecord`; the broker deletes it with its replicas | any broker; this broker |
| `acls/<id>` | an access control entry; the id is made of its content | any broker |
| `users/<name>/<mechanism>` | `ScramCredential`; the name is percent-encoded | any broker |
| `producer-ids/bound` | the number of the next block of bound producer ids | any broker |
| `producer-ids/next` | the end of the producer ids without an owner | brokers of older versions |
| `secrets/producer-ids` | 32 random bytes, with which producer ids are bound to their owners | the first broker |
| `secrets/unknown-users` | 32 random bytes, of which the salts of unknown users are made | the first broker |
| `quotas/<id>` | `QuotaRecord`; the id is made of its entity | any broker |
| `written/acls`, `written/users` | empty; each change of an ACL or a user expects its revision | any broker |
| `written/absent-<00 to ff>` | empty; a key with this hash was removed or not found: `absence_key` | any broker |
| `configs/brokers/<id or default>` | settings altered while brokers run | any broker |
| `barrier` | empty; a broker that writes it and then reads it has applied all earlier changes | any broker |

The revision of a `brokers/` entry is the *broker epoch*, that of `controller` the *controller epoch*.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final
from urllib.parse import quote, unquote

import msgspec
from crc32c import crc32c
from semel_protocol.acls import Acl, Operation, PatternType, Permission, ResourceType
from semel_protocol.quotas import QuotaEntity

from semel_broker.config.listeners import PLAINTEXT, Endpoint

CLUSTER_ID: Final = "cluster/id"
BROKERS: Final = "brokers/"
ADMISSIONS: Final = "admissions/"
LEAVING: Final = "leaving/"
OFFLINE: Final = "offline/"
CONTROLLER: Final = "controller"
TOPICS: Final = "topics/"
PARTITIONS: Final = "partitions/"
REASSIGNMENTS: Final = "reassignments/"
DELETIONS: Final = "deletions/"
CONFIGS: Final = "configs/"
ACLS: Final = "acls/"
USERS: Final = "users/"
PRODUCER_NUMBERS: Final = "producer-ids/bound"
UNBOUND_IDS: Final = "producer-ids/next"
PRODUCER_ID_KEY: Final = "secrets/producer-ids"
UNKNOWN_USERS: Final = "secrets/unknown-users"
QUOTAS: Final = "quotas/"
WRITTEN: Final = "written/"
ACLS_WRITTEN: Final = "written/acls"
USERS_WRITTEN: Final = "written/users"
ABSENCE_KEYS: Final = 256
BARRIER: Final = "barrier"

NO_LEADER: Final = -1


class BrokerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A registered broker. `host`, `port`: its first listener, as advertised to clients; `peer_host`, `peer_port`:
    advertised to brokers.

    `endpoints`: the address advertised to the clients of each listener, by its name. UNSET: the only
    listener is PLAINTEXT.
    `incarnation`: a random id of this session. `directory_id`: of its data directory, which one process uses at a time.
    `is_synced`: it acknowledges records only after a sync, so that a power cut loses none of them.
    `offline`: the partitions whose files it cannot use, by topic id. It can neither lead nor follow them. UNSET: none.
    Those that go offline later are in its `Offline`.
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
    endpoints: dict[str, Endpoint] | msgspec.UnsetType = msgspec.UNSET
    offline: dict[str, list[int]] | msgspec.UnsetType = msgspec.UNSET

    def endpoint(self, listener: str) -> Endpoint | None:
        """The address for clients of this listener; None: the broker does not have the listener."""
        if self.endpoints is msgspec.UNSET:
            return Endpoint(self.host, self.port) if listener == PLAINTEXT else None
        return self.endpoints.get(listener)


class BrokerAdmission(msgspec.Struct, frozen=True):
    """The registration with this broker epoch may lead and be in sync: no partition state refers to an earlier one.
    `is_synced`: copied from that registration; elections use it after the broker has registered again."""

    epoch: int
    is_synced: bool = False


class Offline(msgspec.Struct, frozen=True):
    """All partitions whose files the registration with this broker epoch cannot use, by topic id.

    `hangs`: its disk hangs. Until it goes on, other replicas lead and are in sync, where there are any.
    """

    epoch: int
    partitions: dict[str, list[int]] = {}
    hangs: bool = False


class Leaving(msgspec.Struct, frozen=True):
    """The broker with this epoch is about to stop: its partitions need other leaders."""

    epoch: int


class ControllerRecord(msgspec.Struct, frozen=True):
    """The broker that is the controller."""

    node_id: int
    broker_epoch: int


class TopicRecord(msgspec.Struct, frozen=True):
    """One topic. `replicas`: the brokers of each partition, the preferred leader first."""

    name: str
    topic_id: str
    replicas: list[list[int]]
    configs: dict[str, str]

    @property
    def id_bytes(self) -> bytes:
        """The topic id in the form of the protocol: 16 bytes."""
        return urlsafe_b64decode(self.topic_id + "==")


class PartitionState(msgspec.Struct, frozen=True):
    """The leader of a partition (or NO_LEADER), its leader epoch, and the replicas that are in sync."""

    leader: int
    leader_epoch: int
    isr: list[int]


class Reassignment(msgspec.Struct, frozen=True):
    """A reassignment from the replicas `original` to `target`. Until it ends, the partition has both."""

    target: list[int]
    original: list[int]


class AclRecord(msgspec.Struct, frozen=True):
    """An access control entry. Kinds are written by name, so that people can read them."""

    resource_type: str
    name: str
    pattern: str
    principal: str
    host: str
    operation: str
    permission: str

    def acl(self) -> Acl:
        return Acl(
            ResourceType[self.resource_type],
            self.name,
            PatternType[self.pattern],
            self.principal,
            self.host,
            Operation[self.operation],
            Permission[self.permission],
        )


def acl_record(acl: Acl) -> bytes:
    """The value of an entry."""
    return msgspec.json.encode(
        AclRecord(
            acl.resource_type.name,
            acl.name,
            acl.pattern.name,
            acl.principal,
            acl.host,
            acl.operation.name,
            acl.permission.name,
        )
    )


def acl_key(acl: Acl) -> str:
    """The key of an entry: the same entry has the same key, so it exists once."""
    digest = blake2b(acl_record(acl), digest_size=15).digest()
    return ACLS + urlsafe_b64encode(digest).decode()


class ScramCredential(msgspec.Struct, frozen=True):
    """The proof that a user knows a password, for one mechanism (RFC 5802, KIP-554). The password is not in it."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes

    def __repr__(self) -> str:
        return f"<ScramCredential of {self.iterations} iterations>"  # the keys stay out of logs


def user_key(name: str, mechanism: str) -> str:
    """The key of a user's credential. `mechanism`: as in SaslHandshake."""
    return f"{USERS}{quote(name, safe='')}/{mechanism}"


def user_of(key: str) -> tuple[str, str]:
    """(name, mechanism) of the key of a credential."""
    _, name, mechanism = key.split("/")
    return unquote(name), mechanism


class QuotaRecord(msgspec.Struct, frozen=True):
    """The quotas of an entity. `parts`: type -> name, null for the default, as in the protocol."""

    parts: dict[str, str | None]
    values: dict[str, float]

    @property
    def entity(self) -> QuotaEntity:
        return QuotaEntity.of_parts(self.parts)


def quota_record(entity: QuotaEntity, values: dict[str, float]) -> bytes:
    """The value of an entity with quotas."""
    return msgspec.json.encode(QuotaRecord(entity.parts, values))


def quota_key(entity: QuotaEntity) -> str:
    """The key of an entity with quotas."""
    digest = blake2b(msgspec.json.encode(entity.parts), digest_size=15).digest()
    return QUOTAS + urlsafe_b64encode(digest).decode()


def initial_state(replicas: Sequence[int]) -> PartitionState:
    """The state of a partition without a state in the store: it has not changed since its creation."""
    return PartitionState(leader=replicas[0], leader_epoch=0, isr=list(replicas))


def absence_key(key: str) -> str:
    """The key that is written whenever `key` is removed or is answered not to exist, and expected where it is created.

    A key that does not exist has no revision, so a transaction that creates it and is applied late could not tell that
    the key was created and removed meanwhile, or that a request was answered with "there is none". Several keys share
    one of 256: a creation that fails for another key is decided again.
    """
    return f"{WRITTEN}absent-{crc32c(key.encode()) % ABSENCE_KEYS:02x}"


def topic_key(name: str) -> str:
    """The key of a topic. Names that differ only in `.` and `_` have the same key, so only one of them can exist."""
    return TOPICS + collision_name(name)


def collision_name(name: str) -> str:
    """The topic's name in metrics, with `_` for `.`. Two topics must not have the same one."""
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
    """The key that exists until the broker has removed its replicas of a deleted topic."""
    return f"{DELETIONS}{topic_id}/{node_id}"


def place_of(key: str) -> tuple[str, int]:
    """(topic id, index) of the key of a partition or a reassignment; (topic id, broker) of the key of a deletion."""
    _, topic_id, number = key.split("/")
    return topic_id, int(number)
