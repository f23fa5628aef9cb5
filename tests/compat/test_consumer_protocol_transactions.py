"""Transactions of workers in one group of the consumer protocol (KIP-848): librdkafka, and semel's client beside it.

Workers are processes. They are killed amid a transaction, paused until others have their partitions, and the broker is
killed: each input has one committed output.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import get_args

import pytest
import semel
from support.group_processes import SETTINGS, GroupProcess, Library, not_once, shared, until
from support.group_program import ProgramJob
from support.processes import BrokerProcess
from support.strangers import ConfluentStranger
from support.tiers import tiered

PARTITIONS = 6
Start = Callable[..., GroupProcess]
quick_with_librdkafka = pytest.mark.parametrize(
    "library", tiered(get_args(Library), lambda library: library == "librdkafka")
)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path / "data", **SETTINGS).start()
    face = ConfluentStranger(process.address)
    face.create_topic("t", PARTITIONS)
    face.create_topic("out", PARTITIONS)
    yield process
    process.stop()


@pytest.fixture
def start(broker: BrokerProcess, library: Library) -> Iterator[Start]:
    """Start a worker; its name is its transactional id."""
    started: list[GroupProcess] = []

    def start(name: str, hold: str = "", transaction_timeout_ms: int = 60_000) -> GroupProcess:
        job = ProgramJob(
            bootstrap=broker.address,
            members=(name,),
            target="out",
            hold=hold,
            transaction_timeout_ms=transaction_timeout_ms,
        )
        started.append(GroupProcess(job, library))
        return started[-1]

    yield start
    for worker in started:
        worker.kill()


def feed(broker: BrokerProcess, first: int, last: int) -> None:
    ConfluentStranger(broker.address).produce("t", [(n % PARTITIONS, None, b"%d" % n) for n in range(first, last)])


def inputs_done(broker: BrokerProcess) -> int:
    """The inputs before the committed offsets of the group."""

    async def ask() -> int:
        async with semel.Admin(bootstrap_servers=broker.address) as admin:
            return sum(row.offset for row in (await admin.list_consumer_group_offsets("g")).values())

    return asyncio.run(ask())


def until_done(broker: BrokerProcess, count: int, workers: list[GroupProcess]) -> None:
    until(lambda: inputs_done(broker) >= count, workers, f"{count} inputs are done")


def check_each_once(broker: BrokerProcess, count: int) -> int:
    """Each input has one committed output. Returns the number of outputs that are not committed."""
    face = ConfluentStranger(broker.address)
    committed = face.read_to_end("out")
    assert not_once([row.value.decode() for row in committed if row.value], [f"done-{n}" for n in range(count)]) == {}
    return len(face.read_to_end("out", "read_uncommitted")) - len(committed)


@quick_with_librdkafka
def test_workers_killed_amid_transactions_and_a_killed_broker_leave_each_input_with_one_output(
    broker: BrokerProcess, start: Start
) -> None:
    one, two, three = start("one"), start("two"), start("three")
    workers = [one, two, three]
    until(lambda: shared(workers), workers, "three workers share six partitions")
    first, second = one.hold("sent"), two.hold("offsets")
    feed(broker, 0, 300)
    until(lambda: first() and second(), workers, "two workers are amid a transaction")
    one.kill()
    two.kill()
    one, two = start("one"), start("two")
    workers = [one, two, three]
    until(lambda: shared(workers), workers, "their successors share with the third")
    third, fourth = one.hold("offsets"), two.hold("sent")
    feed(broker, 300, 600)
    until(lambda: third() and fourth(), workers, "both are amid a transaction")
    broker.kill()
    broker.start()
    one.tell("go")
    two.tell("go")
    feed(broker, 600, 900)
    until_done(broker, 900, workers)
    for worker in workers:
        worker.leave()
    assert check_each_once(broker, 900) > 0, "the killed workers had written records"


LOST = {"librdkafka": "UNKNOWN_MEMBER_ID", "semel": "CommitFailedError"}
FENCED = {"librdkafka": "_FENCED", "semel": "ProducerFenced"}


@quick_with_librdkafka
def test_a_paused_worker_cannot_commit_for_partitions_that_others_have_got(
    broker: BrokerProcess, start: Start, library: Library
) -> None:
    zombie = start("zombie", hold="sent")
    until(lambda: shared([zombie]), [zombie], "the first worker has all partitions")
    feed(broker, 0, 60)
    until(lambda: zombie.has_said("held"), [zombie], "it is amid a transaction")
    zombie.pause()
    heir = start("heir")
    until(lambda: shared([heir]), [heir], "its session has ended, and the other has all partitions")
    until_done(broker, 60, [heir])
    zombie.tell("go")
    zombie.resume()
    until(lambda: zombie.has_said("aborted"), [zombie, heir], "its transaction is aborted")
    assert zombie.more_of("aborted") == [LOST[library]]
    assert zombie.committed == 0
    until(lambda: shared([zombie, heir]), [zombie, heir], "it is a member again")
    feed(broker, 60, 120)
    until_done(broker, 120, [zombie, heir])
    zombie.leave()
    heir.leave()
    assert zombie.committed + heir.committed == 120
    assert check_each_once(broker, 120) > 0, "the paused worker had written records"


@pytest.mark.thorough
@pytest.mark.parametrize("library", get_args(Library))
def test_a_worker_paused_after_its_offsets_were_sent_cannot_commit_after_the_transaction_has_timed_out(
    broker: BrokerProcess, start: Start, library: Library
) -> None:
    """The others wait for the outcome of its offsets, and then begin before them."""
    zombie = start("zombie", hold="offsets", transaction_timeout_ms=6000)
    until(lambda: shared([zombie]), [zombie], "the first worker has all partitions")
    feed(broker, 0, 60)
    until(lambda: zombie.has_said("held"), [zombie], "it is amid a transaction")
    zombie.pause()
    heir = start("heir")
    until_done(broker, 60, [heir])
    assert heir.committed == 60
    zombie.tell("go")
    zombie.resume()
    until(lambda: zombie.has_said("error"), [zombie, heir], "its commit has failed")
    assert zombie.more_of("error") == [FENCED[library]]
    assert zombie.committed == 0
    until(lambda: shared([zombie, heir]), [zombie, heir], "it is a member again")
    feed(broker, 60, 120)
    until_done(broker, 120, [zombie, heir])
    zombie.leave()
    heir.leave()
    assert check_each_once(broker, 120) > 0, "the paused worker had written records"
