"""Explains the troubles of a cluster: the facts behind `semel cluster`, `semel group stuck`, `semel txn why` and the
console.

    import time
    from semel import Admin, diagnose

    async with Admin(bootstrap_servers="localhost:9092") as admin:
        health = await diagnose.cluster_health(admin)
        print(diagnose.health_sentence(health))
        found = await diagnose.diagnose_group(admin, "billing")
        if diagnose.is_stuck(found):
            print(*(line.plain for line in diagnose.group_lines(found, round(time.time() * 1000))), sep="\\n")

Functions that ask the cluster take a started `Admin` and return frozen values. From such values, `..._lines` and
`..._sentence` make words, and `..._facts` make plain types, which are the JSON of the commands. Times are in
milliseconds since the epoch (`..._ms`) or seconds (`..._s`), offsets are Kafka's, sizes are in bytes. Calls raise
KafkaError as those of the Admin do, and the exceptions of this module for names and positions that mean nothing; these
are ValueErrors. Requests are Kafka's, so all of it works with Apache Kafka too; transaction groups and the ledger of
fences are semel's own.
"""

from semel.diagnose.groups import PartitionLag, group_facts, lag_of, total_lag
from semel.diagnose.health import (
    BrokerHealth,
    Health,
    HealthVerdict,
    PartitionHealth,
    PartitionStatus,
    cluster_health,
    health_facts,
    health_sentence,
    moves_of,
    state_of,
)
from semel.diagnose.holders import (
    OpenTransaction,
    Verdict,
    by_transaction,
    describe_known,
    describe_transaction,
    may_list_acls,
    open_transaction_facts,
    open_transactions,
)
from semel.diagnose.lines import DiagnosisLine, Tone
from semel.diagnose.log_scan import ScannedBatch, fetch_stored, scan
from semel.diagnose.offset_reset import OffsetChange, ResetRefusedError, plan_reset, reset_facts
from semel.diagnose.partitions import (
    NoSuchPartitionError,
    PartitionEnds,
    PartitionNameError,
    Truncation,
    TruncationRefusedError,
    ends_of,
    known_offsets,
    offsets_at,
    partitions_of,
    plan_truncation,
    topics_of,
)
from semel.diagnose.positions import StartPosition, StartPositionError, start_position
from semel.diagnose.stuck_group import (
    GroupFindings,
    Progress,
    diagnose_group,
    group_findings_facts,
    group_lines,
    is_stuck,
    progress_of,
)
from semel.diagnose.stuck_topic import TopicFindings, diagnose_topic, topic_findings_facts, topic_lines
from semel.diagnose.timeline import (
    OUTCOME_OF,
    Outcome,
    PartitionTimeline,
    Span,
    read_timeline,
    timeline_facts,
    transactional_ids_of,
)
from semel.diagnose.transactions import (
    FENCES_KEPT,
    NO_LEDGER,
    TransactionFindings,
    diagnose_transaction,
    overdue_groups,
    transaction_facts,
    transaction_findings_facts,
    transaction_group_facts,
    transaction_lines,
)

__all__ = [
    "FENCES_KEPT",
    "NO_LEDGER",
    "OUTCOME_OF",
    "BrokerHealth",
    "DiagnosisLine",
    "GroupFindings",
    "Health",
    "HealthVerdict",
    "NoSuchPartitionError",
    "OffsetChange",
    "OpenTransaction",
    "Outcome",
    "PartitionEnds",
    "PartitionHealth",
    "PartitionLag",
    "PartitionNameError",
    "PartitionStatus",
    "PartitionTimeline",
    "Progress",
    "ResetRefusedError",
    "ScannedBatch",
    "Span",
    "StartPosition",
    "StartPositionError",
    "Tone",
    "TopicFindings",
    "TransactionFindings",
    "Truncation",
    "TruncationRefusedError",
    "Verdict",
    "by_transaction",
    "cluster_health",
    "describe_known",
    "describe_transaction",
    "diagnose_group",
    "diagnose_topic",
    "diagnose_transaction",
    "ends_of",
    "fetch_stored",
    "group_facts",
    "group_findings_facts",
    "group_lines",
    "health_facts",
    "health_sentence",
    "is_stuck",
    "known_offsets",
    "lag_of",
    "may_list_acls",
    "moves_of",
    "offsets_at",
    "open_transaction_facts",
    "open_transactions",
    "overdue_groups",
    "partitions_of",
    "plan_reset",
    "plan_truncation",
    "progress_of",
    "read_timeline",
    "reset_facts",
    "scan",
    "start_position",
    "state_of",
    "timeline_facts",
    "topic_findings_facts",
    "topic_lines",
    "topics_of",
    "total_lag",
    "transaction_facts",
    "transaction_findings_facts",
    "transaction_group_facts",
    "transaction_lines",
    "transactional_ids_of",
]
