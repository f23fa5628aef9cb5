"""The texts of the tools about transactions: the cause of blocked readers, the history of an id, and the cause of a
stuck group.
"""

from __future__ import annotations

import msgspec
import pytest
from semel.admin import ConsumerGroupDescription, FenceRecord, MemberDescription, ProducerState, TransactionDescription
from semel.diagnose import (
    GroupFindings,
    OpenTransaction,
    PartitionEnds,
    TransactionFindings,
    Verdict,
    describe_transaction,
    group_findings_facts,
    group_lines,
    is_stuck,
    transaction_lines,
)
from semel.diagnose import transaction_facts as transaction_facts
from semel.diagnose.holders import TIMEOUT_NEVER_MS, classify
from semel.diagnose.stuck_group import read_topics, unowned_of
from semel.diagnose.stuck_topic import held_back_lines
from semel.structs import TopicPartition

NOW_MS = 1_700_000_000_000
AT = TopicPartition("orders", 0)
OTHER = TopicPartition("orders", 1)


def transaction(state: str = "Ongoing", **fields: object) -> TransactionDescription:
    given: dict[str, object] = {
        "transactional_id": "shop",
        "state": state,
        "coordinator": 0,
        "producer_id": 7,
        "producer_epoch": 3,
        "timeout_ms": 60_000,
        "start_time_ms": NOW_MS - 12_000,
        "last_update_time_ms": NOW_MS - 12_000,
        "partitions": (AT,),
        "owner": "client 'web-2' at 10.0.0.5",
    }
    return TransactionDescription(**(given | fields))  # type: ignore[arg-type]


def producer(first_offset: int = 731) -> ProducerState:
    return ProducerState(
        producer_id=7, producer_epoch=3, last_timestamp=NOW_MS - 5_000, current_txn_start_offset=first_offset
    )


@pytest.mark.parametrize(
    ("known", "verdict"),
    [
        ([transaction()], Verdict.ONGOING),
        ([transaction(timeout_ms=TIMEOUT_NEVER_MS)], Verdict.TWO_PHASE),
        ([transaction("PrepareCommit")], Verdict.ENDING),
        ([transaction("PrepareAbort")], Verdict.ENDING),
        ([transaction("CompleteCommit", partitions=())], Verdict.HANGING),
        ([transaction("Empty", partitions=(), start_time_ms=None)], Verdict.HANGING),
        ([transaction(partitions=(OTHER,))], Verdict.HANGING),
        ([transaction(partitions=(OTHER,)), transaction(transactional_id="till")], Verdict.ONGOING),
        ([], Verdict.HANGING),
    ],
)
def test_a_transaction_hangs_when_no_coordinator_has_it_open_in_that_partition(
    known: list[TransactionDescription], verdict: Verdict
) -> None:
    assert classify(AT, producer(), known).verdict is verdict


def said(*known: TransactionDescription) -> dict[str, str]:
    return dict(describe_transaction([classify(AT, producer(), known)], NOW_MS))


def test_an_open_transaction_is_explained_with_its_owner_its_end_and_a_safe_action() -> None:
    assert said(transaction()) == {
        "held by": "transactional id shop (producer 7, epoch 3), with its first record here at offset 731",
        "started by": "client 'web-2' at 10.0.0.5",
        "open since": "22:13:08 UTC, 12.0 s ago",
        "ends": (
            "when its producer commits or aborts; otherwise the coordinator aborts it at 22:14:08 UTC, in 48.0 s "
            "(transaction.timeout.ms is 1 min)"
        ),
        "safe": "wait, or abort it, which fences its producer; its records never become visible",
        "": "semel txn abort shop",
    }
    late = said(transaction(start_time_ms=NOW_MS - 61_000))
    assert "at 22:13:19 UTC, at the coordinator's next sweep (transaction.timeout.ms is 1 min)" in late["ends"]


def test_a_decided_transaction_says_to_wait_and_a_two_phase_one_names_its_system() -> None:
    assert "the commit is decided" in said(transaction("PrepareCommit"))["ends"]
    assert "the abort is decided" in said(transaction("PrepareAbort"))["ends"]
    assert said(transaction("PrepareAbort"))["safe"].startswith("wait;")
    two_phase = said(transaction(timeout_ms=TIMEOUT_NEVER_MS))
    assert "it has no timeout" in two_phase["ends"]
    assert "let that system decide" in two_phase["safe"]


def test_a_hanging_one_is_explained_with_the_command_that_ends_it() -> None:
    found = said()
    assert found["held by"] == "producer 7, epoch 3, with its first record here at offset 731"
    assert found["open since"] == "at least 22:13:15 UTC, its last record (5.0 s ago)"
    assert found["ends"].startswith("never by itself")
    assert found["safe"] == "write the abort marker that is missing"
    assert found[""] == "semel txn abort --partition orders:0 --producer-id 7"


def holder(first_offset: int = 731) -> OpenTransaction:
    return classify(AT, producer(first_offset), [transaction()])


def later(producer_id: int, first_offset: int, at: TopicPartition = AT) -> OpenTransaction:
    """A hanging transaction of another producer."""
    state = ProducerState(producer_id=producer_id, producer_epoch=0, current_txn_start_offset=first_offset)
    return classify(at, state, [])


def test_a_partition_held_back_names_its_open_transactions_in_order() -> None:
    found = [holder(), *(later(100 + number, 800 + number) for number in range(7))]
    lines = [line.plain for line in held_back_lines({AT: PartitionEnds(0, 731, 1_200)}, found, NOW_MS)]
    assert lines[1] == "orders-0  last stable offset 731, high watermark 1,200: 469 offsets held back"
    assert lines[2].startswith("  held by     transactional id shop")
    assert sum("behind it" in line for line in lines) == 5
    assert lines[-1].strip() == "and 2 transactions more"
    (_, _, ended) = held_back_lines({AT: PartitionEnds(0, 731, 1_200)}, [], NOW_MS)
    assert "has just ended" in ended.plain


def test_partitions_held_back_by_one_transaction_are_one_paragraph() -> None:
    places = [TopicPartition("orders", number) for number in range(50)]
    one = transaction(partitions=tuple(places))
    found = [each for at in places for each in (classify(at, producer(7), [one]), later(100, 9, at))]
    lines = [line.plain for line in held_back_lines(dict.fromkeys(places, PartitionEnds(0, 7, 12)), found, NOW_MS)]
    assert lines[:3] == ["", "50 partitions  250 offsets held back", "  partitions  orders: 0-49"]
    assert sum("held by" in line for line in lines) == 1
    assert lines[-1] == "  behind it   producer 100 (no transactional id) in 50 of these partitions: hanging"
    assert sum("semel txn abort shop" in line for line in lines) == 1


def fence(old_epoch: int, text: str) -> FenceRecord:
    return FenceRecord(
        at_ms=NOW_MS - 60_000,
        reason="new_instance",
        old_producer_id=7,
        old_epoch=old_epoch,
        new_producer_id=7,
        new_epoch=old_epoch + 1,
        by="client 'web-2' at 10.0.0.5",
        text=text,
    )


def test_why_shows_state_owner_partitions_and_fences_the_latest_first() -> None:
    fences = (fence(1, "epoch 1 gave way"), fence(2, "epoch 2 gave way"))
    assert transaction_lines(TransactionFindings(transaction(fences=fences), {AT: 731, OTHER: None}), NOW_MS) == [
        (
            "shop: Ongoing. Open since 22:13:08 UTC (12.0 s). It waits for its producer to commit or abort; "
            "otherwise the coordinator aborts it in 48.0 s (transaction.timeout.ms = 60000)."
        ),
        "  Producer id 7, epoch 3, coordinated by broker 0.",
        "  Initialised by client 'web-2' at 10.0.0.5.",
        "  Its transaction is open in 2 partitions:",
        "    orders-0: from offset 731",
        "    orders-1: no record of it, or its marker is written",
        "  Fenced epochs, the latest first:",
        "    epoch 2 gave way",
        "    epoch 1 gave way",
        (
            "  A producer with epoch 2 or older gets ProducerFenced: stop it. If both instances are meant to run, give "
            "each its own transactional id."
        ),
    ]


def loop_of(count: int, *clients: str, seconds: int = 4) -> tuple[FenceRecord, ...]:
    """Fences by these clients in turn."""
    return tuple(
        msgspec.structs.replace(
            fence(number, f"epoch {number} gave way"),
            by=f"client '{clients[number % len(clients)]}'",
            at_ms=NOW_MS - 60_000 + number * seconds * 1_000 // max(count - 1, 1),
        )
        for number in range(count)
    )


def test_instances_that_fence_each_other_are_one_line() -> None:
    expired = msgspec.structs.replace(fence(9, "epoch 9 expired"), reason="expired")
    lines = transaction_lines(
        TransactionFindings(transaction(fences=(expired, *loop_of(8, "pod-a", "pod-b"))), {}), NOW_MS
    )
    assert lines[3:7] == [
        "  Fenced 8 times in 4.0 s, in turn by client 'pod-b' and client 'pod-a'.",
        "  The last of these fences, and those before the loop:",
        "    epoch 7 gave way",
        "    epoch 9 expired",
    ]
    assert "give each its own transactional id" in lines[-1]


@pytest.mark.parametrize(
    "fences",
    [loop_of(3, "pod-a", "pod-b"), loop_of(8, "pod-a"), loop_of(4, "a", "b", "c", "d")],
    ids=["a few restarts", "one client that restarts", "instances that replace each other"],
)
def test_fences_that_are_no_loop_have_a_line_each(fences: tuple[FenceRecord, ...]) -> None:
    lines = transaction_lines(TransactionFindings(transaction(fences=fences), {}), NOW_MS)
    assert sum("gave way" in line for line in lines) == len(fences)
    assert not any("in turn" in line for line in lines)


def test_a_full_ledger_says_that_older_fences_are_not_kept() -> None:
    for count, is_full in ((15, False), (16, True)):
        found = transaction(fences=loop_of(count, "pod-a"))
        assert (
            any("keeps the last 16" in line for line in transaction_lines(TransactionFindings(found, {}), NOW_MS))
            is is_full
        )


def test_the_advice_of_why_fits_the_reason_of_the_last_fence() -> None:
    def advice(reason: str) -> str:
        last = msgspec.structs.replace(fence(2, "epoch 2 gave way"), reason=reason)
        found = transaction(fences=(fence(1, "epoch 1 gave way"), last))
        return transaction_lines(TransactionFindings(found, {}), NOW_MS)[-1]

    assert "raise transaction.timeout.ms of the producer" in advice("timed_out")
    assert "both instances" not in advice("timed_out")
    assert "When the reason for it is gone, start a new producer" in advice("admin")
    assert "nothing is to be done" in advice("resumed")
    assert advice("a reason of later").endswith("gets ProducerFenced: stop it.")


def test_why_says_when_the_last_transaction_ended() -> None:
    found = transaction("CompleteCommit", last_update_time_ms=NOW_MS - 90_000)
    (first, *_) = transaction_lines(TransactionFindings(found, {}), NOW_MS)
    assert "was committed at 22:11:50 UTC, 1 min 30 s ago; it waits for nothing" in first


def test_a_coordinator_without_a_ledger_is_named_with_what_is_not_known() -> None:
    found = transaction("CompleteAbort", owner="", last_update_time_ms=None)
    *_, unknown, older = transaction_lines(TransactionFindings(found, {}), NOW_MS)
    assert "Not known: the client that initialised it" in unknown
    assert "Broker 0 keeps no fence ledger: it is Apache Kafka or another Kafka" in unknown
    assert "with an older epoch gets ProducerFenced" in older
    assert transaction_facts(found)["fences"] is None, "unknown, which is not the same as none"
    assert transaction_facts(transaction())["fences"] == []


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("Empty", "has no transaction; it waits"),
        ("PrepareCommit", "The commit is decided and durable"),
        ("PrepareAbort", "The abort is decided and durable"),
        ("PrepareEpochFence", "The abort is decided"),
        ("CompleteCommit", "ago; it waits for nothing"),
        ("CompleteAbort", "ago; it waits for nothing"),
        ("Dead", "being removed"),
    ],
)
def test_why_says_in_every_state_what_the_id_waits_for(state: str, words: str) -> None:
    lines = transaction_lines(TransactionFindings(transaction(state), {}), NOW_MS)
    assert words in lines[0]
    assert lines[-1] == "  It was never fenced."


def group(state: str = "Stable", owned: tuple[TopicPartition, ...] = (AT,)) -> ConsumerGroupDescription:
    member = MemberDescription(member_id="m-1", client_id="c", client_host="h", assignment=owned)
    members = (member,) if state == "Stable" else ()
    return ConsumerGroupDescription("kitchen", state, "consumer", "range", 0, members)


def text_of(
    offset: int | None,
    ends: PartitionEnds,
    *,
    moved: int = 0,
    is_done: bool = False,
    state: str = "Stable",
    open_transactions: tuple[OpenTransaction, ...] = (),
    pending: tuple[OpenTransaction, ...] = (),
) -> str:
    after = {} if offset is None else {AT: offset}
    found = GroupFindings(
        group=group(state),
        before={at: value - moved for at, value in after.items()},
        after=after,
        waited_s=2.0,
        ends={AT: ends},
        done=[AT] if is_done else [],
        open_transactions=open_transactions,
        pending=pending,
    )
    return "\n".join(line.plain for line in group_lines(found, NOW_MS))


@pytest.mark.parametrize(
    ("offset", "ends", "words"),
    [
        (100, PartitionEnds(0, 100, 100), "committed 100 of 100: at the end, nothing to read."),
        (
            40,
            PartitionEnds(0, 100, 100),
            (
                "60 offsets can be read, and none was committed in the 2.0 s of this look; "
                "assigned to m-1 (client 'c' at h): check that member."
            ),
        ),
        (None, PartitionEnds(0, 100, 100), "nothing committed yet; assigned to m-1 (client 'c' at h)"),
        (5, PartitionEnds(10, 100, 100), "below the first offset, 10: records were deleted before they were read"),
        (120, PartitionEnds(0, 100, 100), "beyond the end"),
    ],
)
def test_a_group_that_does_not_move_is_explained(offset: int | None, ends: PartitionEnds, words: str) -> None:
    assert words in text_of(offset, ends)


def dying(state: str, *, before: frozenset[str] | None, count: int = 1) -> GroupFindings:
    """A group whose committed offsets stand still while records follow."""
    places = [TopicPartition("orders", number) for number in range(count)]
    return GroupFindings(
        group=group(state, tuple(places)),
        before=dict.fromkeys(places, 17),
        after=dict.fromkeys(places, 17),
        waited_s=1.0,
        ends={at: PartitionEnds(0, 100, 100) for at in places},
        done=[],
        open_transactions=[],
        pending=[],
        members_before=before,
    )


def test_a_group_whose_consumers_may_have_died_of_a_record_is_shown_that_record() -> None:
    """It may also have been stopped: brokers do not know it, so both are named."""
    found = dying("Empty", before=frozenset())
    assert [line.plain for line in group_lines(found, NOW_MS)] == [
        "kitchen  Empty, 0 members",
        "  Not moving: it has no members. If its consumers were stopped, start them; if they died, see below.",
        (
            "  orders-0  committed 17 of 100: 83 offsets can be read, and none was committed in the 1.0 s "
            "of this look; without a member."
        ),
        "",
        (
            "The next record, orders-0@17, may be the cause if consumers die of it: their logs say. To read it, "
            "and to go past it:"
        ),
        "  read        semel consume orders -p 0 -o 17 -n 1 --json",
        "  go past     semel group reset kitchen orders:0 --by 1",
    ]
    facts = group_findings_facts(found)
    assert facts["suspects"] == [{"topic": "orders", "partition": 0, "offset": 17}]


def test_consumers_that_come_and_go_without_a_commit_are_noticed() -> None:
    """The members are others than when the look began."""
    text = "\n".join(line.plain for line in group_lines(dying("Stable", before=frozenset({"m-0"})), NOW_MS))
    assert (
        "The members have changed since the look began, and no offset was committed. The next record, orders-0@17"
        in text
    )
    assert "to go past it once all consumers are stopped:" in text
    for quiet in (frozenset({"m-1"}), None):
        assert group_findings_facts(dying("Stable", before=quiet))["suspects"] == []


def test_an_empty_group_without_anything_to_read_is_advised_to_start() -> None:
    found = msgspec.structs.replace(dying("Empty", before=frozenset()), ends={AT: PartitionEnds(0, 17, 17)})
    assert "it has no members. Start its consumers." in "\n".join(line.plain for line in group_lines(found, NOW_MS))


def test_the_partitions_of_one_member_are_one_line_with_its_host_and_last_heartbeat() -> None:
    found = dying("Stable", before=None, count=12)
    (member,) = found.group.members
    beating = msgspec.structs.replace(member, silent_ms=1_200)
    found = msgspec.structs.replace(found, group=msgspec.structs.replace(found.group, members=(beating,)))
    assert [line.plain for line in group_lines(found, NOW_MS)][1:] == [
        (
            "  12 partitions (orders: 0-11): 996 offsets can be read, and none was committed in the 1.0 s "
            "of this look; assigned to m-1 (client 'c' at h, last heartbeat 1.2 s ago): check that member."
        )
    ]
    owner = group_findings_facts(found)["partitions"][0]
    assert (owner["owner"], owner["owner_host"], owner["owner_client_id"], owner["owner_silent_ms"]) == (
        "m-1",
        "h",
        "c",
        1_200,
    )


def test_partitions_with_nothing_to_read_are_one_line_and_no_trouble() -> None:
    places = [TopicPartition("orders", number) for number in range(12)]
    found = GroupFindings(
        group=group(owned=tuple(places)),
        before={},
        after=dict.fromkeys(places[:10], 100),
        waited_s=2.0,
        ends={at: PartitionEnds(0, 100, 100) if at in places[:10] else PartitionEnds(0, 0, 0) for at in places},
        done=[],
        open_transactions=[],
        pending=[],
    )
    assert [line.plain for line in group_lines(found, NOW_MS)] == [
        "kitchen  Stable, 1 member",
        "  10 partitions: at the end, nothing to read.",
        "  2 partitions: empty, nothing committed yet.",
    ]
    assert not is_stuck(found)
    behind = msgspec.structs.replace(found, after={places[0]: 40}, ends={places[0]: PartitionEnds(0, 100, 100)})
    assert is_stuck(behind)
    assert [each["progress"] for each in group_findings_facts(behind)["partitions"]] == ["not moving"]


def test_partitions_without_a_member_are_named_although_nothing_is_committed() -> None:
    """Both for a topic to which a member subscribes, and for one of a pattern of which members have partitions."""
    orders, other = ([TopicPartition(topic, number) for number in range(3)] for topic in ("orders", "by_pattern"))
    member = MemberDescription(
        member_id="m-1", client_id="c", client_host="h", subscription=("orders", "gone"), assignment=(other[0],)
    )
    stable = ConsumerGroupDescription("kitchen", "Stable", "consumer", "range", 0, (member,))
    assert read_topics(stable) == {"orders", "gone", "by_pattern"}
    unowned = unowned_of(stable, [*orders, *other])
    assert unowned == {*orders, *other[1:]}
    found = GroupFindings(
        group=stable,
        before={},
        after={orders[1]: 100},
        waited_s=2.0,
        ends={
            orders[0]: PartitionEnds(0, 0, 0),
            orders[1]: PartitionEnds(0, 100, 100),
            orders[2]: PartitionEnds(0, 7, 7),
            other[0]: PartitionEnds(0, 0, 0),
        },
        done=[],
        open_transactions=[],
        pending=[],
        unowned=unowned,
    )
    advice = "no member has this partition. Restart one member of the group: the rebalance assigns the partition."
    assert [line.plain for line in group_lines(found, NOW_MS)] == [
        "kitchen  Stable, 1 member",
        "  by_pattern-0  nothing committed yet; assigned to m-1 (client 'c' at h): check that member.",
        f"  orders-0  nothing committed: {advice}",
        f"  orders-1  committed 100 of 100: {advice}",
        f"  orders-2  nothing committed: {advice}",
    ]
    assert is_stuck(found)
    assert {each["progress"] for each in group_findings_facts(found)["partitions"]} == {"empty", "no owner"}


@pytest.mark.parametrize("state", ["PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"])
def test_no_partition_is_without_a_member_during_a_rebalance(state: str) -> None:
    member = MemberDescription(member_id="m-1", client_id="c", client_host="h", subscription=("orders",))
    assert unowned_of(ConsumerGroupDescription("kitchen", state, "consumer", "", 0, (member,)), [AT]) == frozenset()


def test_partition_that_a_member_is_about_to_get_is_not_without_a_member() -> None:
    member = MemberDescription("m-1", "c", "h", subscription=("orders",), target_assignment=(AT,))
    assert unowned_of(ConsumerGroupDescription("kitchen", "Stable", "consumer", "", 0, (member,)), [AT]) == frozenset()


def test_a_group_that_has_nothing_but_pending_offsets_is_stuck() -> None:
    """Its state is Empty. A semel broker of an earlier release does not list it yet."""
    empty = group("Empty")
    found = GroupFindings(
        group=empty, before={}, after={}, waited_s=0.0, ends={}, done=[], open_transactions=[], pending=[]
    )
    assert not is_stuck(found)
    assert is_stuck(msgspec.structs.replace(found, pending=[holder()]))


def test_a_group_held_back_names_the_open_transaction() -> None:
    said = text_of(731, PartitionEnds(0, 731, 1_200), open_transactions=(holder(),))
    assert "a read_committed consumer cannot read further" in said
    assert "held by     transactional id shop" in said


def test_a_group_with_nothing_but_markers_ahead_is_at_the_end_or_held_back() -> None:
    assert "at the end, only markers and aborted records follow" in text_of(
        95, PartitionEnds(0, 100, 100), is_done=True
    )
    assert "cannot read further" in text_of(
        700, PartitionEnds(0, 731, 1_200), is_done=True, open_transactions=(holder(),)
    )


def test_a_group_that_moves_is_not_called_stuck() -> None:
    assert "moving, 15 offsets a second" in text_of(60, PartitionEnds(0, 100, 100), moved=30)


@pytest.mark.parametrize("state", ["Empty", "PreparingRebalance", "CompletingRebalance"])
def test_a_group_without_members_or_in_a_rebalance_is_explained(state: str) -> None:
    assert "Not moving:" in text_of(40, PartitionEnds(0, 100, 100), state=state)
    assert "Not moving:" not in text_of(40, PartitionEnds(0, 100, 100))


def test_pending_offsets_of_a_transaction_are_reported() -> None:
    said = text_of(100, PartitionEnds(0, 100, 100), pending=(holder(),))
    assert "take effect when it ends" in said
    assert "semel txn abort shop" in said
