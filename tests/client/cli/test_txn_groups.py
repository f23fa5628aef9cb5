"""`semel txn groups`, and the output of other commands about transaction groups."""

from __future__ import annotations

import asyncio

import pytest
from click.testing import CliRunner
from client.cli.test_txn import TxnShell, committed_values
from client.fake_groups import FakeGroups
from semel import GroupStep, PreparedTransaction, Producer, TransactionGroup
from semel.cli.main import main
from semel.errors import ProducerFenced
from semel_broker.testing.in_process import EphemeralBroker

pytestmark = pytest.mark.semel_only("needs transaction groups (BeginTransactionGroup, API 20001)")

NEVER_MS = 600_000


@pytest.fixture
def semel(semel_broker: EphemeralBroker) -> TxnShell:
    semel_broker.create_topic("orders")
    return TxnShell(semel_broker)


def step_of(broker: EphemeralBroker, timeout_ms: int = 60_000) -> tuple[GroupStep, list[PreparedTransaction]]:
    """A step of group `bank` with two prepared members. Driver and members are gone."""

    async def work() -> tuple[GroupStep, list[PreparedTransaction]]:
        at = broker.bootstrap_servers
        prepared = []
        async with TransactionGroup("bank", bootstrap_servers=at, owner="till 7", timeout_ms=timeout_ms) as group:
            step = await group.begin()
            for name in "ab":
                async with Producer(
                    bootstrap_servers=at, transactional_id=f"bank/{name}", transaction_group_step=step
                ) as producer:
                    await producer.begin_transaction()
                    await producer.send("orders", name.encode(), partition=0)
                    done = await producer.prepare_transaction()
                    assert done is not None
                    prepared.append(done)
            return step, prepared

    return asyncio.run(work())


def commit(broker: EphemeralBroker, step: GroupStep, token: str, prepared: list[PreparedTransaction]) -> None:
    async def work() -> None:
        async with TransactionGroup("bank", bootstrap_servers=broker.bootstrap_servers) as group:
            await group.commit(step, token, prepared)

    asyncio.run(work())


def test_groups_shows_their_drivers_and_members(semel_broker: EphemeralBroker, semel: TxnShell) -> None:
    step, prepared = step_of(semel_broker)
    (row,) = [line for line in semel("txn", "groups").splitlines() if "bank" in line]
    assert row.split()[:5] == ["bank", "1", "2", "2", "Open"]
    assert "till 7, client 'semel' at 127.0.0.1" in row
    out = semel("txn", "groups", "bank")
    assert [line.split()[:3] for line in out.splitlines() if "bank/" in line] == [
        ["bank/a", "1", str(prepared[0].producer_id)],
        ["bank/b", "1", str(prepared[1].producer_id)],
    ]
    assert out.count("Ongoing") == 2
    assert "TransactionalIdNotFound" in semel.refused("txn", "groups", "shop")
    commit(semel_broker, step, "batch 17", prepared)
    (row,) = [line for line in semel("txn", "groups").splitlines() if "bank" in line]
    assert row.split()[:5] == ["bank", "1", "0", "2", "Committed"]
    assert "batch 17 (step 1)" in row
    assert committed_values(semel_broker, 2) == [b"a", b"b"]


def test_a_member_is_distinguished_from_an_ordinary_id(semel_broker: EphemeralBroker, semel: TxnShell) -> None:
    step_of(semel_broker)
    assert "bank, step 1" in semel("txn", "describe", "bank/a")
    assert "It waits for the driver of transaction group bank to decide step 1" in semel("txn", "why", "bank/a")
    out = semel.run("topic", "stuck", "orders").output
    assert "the driver of its transaction group decides step 1, or begins another" in out
    assert "semel txn abort --group bank" in out


def test_a_group_is_aborted_by_name_and_its_driver_gets_the_reason(
    semel_broker: EphemeralBroker, semel: TxnShell
) -> None:
    step, prepared = step_of(semel_broker)
    done = semel.run("txn", "abort", "--group", "bank")
    assert "step 1 of transaction group bank (Open), with 2 transactions open" in done.output
    assert done.exit_code == 1, "the user has not confirmed"
    assert "fenced" in semel("txn", "abort", "--group", "bank", "--reason", "the till is closed", "--yes")
    (row,) = [line for line in semel("txn", "groups").splitlines() if "bank" in line]
    assert row.split()[:5] == ["bank", "2", "0", "2", "Aborted"]
    with pytest.raises(ProducerFenced, match="the till is closed"):
        commit(semel_broker, step, "batch 17", prepared)
    assert "TransactionalIdNotFound" in semel.refused("txn", "abort", "--group", "shop", "--yes")
    assert semel.run("txn", "abort", "bank/a", "--group", "bank").exit_code == 2


def test_a_group_open_past_its_timeout_is_reported_as_hanging() -> None:
    settings = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": NEVER_MS}
    with EphemeralBroker(settings) as broker:
        broker.create_topic("orders")
        semel = TxnShell(broker)
        step_of(broker)
        assert "No hanging transaction" in semel("txn", "hanging")
        step_of(broker, timeout_ms=1)
        assert "No hanging transaction" in semel("txn", "hanging", "orders"), "groups are not asked for by topic"
        out = semel.trouble("txn", "hanging")
        assert "bank" in out
        assert "semel txn abort --group NAME" in out
        semel("txn", "abort", "--group", "bank", "--yes")
        assert "No hanging transaction" in semel("txn", "hanging")


@pytest.mark.parametrize("line", ["txn groups", "txn groups bank", "txn abort --group bank -y"])
async def test_brokers_without_transaction_groups_are_named(line: str) -> None:
    async with FakeGroups(knows_groups=False) as broker:
        at = {"SEMEL_BOOTSTRAP_SERVER": broker.address}
        done = await asyncio.to_thread(CliRunner().invoke, main, line.split(), env=at)
    assert done.exit_code == 1
    command = " ".join(line.split()[:2])
    assert f"{command}` cannot do this here: transaction groups need semel's own API" in done.output
    assert f"{broker.address} does not have it; it is Apache Kafka or another Kafka" in done.output
