"""DescribeTransactions (key 65): state of transactional ids. KIP-664."""

from semel_protocol.schema import Int16, Int32, Int64, Message


class DescribeTransactionsRequest(Message, kw_only=True):
    transactional_ids: list[str]


class DescribeTransactionsResponseTopic(Message, kw_only=True):
    topic: str = ""
    partitions: list[Int32] = []


class DescribeTransactionsResponseTransaction(Message, kw_only=True):
    error_code: Int16 = 0
    transactional_id: str = ""
    transaction_state: str = ""
    transaction_timeout_ms: Int32 = 0
    transaction_start_time_ms: Int64 = 0
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    topics: list[DescribeTransactionsResponseTopic] = []


class DescribeTransactionsResponse(Message, kw_only=True):
    throttle_time_ms: Int32 = 0
    transaction_states: list[DescribeTransactionsResponseTransaction] = []
