"""DescribeTransactions (key 65): state of transactional ids. KIP-664.

The tags from 10000 on are semel's own: the owner of the transactional id, and its fencing history.
"""

from typing import Annotated

from semel_protocol.declaration import Api, ApiKey
from semel_protocol.schema import Int16, Int32, Int64, Message, tag


class DescribeTransactionsRequest(Message, kw_only=True):
    transactional_ids: list[str]


class DescribeTransactionsResponseTopic(Message, kw_only=True):
    topic: str = ""
    partitions: list[Int32] = []


class DescribeTransactionsResponseFence(Message, kw_only=True):
    """One bump of the producer epoch. `reason`: one word; `text`: the event as a sentence."""

    at_ms: Int64 = -1
    reason: str = ""
    old_producer_id: Int64 = -1
    old_epoch: Int16 = -1
    new_producer_id: Int64 = -1
    new_epoch: Int16 = -1
    client_id: str = ""
    client_host: str = ""
    note: str = ""
    text: str = ""


class DescribeTransactionsResponseTransaction(Message, kw_only=True):
    error_code: Int16 = 0
    transactional_id: str = ""
    transaction_state: str = ""
    transaction_timeout_ms: Int32 = 0
    transaction_start_time_ms: Int64 = 0
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    topics: list[DescribeTransactionsResponseTopic] = []
    error_message: Annotated[str | None, tag(10_000)] = None
    client_id: Annotated[str, tag(10_001)] = ""
    client_host: Annotated[str, tag(10_002)] = ""
    last_update_time_ms: Annotated[Int64, tag(10_003)] = -1
    fences: Annotated[list[DescribeTransactionsResponseFence], tag(10_004)] = []
    group_epoch: Annotated[Int32, tag(10_005)] = -1


class DescribeTransactionsResponse(Message, kw_only=True):
    throttle_time_ms: Int32 = 0
    transaction_states: list[DescribeTransactionsResponseTransaction] = []


API = Api(
    ApiKey.DESCRIBE_TRANSACTIONS,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    declared=(0, 0),
    flexible=0,
    advertised=(0, 0),
)
