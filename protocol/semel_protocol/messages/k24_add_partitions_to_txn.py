"""AddPartitionsToTxn (key 24): adds partitions to a transaction. KIP-98, KIP-588 (v2).

Clients send v0-3 with one transaction. Brokers send v4 and above to each other with many transactions; `verify_only`
verifies that the partitions are in the transaction without adding them (KIP-890). v5 may be answered with
TRANSACTION_ABORTABLE.
"""

from typing import Annotated

from semel_protocol.declaration import Api, ApiKey
from semel_protocol.schema import Int16, Int32, Int64, Message, since, until


class AddPartitionsToTxnRequestTopic(Message, kw_only=True):
    name: str
    partitions: list[Int32]


class AddPartitionsToTxnRequestTransaction(Message, kw_only=True):
    transactional_id: str
    producer_id: Int64
    producer_epoch: Int16
    verify_only: bool = False
    topics: list[AddPartitionsToTxnRequestTopic]


class AddPartitionsToTxnRequest(Message, kw_only=True):
    transactions: Annotated[list[AddPartitionsToTxnRequestTransaction], since(4)] = []
    v3_and_below_transactional_id: Annotated[str, until(3)] = ""
    v3_and_below_producer_id: Annotated[Int64, until(3)] = 0
    v3_and_below_producer_epoch: Annotated[Int16, until(3)] = 0
    v3_and_below_topics: Annotated[list[AddPartitionsToTxnRequestTopic], until(3)] = []


class AddPartitionsToTxnResponsePartition(Message, kw_only=True):
    partition_index: Int32 = 0
    partition_error_code: Int16 = 0


class AddPartitionsToTxnResponseTopic(Message, kw_only=True):
    name: str = ""
    results_by_partition: list[AddPartitionsToTxnResponsePartition] = []


class AddPartitionsToTxnResponseTransaction(Message, kw_only=True):
    transactional_id: str = ""
    topic_results: list[AddPartitionsToTxnResponseTopic] = []


class AddPartitionsToTxnResponse(Message, kw_only=True):
    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, since(4)] = 0
    results_by_transaction: Annotated[list[AddPartitionsToTxnResponseTransaction], since(4)] = []
    results_by_topic_v3_and_below: Annotated[list[AddPartitionsToTxnResponseTopic], until(3)] = []


API = Api(
    ApiKey.ADD_PARTITIONS_TO_TXN,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    declared=(0, 5),
    flexible=3,
    advertised=(0, 3),
)
