"""ListTransactions (key 66). KIP-664, KIP-994 duration filter (v1), id pattern (v2)."""

from typing import Annotated

from semel_protocol.declaration import Api, ApiKey
from semel_protocol.schema import Int16, Int32, Int64, Message, since


class ListTransactionsRequest(Message, kw_only=True):
    state_filters: list[str]
    producer_id_filters: list[Int64]
    duration_filter: Annotated[Int64, since(1)] = -1
    transactional_id_pattern: Annotated[str | None, since(2)] = None


class ListTransactionsResponseTransaction(Message, kw_only=True):
    transactional_id: str = ""
    producer_id: Int64 = 0
    transaction_state: str = ""


class ListTransactionsResponse(Message, kw_only=True):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    unknown_state_filters: list[str] = []
    transaction_states: list[ListTransactionsResponseTransaction] = []


API = Api(
    ApiKey.LIST_TRANSACTIONS,
    ListTransactionsRequest,
    ListTransactionsResponse,
    declared=(0, 2),
    flexible=0,
    advertised=(0, 2),
)
