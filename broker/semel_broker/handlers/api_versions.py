"""Which versions of which API this broker offers: the common ones, and those that its settings add.

Transaction version 2 (KIP-890) is one promise over several APIs: a client that sees the feature finalized sends Produce
12, TxnOffsetCommit 5 and EndTxn 5, so they are offered together with it, and only then.
"""

from __future__ import annotations

from semel_protocol.api import APIS
from semel_protocol.messages.k18_api_versions import (
    ApiVersionsResponseFinalizedFeature,
    ApiVersionsResponseSupportedFeature,
)

from semel_broker.config.loading import BrokerConfig

Versions = tuple[int, int]
"""First and last version, as ApiVersions tells them."""

PRODUCE, INIT_PRODUCER_ID, END_TXN, TXN_OFFSET_COMMIT = 0, 22, 26, 28
TRANSACTION_VERSION = "transaction.version"
TRANSACTION_VERSION_MAX = 2
LAST_WITH_TRANSACTION_VERSION_2 = {PRODUCE: 12, INIT_PRODUCER_ID: 5, END_TXN: 5, TXN_OFFSET_COMMIT: 5}
LAST_WITH_TWO_PHASE_COMMIT = {INIT_PRODUCER_ID: 6}
FEATURE_LEVEL_0_SINCE = 4
"""ApiVersions below this may not list a feature whose first level is 0: old clients fail on it (KAFKA-17011)."""


def offered(config: BrokerConfig) -> dict[int, Versions]:
    """API key -> versions, for every API that has any."""
    versions = {key: api.advertised for key, api in APIS.items() if api.advertised is not None}
    more: list[dict[int, int]] = []
    if config.transaction_version >= TRANSACTION_VERSION_MAX:
        more.append(LAST_WITH_TRANSACTION_VERSION_2)
    if config.transaction_two_phase_commit_enable:
        more.append(LAST_WITH_TWO_PHASE_COMMIT)
    for lasts in more:
        versions.update({key: (versions[key][0], last) for key, last in lasts.items()})
    return versions


def supported_features(version: int) -> list[ApiVersionsResponseSupportedFeature]:
    """What a broker of this release could finalize, for an ApiVersions response of `version`."""
    if version < FEATURE_LEVEL_0_SINCE:
        return []
    return [
        ApiVersionsResponseSupportedFeature(
            name=TRANSACTION_VERSION, min_version=0, max_version=TRANSACTION_VERSION_MAX
        )
    ]


def finalized_features(config: BrokerConfig) -> list[ApiVersionsResponseFinalizedFeature]:
    """What the cluster has agreed on."""
    level = config.transaction_version
    return [
        ApiVersionsResponseFinalizedFeature(name=TRANSACTION_VERSION, max_version_level=level, min_version_level=level)
    ]
