"""A coordinator's error as a client of each API version knows it. PURE.

Sources: KIP-588 (PRODUCER_FENCED was INVALID_PRODUCER_EPOCH), KIP-890 (TRANSACTION_ABORTABLE), and the versions of each
request in Kafka's message files.
"""

from __future__ import annotations

from typing import NamedTuple

from semel_protocol.api_key import ApiKey
from semel_protocol.errors import ErrorCode, KafkaError

ALL_VERSIONS = 1 << 15


class Rule(NamedTuple):
    """Versions from `since` and below `until` get `becomes` in place of `code`."""

    code: ErrorCode
    becomes: ErrorCode
    since: int = 0
    until: int = ALL_VERSIONS


def _not_fenced_until(version: int) -> tuple[Rule, ...]:
    return (Rule(ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, until=version),)


RULES: dict[int, tuple[Rule, ...]] = {
    ApiKey.OFFSET_COMMIT: (
        Rule(ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.ILLEGAL_GENERATION, until=9),
        Rule(ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNSUPPORTED_VERSION, until=9),
    ),
    ApiKey.INIT_PRODUCER_ID: _not_fenced_until(4),
    ApiKey.ADD_PARTITIONS_TO_TXN: _not_fenced_until(2),
    ApiKey.ADD_OFFSETS_TO_TXN: _not_fenced_until(2),
    ApiKey.END_TXN: _not_fenced_until(2),
    ApiKey.TXN_OFFSET_COMMIT: (
        *_not_fenced_until(ALL_VERSIONS),
        Rule(ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.ILLEGAL_GENERATION, until=6),
        Rule(ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.ILLEGAL_GENERATION, until=6),
        Rule(ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        Rule(ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        Rule(ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE, since=4),
        Rule(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, until=2),
    ),
}
"""API key -> rules, applied in order. A code without a rule stays as it is."""


def for_version(error: KafkaError, api_key: int, api_version: int) -> KafkaError:
    """`error` as a client of that API version knows it."""
    code = error.code
    for rule in RULES[api_key]:
        if code is rule.code and rule.since <= api_version < rule.until:
            code = rule.becomes
    return error if code is error.code else KafkaError(code, error.message)
