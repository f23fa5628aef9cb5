"""ApiVersions (key 18): which APIs are served, in which versions.

Answered before anything else on a connection. A version that is not served is answered in the layout of version 0 with
UNSUPPORTED_VERSION and this API's own range, so that the client can step down (KIP-511). Every minimum is 0, also where
version 0 is refused: see `semel_protocol.api.Api`. From v3 on the features are told (KIP-584): `transaction.version`.
"""

from __future__ import annotations

from functools import cache

from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k18_api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    ApiVersionsResponseApiKey,
)

from semel_broker.config.loading import BrokerConfig
from semel_broker.context import RequestContext
from semel_broker.handlers.api_versions import finalized_features, offered, supported_features

_KEY = 18
FEATURES_SINCE = 3
FEATURES_EPOCH = 0
"""Of the finalized features: they do not change while a broker runs."""


def handle(request: ApiVersionsRequest, ctx: RequestContext) -> ApiVersionsResponse:
    config, version = ctx.broker.config, ctx.api_version
    response = ApiVersionsResponse(api_keys=_rows(config))
    if version >= FEATURES_SINCE:
        response.supported_features = supported_features(version)
        response.finalized_features_epoch = FEATURES_EPOCH
        response.finalized_features = finalized_features(config)
    return response


def unsupported_version(config: BrokerConfig) -> ApiVersionsResponse:
    """The answer, to be encoded as version 0, to an ApiVersions request of a version that is not served."""
    rows = [row for row in _rows(config) if row.api_key == _KEY]
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=rows)


def _rows(config: BrokerConfig) -> list[ApiVersionsResponseApiKey]:
    versions = offered(config)
    return [
        ApiVersionsResponseApiKey(api_key=key, min_version=versions[key][0], max_version=versions[key][1])
        for key in _served()
    ]


@cache
def _served() -> list[int]:
    from semel_broker.handlers import HANDLERS  # the shelf imports this handler

    return sorted(HANDLERS)
