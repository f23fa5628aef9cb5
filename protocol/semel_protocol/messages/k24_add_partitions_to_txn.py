"""AddPartitionsToTxn (key 24): enrol partitions in the transaction. KIP-98, KIP-588 (v2)."""

from semel_protocol.schema import Int16, Int32, Int64, Message


class AddPartitionsToTxnRequestTopic(Message, kw_only=True):
    name: str
    partitions: list[Int32]


class AddPartitionsToTxnRequest(Message, kw_only=True):
    v3_and_below_transactional_id: str
    v3_and_below_producer_id: Int64
    v3_and_below_producer_epoch: Int16
    v3_and_below_topics: list[AddPartitionsToTxnRequestTopic]


class AddPartitionsToTxnResponsePartition(Message, kw_only=True):
    partition_index: Int32 = 0
    partition_error_code: Int16 = 0


class AddPartitionsToTxnResponseTopic(Message, kw_only=True):
    name: str = ""
    results_by_partition: list[AddPartitionsToTxnResponsePartition] = []


class AddPartitionsToTxnResponse(Message, kw_only=True):
    throttle_time_ms: Int32 = 0
    results_by_topic_v3_and_below: list[AddPartitionsToTxnResponseTopic] = []
