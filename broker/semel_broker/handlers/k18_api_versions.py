"""ApiVersions (key 18): which APIs are served, in which versions.

Answered before anything else on a connection. A version that is not served is answered in the layout of version 0 with
UNSUPPORTED_VERSION and this API's own range, so that the client can step down (KIP-511). Every minimum is 0, also where
version 0 is refused: see `semel_protocol.api.Api`. No features are finalized, so the tag buffer stays empty.
"""

from __future__ import annotations

from functools import cache

from semel_protocol.api import APIS
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k18_api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    ApiVersionsResponseApiKey,
)

from semel_broker.context import RequestContext

_KEY = 18


def handle(request: ApiVersionsRequest, ctx: RequestContext) -> ApiVersionsResponse:
    return _served()


def unsupported_version() -> ApiVersionsResponse:
    """The answer, to be encoded as version 0, to an ApiVersions request of a version that is not served."""
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[_row(_KEY)])


@cache
def _served() -> ApiVersionsResponse:
    from semel_broker.handlers import HANDLERS  # the shelf imports this handler

    return ApiVersionsResponse(api_keys=[_row(key) for key in sorted(HANDLERS)])


def _row(key: int) -> ApiVersionsResponseApiKey:
    advertised = APIS[key].advertised
    assert advertised is not None, f"API {key} is served but not advertised"
    return ApiVersionsResponseApiKey(api_key=key, min_version=advertised[0], max_version=advertised[1])
