"""PURE: which entities, quotas and filters AlterClientQuotas and DescribeClientQuotas accept, as in Kafka."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from ipaddress import IPv6Address, ip_address

from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.quotas import (
    ANY,
    ANY_MATCH,
    CLIENT_ID,
    CLIENT_KEYS,
    DEFAULT,
    DEFAULT_MATCH,
    EXACT,
    IP,
    IP_KEYS,
    TYPES,
    USER,
    WHOLE_NUMBERS,
    QuotaEntity,
    QuotaFilter,
    SpecialEntity,
)

EPSILON = 1e-6
"""The fraction that a whole number may have, because quotas travel as floating point."""
INT32_MAX, INT64_MAX = 2**31 - 1, 2**63 - 1

Component = tuple[str, int, str | None]
"""Type, match type and name of a condition of DescribeClientQuotas."""


def entity_of(parts: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    """The entity of these types and names; None is the default. Raises INVALID_REQUEST."""
    named: dict[str, str | None] = {}
    for kind, name in parts:
        if kind not in TYPES:
            raise _invalid(f"there is no entity type {kind!r}; there are {', '.join(TYPES)}")
        if kind in named:
            raise _invalid(f"the entity names {kind} twice; give it once")
        if name == "":
            raise _invalid(f"the name of {kind} is empty; give a name, or null for the default")
        named[kind] = name
    if not named:
        raise _invalid("the entity is empty; give a user, a client-id, both, or an ip")
    if IP in named and len(named) > 1:
        raise _invalid("an entity with an ip has no user and no client-id; give two entities")
    if (address := named.get(IP)) is not None:
        named[IP] = address_of(address)
        if named[IP] is None:
            raise _invalid(f"{address!r} is not an IP address")
    return QuotaEntity.of_parts(named)


def address_of(text: str) -> str | None:
    """An IP address in its usual form, IPv4 for an IPv6 address that only wraps it. None: it is no address."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return str(address)


def check_value(entity: QuotaEntity, key: str, value: float) -> float:
    """The value of a quota as it is stored. Raises INVALID_REQUEST."""
    check_key(entity, key)
    if not math.isfinite(value) or value <= 0:
        raise _invalid(f"{key} is {value}: it must be greater than 0")
    if key not in WHOLE_NUMBERS:
        return value
    whole = float(int(value + EPSILON))
    if abs(whole - value) > EPSILON or whole < 1:
        raise _invalid(f"{key} is {value}: it must be a whole number")
    if whole > (INT32_MAX if key in IP_KEYS else INT64_MAX):
        raise _invalid(f"{key} is {value}: it is too large")
    return whole


def check_key(entity: QuotaEntity, key: str) -> None:
    """Raise INVALID_REQUEST for a quota that such an entity does not have."""
    keys = CLIENT_KEYS if entity.ip is None else IP_KEYS
    if key not in keys:
        raise _invalid(f"{entity} has no quota {key!r}; there are {', '.join(keys)}")


def edited(
    entity: QuotaEntity, before: Mapping[str, float], ops: Iterable[tuple[str, float, bool]]
) -> dict[str, float]:
    """The quotas after these changes of key, value and whether to remove it. Raises INVALID_REQUEST."""
    after, seen = dict(before), set()
    for key, value, is_removed in ops:
        check_key(entity, key)
        if key in seen:
            raise _invalid(f"{key} is changed twice; change it once")
        seen.add(key)
        if is_removed:
            after.pop(key, None)
        else:
            after[key] = check_value(entity, key, value)
    return after


def filter_of(components: Iterable[Component], *, strict: bool) -> QuotaFilter:
    """The filter of a request. Raises INVALID_REQUEST, UNSUPPORTED_VERSION for an unknown entity type."""
    parts: dict[str, str | SpecialEntity] = {}
    for kind, match_type, name in components:
        if not kind:
            raise _invalid("the filter has an empty entity type")
        if kind in parts:
            raise _invalid(f"the filter names {kind} twice; give it once")
        if kind not in TYPES:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"there is no entity type {kind!r}")
        parts[kind] = _condition(kind, match_type, name)
    if IP in parts and len(parts) > 1:
        raise _invalid("a filter with an ip has no user and no client-id; use two filters")
    return QuotaFilter(parts.get(USER), parts.get(CLIENT_ID), parts.get(IP), strict)


def _condition(kind: str, match_type: int, name: str | None) -> str | SpecialEntity:
    if match_type == EXACT:
        if name is None:
            raise _invalid(f"the filter has no name for {kind}; give one, or match the default")
        return (address_of(name) or name) if kind == IP else name
    if match_type not in (DEFAULT_MATCH, ANY_MATCH):
        raise _invalid(f"there is no match type {match_type}")
    if name is not None:
        raise _invalid(f"the filter has the name {name!r} for {kind}, but does not match a name")
    return DEFAULT if match_type == DEFAULT_MATCH else ANY


def _invalid(what: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, what)
