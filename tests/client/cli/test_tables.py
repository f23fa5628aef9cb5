"""Tables: at the width of a terminal no word or number is broken or cut; a pipe gets rows with tabs."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.text import Text
from semel import TopicPartition
from semel import cli as package
from semel.admin import (
    Acl,
    ConfigDescription,
    ConfigEntry,
    ConfigResourceType,
    ConfigSource,
    ConsumerGroupDescription,
    FenceRecord,
    MemberDescription,
    Operation,
    PatternType,
    Permission,
    ProducerState,
    QuotaEntity,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    TransactionDescription,
    TransactionGroupDescription,
    TransactionGroupMember,
    TransactionListing,
    UserScramCredentialsDescription,
)
from semel.cli.acl import acl_table
from semel.cli.cluster import health_tables
from semel.cli.config import facts_of, resources_table, settings_table
from semel.cli.group.commands import group_table
from semel.cli.group.commands import groups_table as consumer_groups_table
from semel.cli.group.commands import members_table as consumers_table
from semel.cli.group.reset import moves_table
from semel.cli.quota import quota_table
from semel.cli.top.frame import tables_of
from semel.cli.topic.commands import topic_tables, topics_table
from semel.cli.topic.reassign import plan_table
from semel.cli.txn.commands import _plain, fences_table, hanging_table, ids_table
from semel.cli.txn.groups import groups_table, members_table
from semel.cli.txn.timeline import spans_table
from semel.cli.user.commands import user_table
from semel.diagnose import (
    BrokerHealth,
    Health,
    OffsetChange,
    Outcome,
    PartitionHealth,
    PartitionLag,
    PartitionStatus,
    PartitionTimeline,
    Span,
    group_facts,
)
from semel.diagnose.holders import classify
from semel.structs import BrokerMetadata
from semel_protocol.tables import Table, wrapped

WIDTHS = (80, 120)
NOW_MS = 1_700_000_000_000
LARGE = 123_456_789_012
TOPIC = "t" * 60
ID = "spark/" + "i" * 74
OWNER = "Spark driver of sink 'flights' on vm-7 (process 12345, blockmgr-3f9d0c1a), client 'spark' at 10.20.30.40"
MEMBER = "semel-84dcd039-d50b-4c09-bb85-3e87344e96c1"
HOST = "broker-with-a-long-name-{}.kafka.internal.example.com"
AT = TopicPartition(TOPIC, 117)


def transaction(**fields: Any) -> TransactionDescription:
    given: dict[str, Any] = {
        "transactional_id": ID,
        "state": "PrepareCommit",
        "coordinator": 3,
        "producer_id": LARGE,
        "producer_epoch": 32_000,
        "timeout_ms": 60_000,
        "start_time_ms": NOW_MS - 100_000_000,
        "partitions": (AT,),
        "owner": OWNER,
    }
    return TransactionDescription(**(given | fields))


def of_topics() -> list[Table]:
    row = {"topic": TOPIC, "partitions": 10_000, "replicas": 3, "offsets_held": LARGE}
    return [topics_table([row, row | {"topic": "short", "offsets_held": None}])]


def of_a_topic() -> list[Table]:
    row = {
        "partition": 9_999,
        "leader": 1,
        "leader_epoch": 12_345,
        "start_offset": LARGE - 1,
        "end_offset": LARGE,
        "replicas": [1, 2, 3],
        "in_sync": [1, 2],
        "state": "under-replicated",
        "moving_to": [1, 2, 4],
    }
    setting = {"name": "follower.replication.throttled.replicas", "value": "0:1,1:2,2:3," * 9, "from": "topic"}
    facts = {"topic": TOPIC, "internal": True, "partitions": [row], "settings": [setting]}
    return topic_tables(facts)


def of_groups() -> list[Table]:
    row = {"group": "g" * 60, "state": "CompletingRebalance", "members": 12, "lag": LARGE, "assignor": "sticky"}
    row["protocol"] = "classic"
    return [consumer_groups_table([row, row | {"group": "short", "assignor": "", "lag": None}])]


def of_members() -> list[Table]:
    """Two members of the consumer protocol, one of which waits for the other."""
    pattern, partitions = "^(flights|departures|arrivals)[.]eu-.*", [TopicPartition(TOPIC, each) for each in range(12)]
    first = MemberDescription(
        member_id=MEMBER,
        client_id="c" * 30,
        client_host=HOST.format(1),
        group_instance_id="i" * 30,
        subscription=(TOPIC,),
        assignment=tuple(partitions),
        rack_id="eu-west-1a",
        member_epoch=12_344,
        target_assignment=tuple(partitions[:4]),
    )
    second = MemberDescription(
        member_id="short",
        client_id="c",
        client_host="h",
        pattern=pattern,
        member_epoch=12_345,
        target_assignment=tuple(partitions[4:]),
    )
    members = (first, second)
    return [
        consumers_table(
            ConsumerGroupDescription(
                "g",
                "Reconciling",
                "consumer",
                "uniform",
                0,
                members,
                "consumer",
                group_epoch=12_345,
                assignment_epoch=12_345,
            )
        )
    ]


def of_a_group() -> list[Table]:
    member = MemberDescription(member_id=MEMBER, client_id="c", client_host=HOST.format(1), assignment=(AT,))
    group = ConsumerGroupDescription("g" * 60, "Stable", "consumer", "range", 0, (member,))
    other = TopicPartition("short", 0)
    lags = [
        PartitionLag(at=AT, committed=LARGE, start=0, end=2 * LARGE),
        PartitionLag(at=other, committed=None, start=5, end=LARGE),
    ]
    return [group_table(group_facts(group, lags))]


def of_a_cluster() -> list[Table]:
    places = (1, 2, 3)
    partitions = tuple(
        PartitionHealth(TopicPartition(TOPIC, number), state, 1, places, (1,), (2, 3))
        for number, state in enumerate(PartitionStatus)
    )
    brokers = tuple(
        BrokerHealth(node, BrokerMetadata(node, HOST.format(node), 19_092, "eu-west-1a"), 100_000, 100_000, 300_000, 9)
        for node in places
    )
    return health_tables(Health("cbp3cvqcZP21uMNHg_uD9A", 1, brokers, partitions, (), ()))


def of_ids() -> list[Table]:
    rows = [transaction(), transaction(transactional_id="short", state="Empty", owner="")]
    listed = [TransactionListing(each.transactional_id, LARGE, each.state, 3) for each in rows]
    return [ids_table([_plain(row, found, NOW_MS) for row, found in zip(listed, rows, strict=True)])]


def of_fences() -> list[Table]:
    fence = FenceRecord(
        at_ms=NOW_MS - 100_000_000,
        reason="admin",
        old_producer_id=LARGE,
        old_epoch=31_998,
        new_producer_id=LARGE,
        new_epoch=31_999,
        by=OWNER,
        note="the pod of this instance is dead since yesterday, and its node is gone",
    )
    return [fences_table(transaction(fences=(fence, fence)), NOW_MS)]


def of_hanging() -> list[Table]:
    state = ProducerState(
        producer_id=LARGE, producer_epoch=32_000, last_timestamp=NOW_MS - 100_000_000, current_txn_start_offset=LARGE
    )
    return [hanging_table([classify(AT, state, [transaction(state="Empty", partitions=())])], NOW_MS)]


def of_transaction_groups() -> list[Table]:
    member = TransactionGroupMember(
        transactional_id=ID,
        producer_id=LARGE,
        producer_epoch=32_000,
        group_epoch=12_345,
        state="CompleteCommit",
        start_time_ms=NOW_MS - 100_000_000,
    )
    found = TransactionGroupDescription(
        name="spark-sink-" + "s" * 50,
        epoch=12_345,
        state="Aborted",
        coordinator=3,
        owner=OWNER,
        client="client 'semel-spark-sink' at 10.20.30.40",
        timeout_ms=60_000,
        began_ms=NOW_MS - 100_000_000,
        last_update_time_ms=NOW_MS - 90_000_000,
        decided_token="query 3f9d0c1a-55aa-4bb4-9c9e-1234567890ab batch 123456",
        decided_epoch=12_344,
        note="its driver was replaced by another one",
        members=(member, member),
    )
    return [groups_table([found], NOW_MS), members_table(found, NOW_MS)]


def of_spans() -> list[Table]:
    span = Span(
        producer_id=7,
        producer_epoch=32_000,
        outcome=Outcome.COMMITTED,
        pieces=((LARGE, LARGE + 9),),
        record_count=LARGE,
        first_timestamp=NOW_MS,
        marker_offset=LARGE + 10,
        marker_timestamp=NOW_MS + 61_000,
    )
    given: dict[str, Any] = {"log_start": 0, "start": LARGE, "end": LARGE + 11, "last_stable_offset": LARGE}
    return [spans_table(PartitionTimeline(partition=AT, spans=[span], names={7: ID}, **given))]


def of_a_reset() -> list[Table]:
    return [moves_table("g" * 60, [OffsetChange(at=AT, committed=LARGE, wanted=-90, offset=0, end=LARGE)])]


def of_settings() -> list[Table]:
    long = ConfigEntry(
        "log.cleaner.delete.retention.ms", "v" * 70, ConfigSource.STATIC_BROKER, documentation="Words. " * 30
    )
    short = ConfigEntry("port", None, ConfigSource.DEFAULT, is_read_only=True)
    described = ConfigDescription(ConfigResourceType.BROKER, "7", {long.name: long, short.name: short})
    made = [facts_of(described, names, all_settings=True) for names in ((), ("port",))]
    return [settings_table(each) for each in made]


def of_acls() -> list[Table]:
    entry = Acl(
        ResourceType.TRANSACTIONAL_ID,
        ID,
        PatternType.PREFIXED,
        "User:" + "a" * 60,
        "2001:db8:0000:0000:0000:0000:0000:0001",
        Operation.IDEMPOTENT_WRITE,
        Permission.ALLOW,
    )
    return [acl_table([entry, entry])]


def of_users() -> list[Table]:
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 16_384)
    return [user_table([UserScramCredentialsDescription("u" * 60, (info, info))])]


def of_quotas() -> list[Table]:
    both = QuotaEntity(user="a" * 60, client_id=ID)
    return [quota_table({both: {"controller_mutation_rate": 0.125, "producer_byte_rate": 1e15}})]


def of_resources() -> list[Table]:
    return [resources_table([{"type": "client-metrics", "name": ID}, {"type": "broker", "name": "1"}])]


def of_top() -> list[Table]:
    facts = {
        "cluster_id": "c" * 22,
        "at": "12:00:00",
        "brokers": [
            {
                "broker": 2_147_483_647,
                "controller": True,
                "leads": 1_000_000,
                "records_per_second": 1e9,
                "address": "b" * 60 + ":65535",
            }
        ],
        "topics": [
            {
                "topic": TOPIC,
                "records_per_second": 0.1,
                "partitions": 10_000,
                "without_leader": 10_000,
                "end_offsets": 10**18,
            }
        ],
        "transactions": [
            {
                "transactional_id": ID,
                "open_for_ms": 10**9,
                "partitions": 10_000,
                "state": "PrepareCommit",
                "opened_by": "o" * 60,
            }
        ],
        "held_back": [{"topic": TOPIC, "partition": 9_999, "offsets": 10**18, "held_by": ID, "verdict": "hanging"}],
        "groups": [{"group": ID, "lag": 10**18, "members": 10_000, "state": "PreparingRebalance"}],
    }
    return tables_of(facts)


def of_a_plan() -> list[Table]:
    return [plan_table({AT: (1, 2, 3)}, {AT: (4, 5, 6)})]


MAKERS: Sequence[Callable[[], list[Table]]] = (
    of_topics,
    of_a_topic,
    of_groups,
    of_a_group,
    of_members,
    of_a_cluster,
    of_ids,
    of_fences,
    of_hanging,
    of_transaction_groups,
    of_spans,
    of_a_reset,
    of_settings,
    of_acls,
    of_users,
    of_quotas,
    of_a_plan,
    of_resources,
    of_top,
)


def assert_whole(lines: Sequence[str], made: Table, width: int) -> None:
    """Every word of every cell stands whole in a line, the numbers of a row in one line; only single words may be wider
    than the terminal.
    """
    words = [line.split() for line in lines]
    for line in lines:
        assert len(line) <= width or len(line.split()) == 1, f"wider than {width}: {line!r}"
    for cells in made.added:
        texts = ["-" if cell in (None, "") else f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in cells]
        for word in (word for text in texts for word in text.split() if text != "-"):
            assert any(word in line for line in words), (word, lines)
        numbers = [text for name, text in zip(made.columns, texts, strict=True) if name in made.right and text != "-"]
        assert any(_in_order(numbers, line) for line in words), (numbers, lines)


def _in_order(wanted: Sequence[str], line: Sequence[str]) -> bool:
    left = iter(line)
    return all(each in left for each in wanted)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("maker", MAKERS, ids=lambda maker: maker.__name__)
def test_no_word_or_number_of_a_table_is_broken_or_cut(maker: Callable[[], list[Table]], width: int) -> None:
    for made in maker():
        assert_whole([line.plain for line in made.lines(width)], made, width)


@pytest.mark.parametrize("maker", MAKERS, ids=lambda maker: maker.__name__)
def test_a_pipe_gets_one_line_a_row_with_as_many_cells_as_headers(maker: Callable[[], list[Table]]) -> None:
    for made in maker():
        header, *rows = list(made.rows())[1 if made.title else 0 :]
        assert header.split("\t") == list(made.columns)
        assert len(rows) == len(made.added)
        for row, cells in zip(rows, made.added, strict=True):
            shown = row.split("\t")
            assert shown == ["-" if cell in (None, "") else str(cell) for cell in cells]
            assert all(shown)


def test_every_table_of_the_commands_is_laid_out_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions that make a Table: those called by the makers above are all that the package has."""
    makers = set()
    folder = Path(package.__file__).parent
    for file in folder.rglob("*.py"):
        for function in ast.walk(ast.parse(file.read_text())):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                calls = [each.func for each in ast.walk(function) if isinstance(each, ast.Call)]
                if any(isinstance(call, ast.Name) and call.id == "Table" for call in calls):
                    makers.add((str(file.relative_to(folder)), function.name))
    called = set()
    init = Table.__init__

    def noting(self: Table, *args: Any, **options: Any) -> None:
        code = sys._getframe(1).f_code
        called.add((str(Path(code.co_filename).relative_to(folder)), code.co_name))
        init(self, *args, **options)

    monkeypatch.setattr(Table, "__init__", noting)
    for maker in MAKERS:
        maker()
    assert makers == called


def test_a_row_that_fits_stands_on_one_line_with_its_columns_aligned() -> None:
    made = Table("", "topic", "partitions", "note", right=("partitions",), below=("note",))
    made.add_row("orders", 12, "a few words")
    made.add_row("payments", 1_234, None)
    assert [line.plain for line in made.lines(80)] == [
        "topic     partitions  note",
        "orders            12  a few words",
        "payments       1,234  -",
    ]
    assert [line.plain for line in made.lines(32)] == [
        "topic     partitions",
        "orders            12",
        "  note a few words",
        "payments       1,234",
    ]
    assert list(made.rows()) == ["topic\tpartitions\tnote", "orders\t12\ta few words", "payments\t1234\t-"]


def test_a_name_that_is_too_long_stands_on_a_line_of_its_own() -> None:
    made = Table("", "topic", "records", right=("records",))
    made.add_row("n" * 40, LARGE)
    made.add_row("n" * 40, 8)
    made.add_row("short", 7)
    assert [line.plain for line in made.lines(40)] == [
        "topic                            records",
        "n" * 40,
        "                         123,456,789,012",
        "                                       8",
        "short                                  7",
    ]


def test_a_text_is_broken_at_spaces_alone_and_a_command_not_at_all() -> None:
    said = Text("  ends  when its producer commits")
    assert [line.plain for line in wrapped(said, 20, 8)] == ["  ends  when its", "        producer", "        commits"]
    assert [line.plain for line in wrapped(Text("x" * 30 + " y"), 20, 2)] == ["x" * 30, "  y"]
    assert [line.plain for line in wrapped(Text("held by  " + "x" * 18 + " y"), 20, 9)] == [
        "held by",
        "  " + "x" * 18,
        "         y",
    ]
    command = Text("semel txn abort " + "i" * 30, no_wrap=True)
    assert wrapped(command, 20) == [command]
