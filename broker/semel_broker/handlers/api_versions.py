"""The versions of each API that this broker offers: the declared versions, and those that its settings add.

Group version 1 (KIP-848) is the consumer protocol of groups. Its clients need the member epoch in OffsetCommit and
OffsetFetch. Transaction version 2 (KIP-890) spans several APIs. A client that sees the feature finalized sends Produce
v12 or later, TxnOffsetCommit v5 or later and EndTxn v5. The broker therefore offers these versions exactly when the
feature is finalized.
"""

from __future__ import annotations

from semel_protocol.api import APIS
from semel_protocol.messages.k18_api_versions import (
    ApiVersionsResponseFinalizedFeature,
    ApiVersionsResponseSupportedFeature,
)

from semel_broker.config.loading import BrokerConfig

Versions = tuple[int, int]
"""First and last version, as in an ApiVersions response."""

PRODUCE, INIT_PRODUCER_ID, END_TXN, TXN_OFFSET_COMMIT = 0, 22, 26, 28
OFFSET_COMMIT, OFFSET_FETCH, DESCRIBE_GROUPS, LIST_GROUPS = 8, 9, 15, 16
TRANSACTION_VERSION = "transaction.version"
TRANSACTION_VERSION_MAX = 2
LAST_WITH_TRANSACTION_VERSION_2 = {PRODUCE: 13, INIT_PRODUCER_ID: 5, END_TXN: 5, TXN_OFFSET_COMMIT: 6}
GROUP_VERSION = "group.version"
GROUP_VERSION_MAX = 1
LAST_WITH_GROUP_VERSION_1 = {OFFSET_COMMIT: 10, OFFSET_FETCH: 10, DESCRIBE_GROUPS: 6, LIST_GROUPS: 5}
CONSUMER_PROTOCOL = frozenset({68, 69})
"""The APIs of the consumer protocol, which are not offered without it."""
TELEMETRY = frozenset({71, 72})
"""The APIs for metrics of clients (KIP-714), which are offered by a broker that receives them."""
LAST_WITH_TWO_PHASE_COMMIT = {INIT_PRODUCER_ID: 6}
FEATURE_LEVEL_0_SINCE = 4
"""Below this version an ApiVersions response must not list a feature of first level 0 (KAFKA-17011)."""


def offered(config: BrokerConfig, *, has_telemetry: bool = False) -> dict[int, Versions]:
    """API key -> versions, for each API that has an advertised version. has_telemetry: clients may push metrics."""
    versions = {key: api.advertised for key, api in APIS.items() if api.advertised is not None}
    more: list[dict[int, int]] = []
    if has_consumer_protocol(config):
        more.append(LAST_WITH_GROUP_VERSION_1)
    else:
        versions = {key: found for key, found in versions.items() if key not in CONSUMER_PROTOCOL}
    if not has_telemetry:
        versions = {key: found for key, found in versions.items() if key not in TELEMETRY}
    if config.transaction_version >= TRANSACTION_VERSION_MAX:
        more.append(LAST_WITH_TRANSACTION_VERSION_2)
    if config.transaction_two_phase_commit_enable:
        more.append(LAST_WITH_TWO_PHASE_COMMIT)
    for lasts in more:
        versions.update({key: (versions[key][0], last) for key, last in lasts.items()})
    return versions


def has_consumer_protocol(config: BrokerConfig) -> bool:
    return "consumer" in config.group_coordinator_rebalance_protocols


def supported_features(version: int) -> list[ApiVersionsResponseSupportedFeature]:
    """The features that this release supports, for an ApiVersions response of `version`."""
    if version < FEATURE_LEVEL_0_SINCE:
        return []
    return [
        ApiVersionsResponseSupportedFeature(name=name, min_version=0, max_version=level_max)
        for name, level_max in ((GROUP_VERSION, GROUP_VERSION_MAX), (TRANSACTION_VERSION, TRANSACTION_VERSION_MAX))
    ]


def finalized_features(config: BrokerConfig) -> list[ApiVersionsResponseFinalizedFeature]:
    """The feature levels in force in the cluster."""
    levels = {TRANSACTION_VERSION: config.transaction_version}
    if has_consumer_protocol(config):
        levels = {GROUP_VERSION: GROUP_VERSION_MAX, **levels}
    return [
        ApiVersionsResponseFinalizedFeature(name=name, max_version_level=level, min_version_level=level)
        for name, level in levels.items()
    ]
