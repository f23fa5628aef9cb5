"""`semel cluster`, `semel topic describe`, `reassign` and `elect` against a scripted cluster: the output for a user."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from click.testing import CliRunner, Result
from client.fake_cluster import NOBODY, FakeCluster
from semel import Admin
from semel._command_line.client_start import started
from semel.cli.main import main
from semel.cli.topic import reassign as moves
from semel.diagnose import HealthVerdict, cluster_health, moves_of
from semel.errors import KafkaTimeoutError
from semel.structs import TopicPartition
from semel_protocol.errors import ErrorCode

TROUBLE = 3
T0, T1, T2 = (TopicPartition("t", index) for index in range(3))


class ClusterShell:
    """Commands run in a thread, so that the cluster can answer them."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster

    async def run(self, *arguments: str, text: str | None = None) -> Result:
        env = {"SEMEL_BOOTSTRAP_SERVER": self.cluster.bootstrap}
        return await asyncio.to_thread(CliRunner().invoke, main, arguments, input=text, env=env)

    async def __call__(self, *arguments: str, code: int = 0) -> str:
        done = await self.run(*arguments)
        assert done.exit_code == code, (done.output, done.exception)
        return done.output


@pytest.fixture
async def cluster(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeCluster]:
    """Topic `t`: partition 0 is led by broker 1, 1 by 2, 2 by 3; each on all three. Topic `u`: on 1 and 2."""
    monkeypatch.setattr(moves, "POLL_SECONDS", 0.005)
    topics = {"t": [(1, 2, 3), (2, 3, 1), (3, 1, 2)], "u": [(1, 2)]}
    async with FakeCluster(topics, racks={1: "a", 2: "b"}) as made:
        yield made


@pytest.fixture
def semel(cluster: FakeCluster) -> ClusterShell:
    return ClusterShell(cluster)


def cells(out: str, first: str) -> list[str]:
    """The row of a table that begins with this cell."""
    return next(line.split() for line in out.splitlines() if line.split()[:1] == [first])


# --- semel cluster ---


async def test_a_healthy_cluster_is_shown_with_the_partitions_of_each_broker(
    semel: ClusterShell, cluster: FakeCluster
) -> None:
    out = await semel("cluster")
    address = cluster.nodes[1].address
    assert cells(out, "1") == ["1", "controller", "2", "2", "4", "4", "a", address]
    assert cells(out, "3") == ["3", "-", "1", "1", "3", "3", "-", cluster.nodes[3].address]
    assert out.strip().splitlines()[-1] == (
        "Healthy: 4 partitions on 3 brokers, each with a leader and all its replicas in sync."
    )


async def test_an_offline_broker_degrades_the_cluster(semel: ClusterShell, cluster: FakeCluster) -> None:
    await cluster.down(3)
    out = await semel("cluster", code=TROUBLE)
    assert cells(out, "3") == ["3", "-", "0", "1", "3", "0", "-", "offline"]
    assert cells(out, "t-2") == ["t-2", "1", "3,1,2", "1,2", "3", "under-replicated"]
    assert "u-0" not in out
    assert out.strip().splitlines()[-1] == (
        "Degraded: 3 of 4 partitions have replicas that are not in sync (t-0, t-1, t-2): broker 3 is offline. "
        "All partitions can be read and written."
    )


async def test_a_partition_without_leader_is_an_exit_status(semel: ClusterShell, cluster: FakeCluster) -> None:
    place = cluster.places[T1]
    place.leader, place.isr = NOBODY, [3]
    await cluster.down(3)
    out = await semel("cluster", code=TROUBLE)
    assert cells(out, "t-1") == ["t-1", "none", "2,3,1", "3", "2,3,1", "offline"]
    assert "Offline: 1 of 4 partitions has no leader (t-1). Start broker 3." in out


async def test_a_partition_whose_replica_answers_waits_for_its_election(
    semel: ClusterShell, cluster: FakeCluster
) -> None:
    """As right after an outage of etcd: the user need not repair a broker that runs."""
    place = cluster.places[T1]
    place.leader, place.isr = NOBODY, [2, 3]
    await cluster.down(3)
    out = await semel("cluster", code=TROUBLE)
    assert out.strip().endswith(
        "Offline: 1 of 4 partitions has no leader (t-1). Broker 2 answers and can lead: check again in a few seconds."
    )


async def test_a_killed_broker_is_reported_before_its_session_expires(
    semel: ClusterShell, cluster: FakeCluster
) -> None:
    await cluster.nodes[3].close()
    out = await semel("cluster", code=TROUBLE)
    assert f"{cluster.nodes[3].address} (no answer)" in out
    assert cells(out, "t-2")[-4:] == ["leader", "does", "not", "answer"]
    assert "Offline: 1 of 4 partitions has a leader that does not answer (t-2): broker 3." in out
    told = json.loads(await semel("cluster", "--json", code=TROUBLE))
    assert [each["answers"] for each in told["brokers"]] == [True, True, False]
    assert "127.0.0.1" in told["brokers"][2]["error"]
    cluster.places[T2].leader = 1
    out = await semel("cluster", code=TROUBLE)
    assert out.strip().endswith("Degraded: broker 3 does not answer. 4 partitions can be read and written.")


@pytest.mark.parametrize(
    ("left_ms", "leader", "words"),
    [
        (0, NOBODY, "without it no broker may lead: nothing can be read or written"),
        (3_100, 1, "their sessions expire in 3 s, and then no broker may lead"),
    ],
)
async def test_an_unreachable_store_is_distinguished_from_offline_brokers(
    semel: ClusterShell, cluster: FakeCluster, left_ms: int, leader: int, words: str
) -> None:
    cluster.sessions = dict.fromkeys(cluster.nodes, left_ms)
    for place in cluster.places.values():
        place.leader, place.isr = leader, [3]
    out = await semel("cluster", code=TROUBLE)
    assert out.strip().splitlines()[-1] == (
        f"Offline: brokers 1, 2, 3 answer, but cannot reach the cluster's store (etcd); {words}. "
        "Start etcd; the brokers recover by themselves."
    )
    assert "Start broker" not in out


async def test_a_store_that_has_just_gone_does_not_hold_up_what_is_known(cluster: FakeCluster) -> None:
    """The brokers' sessions still run, so the moves of partitions are asked for, and no controller knows them."""
    cluster.is_store_away = True
    loop = asyncio.get_running_loop()
    async with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        began = loop.time()
        assert (await cluster_health(admin)).verdict is HealthVerdict.HEALTHY
        assert loop.time() - began < 5
        with pytest.raises(KafkaTimeoutError):
            await moves_of(admin, await admin.describe_cluster(), must_know=True)


async def test_a_call_that_takes_long_is_said_with_the_reason_and_so_is_its_end(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.is_store_away = True
    what = "listing the moves of partitions"
    async with started(Admin, {"bootstrap_servers": cluster.bootstrap, "max_block_ms": 9_000}) as admin:
        with pytest.raises(KafkaTimeoutError, match=f"{what} did not succeed within 9000 ms: .*REQUEST_TIMED_OUT"):
            await admin.list_partition_reassignments()
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1, "it is said once for each reason"
    assert lines[0].startswith(f"waiting: {what}: [7 REQUEST_TIMED_OUT]")


async def test_one_broker_without_the_store_is_named(semel: ClusterShell, cluster: FakeCluster) -> None:
    cluster.sessions = {1: 8_900, 2: 4_000, 3: 6_100}
    out = await semel("cluster", code=TROUBLE)
    assert out.strip().endswith(
        "Degraded: broker 2 cannot reach the store (etcd). 4 partitions can be read and written."
    )
    cluster.sessions = {1: 8_900, 2: 7_000, 3: 6_100}
    assert "Healthy: " in await semel("cluster")


async def test_a_disk_that_hangs_is_named_with_its_path_and_how_long(semel: ClusterShell, cluster: FakeCluster) -> None:
    cluster.hanging = {3: 42_400}
    out = await semel("cluster", code=TROUBLE)
    assert out.strip().splitlines()[-1] == (
        "Offline: 1 of 4 partitions has a leader whose disk hangs, and which refuses writes (t-2): the disk of "
        "broker 3 (/data/3) hangs for 42 s. Repair the disk. Other replicas lead within seconds where one is in sync."
    )
    told = json.loads(await semel("cluster", "--json", code=TROUBLE))
    assert (told["brokers"][2]["disk_hangs_ms"], told["brokers"][2]["disk_path"]) == (42_400, "/data/3")
    assert [(each["topic"], each["partition"], each["state"]) for each in told["troubled"]] == [
        ("t", 2, "leader's disk hangs")
    ]
    cluster.places[T2].leader, cluster.places[T2].isr = 1, [1, 2]
    assert "the disk of broker 3 (/data/3) hangs for 42 s. All partitions can be read" in await semel(
        "cluster", code=TROUBLE
    )


async def test_too_few_in_sync_for_writes_are_an_exit_status_too(semel: ClusterShell, cluster: FakeCluster) -> None:
    cluster.settings["min.insync.replicas"] = "2"
    cluster.places[T0].isr = [1]
    out = await semel("cluster", code=TROUBLE)
    assert "t-0" in out
    assert "Offline: 1 of 4 partitions has fewer replicas in sync than min.insync.replicas" in out
    assert out.strip().endswith("(t-0): wait until the others are in sync.")
    cluster.settings["min.insync.replicas"] = "1"
    assert "(t-0): they are catching up." in await semel("cluster", code=TROUBLE)


async def test_health_as_json_has_the_same_facts(semel: ClusterShell, cluster: FakeCluster) -> None:
    cluster.places[T1].leader, cluster.places[T2].isr = 3, [3, 1]
    cluster.places[T0].target = [1, 2]
    cluster.stalled = True
    told = json.loads(await semel("cluster", "--json", code=TROUBLE))
    assert json.loads(await semel("cluster", "--output", "json", code=TROUBLE)) == told
    assert (told["verdict"], told["controller"], told["partitions"]) == ("degraded", 1, 4)
    assert told["brokers"][2] == {
        "id": 3,
        "address": cluster.nodes[3].address,
        "rack": None,
        "leads": 2,
        "preferred": 1,
        "replicas": 3,
        "in_sync": 3,
        "answers": True,
        "error": None,
        "reaches_store": None,
        "disk_hangs_ms": None,
        "disk_path": None,
    }
    assert told["troubled"] == [
        {
            "topic": "t",
            "partition": 2,
            "state": "under-replicated",
            "leader": 3,
            "replicas": [3, 1, 2],
            "in_sync": [3, 1],
        }
    ]
    assert (told["not_led_by_preferred"], told["moving"]) == (["t-1"], ["t-0"])
    seen = await semel("cluster", code=TROUBLE)
    assert "1 partition not led by the preferred broker: `semel topic elect`" in seen
    assert "1 partition on the move" in seen


async def test_replicas_that_a_move_adds_are_not_missing(semel: ClusterShell, cluster: FakeCluster) -> None:
    place = cluster.places[TopicPartition("u", 0)]
    place.replicas, place.target = [1, 2], [1, 3]
    cluster.stalled = True
    assert "Healthy" in await semel("cluster")
    assert "moving to 1,3" in await semel("topic", "describe", "u")


async def test_without_a_controller_the_rest_is_shown_at_once(semel: ClusterShell, cluster: FakeCluster) -> None:
    cluster.controller = NOBODY
    cluster.places[T0].isr = [1, 2]
    assert "1 of 4 partitions has replicas that are not in sync" in await semel("cluster", code=TROUBLE)
    cluster.places[T0].isr = [1, 2, 3]
    assert "Degraded: there is no controller." in await semel("cluster", code=TROUBLE)
    assert "3 partitions" in await semel("topic", "describe", "t")


# --- semel topic create, describe, list ---


async def test_a_created_topic_that_other_brokers_list_later_is_no_error(
    semel: ClusterShell, cluster: FakeCluster
) -> None:
    assert await semel("topic", "create", "new", "-p", "2") == "new created with 2 partitions\n"
    assert len(cluster.asked(3)) > 0
    assert not cluster.stale


async def test_a_topic_is_described_with_leaders_epochs_and_offline_replicas(
    semel: ClusterShell, cluster: FakeCluster
) -> None:
    assert "t: 3 partitions\n" in await semel("topic", "describe", "t")
    await cluster.down(3)
    out = await semel("topic", "describe", "t", "u")
    assert "t: 3 partitions, 3 under-replicated" in out
    assert "u: 1 partition\n" in out
    assert cells(out, "2") == ["2", "1", "1", "0", "200", "3,1,2", "1,2", "under-replicated"]


async def test_unanswered_parts_are_left_open_and_the_rest_is_shown(semel: ClusterShell, cluster: FakeCluster) -> None:
    place = cluster.places[T1]
    place.leader, place.isr = NOBODY, [3]
    out = await semel("topic", "describe", "t")
    assert "1 offline" in out
    assert cells(out, "1") == ["1", "none", "0", "-", "-", "2,3,1", "3", "offline"]
    assert cells(out, "2") == ["2", "3", "0", "0", "200", "3,1,2", "3,1,2", "ok"]
    listed = await semel("topic", "list")
    assert cells(listed, "t") == ["t", "3", "3", "-"]
    assert cells(listed, "u") == ["u", "1", "2", "0"]


# --- semel topic elect ---


async def test_leadership_goes_back_to_the_preferred_brokers(semel: ClusterShell, cluster: FakeCluster) -> None:
    cluster.places[T1].leader = 3
    out = await semel("topic", "elect", "t")
    assert out.splitlines() == ["t-1: leader 3 -> 2", "1 new leader; 2 partitions had the preferred one."]
    assert "0 new leaders; 4 partitions" in await semel("topic", "elect")


async def test_an_impossible_election_is_explained(semel: ClusterShell, cluster: FakeCluster) -> None:
    cluster.places[T0].leader = cluster.places[T1].leader = 3
    cluster.places[T1].isr = [3, 1]
    await cluster.down(2)
    cluster.places[T2].leader, cluster.places[T2].isr = 1, [1]
    out = await semel("topic", "elect", "t", code=1)
    assert out.splitlines() == [
        "t-0: leader 3 -> 1",
        "1 new leader; 0 partitions had the preferred one.",
        "t-1: leader stays 3: broker 2 is offline",
        "t-2: leader stays 1: broker 3 is not in sync yet",
    ]


async def test_refusals_of_the_controller_are_raised_for_each_part(
    semel: ClusterShell, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.places[T0].leader = cluster.places[T1].leader = 3
    for node in cluster.nodes.values():
        monkeypatch.setattr(node, "_elect", lambda at: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)
    first, second = (await semel("topic", "elect", code=1)).splitlines()
    assert "PreferredLeaderNotAvailableError: [80 PREFERRED_LEADER_NOT_AVAILABLE] electing a leader of t-0." in first
    assert first.endswith("wait until it is in sync, and elect again")
    assert second.startswith("and [80 PREFERRED_LEADER_NOT_AVAILABLE] electing a leader of t-1.")


# --- semel topic reassign ---


async def test_a_plan_is_shown_and_nothing_is_moved(semel: ClusterShell, cluster: FakeCluster) -> None:
    out = await semel("topic", "reassign", "t", "--brokers", "1,2", "-r", "2")
    assert "3 of 3 partitions change: 0 replicas to copy." in out
    assert "Nothing was moved: --execute carries the plan out." in out
    assert "Nothing to move: 3 partitions already spread evenly." in await semel("topic", "reassign", "t")
    assert not cluster.asked(45)


async def test_a_move_is_carried_out_and_waited_for(semel: ClusterShell, cluster: FakeCluster) -> None:
    asked = await semel.run("topic", "reassign", "t", "--brokers", "2,3", "-r", "2", "--execute", text="n\n")
    assert asked.exit_code == 1
    assert "Move 3 partitions?" in asked.output
    assert not cluster.asked(45)
    out = await semel("topic", "reassign", "t", "--brokers", "2,3", "-r", "2", "--execute", "--yes")
    assert out.strip().endswith("3 partitions moved")
    assert all(sorted(cluster.places[at].replicas) == [2, 3] for at in (T0, T1, T2))
    out = await semel("topic", "reassign", "t:1", "-r", "3", "-x", "-y")
    assert cells(out, "t-1")[-1] == "1"
    assert "1 of 1 partition change: 1 replica to copy." in out
    assert sorted(cluster.places[T1].replicas) == [1, 2, 3]


async def test_a_move_under_way_is_left_alone_followed_or_cancelled(semel: ClusterShell, cluster: FakeCluster) -> None:
    cluster.stalled = True
    cluster.places[T0].target = [2, 3]
    out = await semel("topic", "reassign", "t", "-r", "2")
    assert "t-0" not in out
    assert "Left out: 1 partition being moved already. `semel topic reassign --watch` follows" in out
    cluster.stalled = False
    assert "1 partition moved" in await semel("topic", "reassign", "--watch")
    assert cluster.places[T0].replicas == [2, 3]
    assert "No partition is being moved." in await semel("topic", "reassign", "--watch")
    cluster.stalled = True
    cluster.places[T0].target = [1, 3]
    assert "No partition is being moved." in await semel("topic", "reassign", "u", "--cancel", "-y")
    assert "1 move cancelled" in await semel("topic", "reassign", "--cancel", "-y")
    assert cluster.places[T0].replicas == [2, 3]


async def test_a_cancelled_reassignment_is_not_reported_as_done(semel: ClusterShell, cluster: FakeCluster) -> None:
    cluster.stalled = True
    cluster.places[T0].target = [2, 3]
    watching = asyncio.ensure_future(semel("topic", "reassign", "--watch", code=1))
    while len(cluster.nodes[1].seen(46)) < 3:
        await asyncio.sleep(0.005)
    cluster.places[T0].target = None
    out = await watching
    assert "0 partitions moved" in out
    assert "no longer being moved: t-0. The reassignment was cancelled." in out


async def test_a_partition_without_leader_is_left_out_of_the_plan(semel: ClusterShell, cluster: FakeCluster) -> None:
    cluster.places[T1].leader = NOBODY
    out = await semel("topic", "reassign", "t", "-r", "1", "-x", "-y")
    assert "2 of 2 partitions change: 0 replicas to copy." in out
    assert "Left out: 1 partition without a leader" in out
    assert len(cluster.places[T1].replicas) == 3


async def test_the_plan_names_an_offline_broker(semel: ClusterShell, cluster: FakeCluster) -> None:
    await cluster.down(2)
    out = await semel("topic", "reassign", "u")
    assert cells(out, "u-0") == ["u-0", "1,2", "1,3", "1"]
    assert "Broker 2 is offline: other brokers get its 1 replica. If it will come back, wait for it." in out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("reassign", "t", "--brokers", "1,nine"), "write ids with commas between them, such as 1,2,3"),
        (("reassign", "t", "--brokers", "1,9"), "broker 9 is not live; live brokers: 1, 2, 3"),
        (("reassign", "t", "--brokers", "1,2"), "3 replicas need as many brokers, and there are 2"),
        (("reassign", "t", "--watch", "--cancel"), "give only one of --execute, --watch and --cancel"),
        (("reassign", "t", "--watch", "-r", "2"), "are for a new plan"),
        (("reassign", "t:7"), "t has no partition 7; it has 3"),
        (("reassign", "t:x"), "write TOPIC or TOPIC:PARTITION, such as orders:0"),
        (("reassign", "nothing"), "Create the topic, or check its name"),
        (("elect", "t:7"), "t has no partition 7; it has 3"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
async def test_mistakes_are_explained(semel: ClusterShell, arguments: tuple[str, ...], says: str) -> None:
    done = await semel.run("topic", *arguments)
    assert done.exit_code != 0
    assert says in done.output
    assert "Traceback" not in done.output


async def test_brokers_without_reassignments_are_described(semel: ClusterShell, cluster: FakeCluster) -> None:
    for node in cluster.nodes.values():
        for key in (43, 45, 46):
            del node.versions[key]
    assert "Healthy" in await semel("cluster")
    assert "Upgrade the broker" in await semel("topic", "reassign", "t", "-r", "1", "-x", "-y", code=1)
    cluster.places[T1].leader = 3
    assert "ElectLeaders" in await semel("topic", "elect", code=1)
