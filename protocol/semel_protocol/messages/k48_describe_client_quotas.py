"""DescribeClientQuotas (key 48): the quotas of clients by a filter. KIP-546."""

from semel_protocol.declaration import Api, ApiKey
from semel_protocol.schema import Float64, Int8, Int16, Int32, Message


class DescribeClientQuotasRequestComponent(Message, kw_only=True):
    """A condition on one part of an entity. `match_type`: 0 this name, 1 the default, 2 any name."""

    entity_type: str
    match_type: Int8
    match: str | None


class DescribeClientQuotasRequest(Message, kw_only=True):
    """`strict`: entities have no other parts than these."""

    components: list[DescribeClientQuotasRequestComponent]
    strict: bool


class DescribeClientQuotasResponseEntity(Message, kw_only=True):
    """A part of an entity; null is the default."""

    entity_type: str
    entity_name: str | None


class DescribeClientQuotasResponseValue(Message, kw_only=True):
    key: str
    value: Float64


class DescribeClientQuotasResponseEntry(Message, kw_only=True):
    entity: list[DescribeClientQuotasResponseEntity]
    values: list[DescribeClientQuotasResponseValue]


class DescribeClientQuotasResponse(Message, kw_only=True):
    """`entries` is null with an error."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    entries: list[DescribeClientQuotasResponseEntry] | None = None


API = Api(
    ApiKey.DESCRIBE_CLIENT_QUOTAS,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    declared=(0, 1),
    flexible=1,
    advertised=(0, 1),
)
