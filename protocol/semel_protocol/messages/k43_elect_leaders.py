"""ElectLeaders (key 43): elects the preferred replicas, or a replica outside the ISR. KIP-183, KIP-460 (v1).

A partition whose leader is already the one wanted answers ELECTION_NOT_NEEDED.
"""

from typing import Annotated

from semel_protocol.declaration import Api, ApiKey
from semel_protocol.schema import Int8, Int16, Int32, Message, since

PREFERRED = 0
"""Election type: the first of the replicas, if it is in the ISR."""
UNCLEAN = 1
"""Election type: any live replica if the ISR has none. Records that only the other replicas have are lost."""


class ElectLeadersRequestTopic(Message, kw_only=True):
    topic: str
    partitions: list[Int32]


class ElectLeadersRequest(Message, kw_only=True):
    """`topic_partitions`: None for all partitions."""

    election_type: Annotated[Int8, since(1)] = PREFERRED
    topic_partitions: list[ElectLeadersRequestTopic] | None
    timeout_ms: Int32 = 60000


class ElectLeadersResponsePartition(Message, kw_only=True):
    partition_id: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None


class ElectLeadersResponseTopic(Message, kw_only=True):
    topic: str = ""
    partition_result: list[ElectLeadersResponsePartition] = []


class ElectLeadersResponse(Message, kw_only=True):
    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, since(1)] = 0
    replica_election_results: list[ElectLeadersResponseTopic] = []


API = Api(
    ApiKey.ELECT_LEADERS, ElectLeadersRequest, ElectLeadersResponse, declared=(0, 2), flexible=2, advertised=(0, 2)
)
