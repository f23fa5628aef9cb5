"""AlterClientQuotas (key 49): set and remove quotas of clients. KIP-546."""

from semel_protocol.declaration import Api, ApiKey
from semel_protocol.schema import Float64, Int16, Int32, Message


class AlterClientQuotasRequestEntity(Message, kw_only=True):
    """A part of an entity; null is the default."""

    entity_type: str
    entity_name: str | None


class AlterClientQuotasRequestOp(Message, kw_only=True):
    """`value` counts only if the quota is not removed."""

    key: str
    value: Float64
    remove: bool


class AlterClientQuotasRequestEntry(Message, kw_only=True):
    entity: list[AlterClientQuotasRequestEntity]
    ops: list[AlterClientQuotasRequestOp]


class AlterClientQuotasRequest(Message, kw_only=True):
    entries: list[AlterClientQuotasRequestEntry]
    validate_only: bool


class AlterClientQuotasResponseEntity(Message, kw_only=True):
    """A part of an entity; null is the default."""

    entity_type: str
    entity_name: str | None


class AlterClientQuotasResponseEntry(Message, kw_only=True):
    error_code: Int16 = 0
    error_message: str | None = None
    entity: list[AlterClientQuotasResponseEntity]


class AlterClientQuotasResponse(Message, kw_only=True):
    """A result for each entry of the request."""

    throttle_time_ms: Int32 = 0
    entries: list[AlterClientQuotasResponseEntry] = []


API = Api(
    ApiKey.ALTER_CLIENT_QUOTAS,
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    declared=(0, 1),
    flexible=1,
    advertised=(0, 1),
)
