"""Two hashes: murmur2 maps record keys to partitions, Java's hashCode maps groups and ids to coordinators."""

from functools import lru_cache
from struct import unpack_from

_MURMUR2_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF
COORDINATORS_KNOWN = 4096
"""Number of names with a cached hash: groups and transactional ids are few, and looked up often."""


def murmur2(data: bytes) -> int:
    """The 32-bit murmur2 hash of Kafka's default partitioner, unsigned (Java prints the same bits signed)."""
    length = len(data)
    whole = length >> 2
    h = _MURMUR2_SEED ^ length
    for k in unpack_from(f"<{whole}I", data):
        k = k * _M & _MASK
        h = (h * _M & _MASK) ^ ((k ^ k >> 24) * _M & _MASK)
    at = whole << 2
    if at < length:
        h = (h ^ int.from_bytes(data[at:], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


def partition_for_key(key: bytes, partition_count: int) -> int:
    """The partition that Java's default partitioner chooses for this key."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


def java_hash_code(text: str) -> int:
    """Java's String.hashCode: over UTF-16 code units, as a signed 32-bit integer."""
    units = text.encode("utf-16-le", "surrogatepass")
    h = 0
    for unit in unpack_from(f"<{len(units) >> 1}H", units):
        h = (31 * h + unit) & _MASK
    return h - (1 << 32) if h & 0x80000000 else h


@lru_cache(COORDINATORS_KNOWN)
def coordinator_partition(name: str, partition_count: int) -> int:
    """The coordinator partition of a group in `__consumer_offsets`, or of an id in `__transaction_state`."""
    h = java_hash_code(name)
    return (0 if h == -(1 << 31) else abs(h)) % partition_count


def group_of(transactional_id: str) -> str:
    """The transaction group in the id `<group>/<member>`; "" if the id is not a member of a group."""
    return transactional_id.rpartition("/")[0]


def transaction_partition(transactional_id: str, partition_count: int) -> int:
    """The coordinator partition of an id in `__transaction_state`; members of a transaction group share one."""
    return coordinator_partition(group_of(transactional_id) or transactional_id, partition_count)
