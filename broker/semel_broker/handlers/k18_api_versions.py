"""ApiVersions (key 18): the APIs that are served, with their versions.

The first request of a connection. A version that is not served is answered in the layout of version 0 with
UNSUPPORTED_VERSION and the version range of this API, so that the client can use a lower version (KIP-511). Every
minimum is 0, also for APIs that refuse version 0: see `semel_protocol.declaration.Api`. v3 adds the features (KIP-584):
`group.version` and `transaction.version`.
"""

from __future__ import annotations

from semel_protocol.api_key import ApiKey
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k18_api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    ApiVersionsResponseApiKey,
)

from semel_broker.authorization.administration import CHANGES_NOTHING
from semel_broker.authorization.requirements import Requirements
from semel_broker.config.loading import BrokerConfig
from semel_broker.context import RequestContext
from semel_broker.handlers.api_versions import finalized_features, offered, supported_features

FEATURES_SINCE = 3
FEATURES_EPOCH = 0
"""The epoch of the finalized features, which do not change while a broker runs."""


async def handle(request: ApiVersionsRequest, ctx: RequestContext) -> ApiVersionsResponse:
    config, version = ctx.broker.config, ctx.api_version
    response = ApiVersionsResponse(api_keys=_rows(config, has_telemetry=ctx.broker.telemetry is not None))
    if version >= FEATURES_SINCE:
        response.supported_features = supported_features(version)
        response.finalized_features_epoch = FEATURES_EPOCH
        response.finalized_features = finalized_features(config)
    return response


def unsupported_version(config: BrokerConfig) -> ApiVersionsResponse:
    """The answer to an ApiVersions request of a version that is not served; encode it as version 0."""
    rows = [row for row in _rows(config, has_telemetry=False) if row.api_key == ApiKey.API_VERSIONS]
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=rows)


def _rows(config: BrokerConfig, *, has_telemetry: bool) -> list[ApiVersionsResponseApiKey]:
    return [
        ApiVersionsResponseApiKey(api_key=key, min_version=first, max_version=last)
        for key, (first, last) in sorted(offered(config, has_telemetry=has_telemetry).items())
    ]


NEEDS: Requirements = ()
NOT_AUDITED = CHANGES_NOTHING
