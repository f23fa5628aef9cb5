"""The versions of each API that this broker offers: those of its declaration, and those that its features add.

Group version 1 (KIP-848) is the consumer protocol of groups. Its clients need the member epoch in OffsetCommit and
OffsetFetch. Transaction version 2 (KIP-890) spans several APIs. A client that sees the feature finalized sends Produce
v12 or later, TxnOffsetCommit v5 or later and EndTxn v5. The broker therefore offers these versions exactly when the
feature is finalized.
"""

from __future__ import annotations

from semel_protocol.api import APIS
from semel_protocol.declaration import Feature, Versions
from semel_protocol.messages.k18_api_versions import (
    ApiVersionsResponseFinalizedFeature,
    ApiVersionsResponseSupportedFeature,
)

from semel_broker.config.loading import BrokerConfig

TRANSACTION_VERSION = "transaction.version"
TRANSACTION_VERSION_MAX = 2
GROUP_VERSION = "group.version"
GROUP_VERSION_MAX = 1
FEATURE_LEVEL_0_SINCE = 4
"""Below this version an ApiVersions response must not list a feature of first level 0 (KAFKA-17011)."""


def offered(config: BrokerConfig, *, has_telemetry: bool = False) -> dict[int, Versions]:
    """API key -> versions, for each API that is offered to clients. has_telemetry: clients may push metrics."""
    switched_on = {
        Feature.GROUP_VERSION_1: has_consumer_protocol(config),
        Feature.TELEMETRY: has_telemetry,
        Feature.TRANSACTION_VERSION_2: config.transaction_version >= TRANSACTION_VERSION_MAX,
        Feature.TWO_PHASE_COMMIT: config.transaction_two_phase_commit_enable,
    }
    features = [feature for feature, is_on in switched_on.items() if is_on]
    return {key: versions for key, api in APIS.items() if (versions := api.offered(features)) is not None}


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
