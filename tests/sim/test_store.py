"""The simulated store passes the tests of every store, also on a rough network. Faults have the expected effects."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from random import Random
from typing import Any

import pytest
from broker.cluster import test_store_conformance as suite
from broker.cluster.store_setups import StoreSetup
from semel_broker.cluster.etcd.messages import PutRequest, RequestOp, TxnRequest
from semel_broker.cluster.etcd.session import EtcdSession
from semel_broker.cluster.etcd.store import EtcdStore
from semel_broker.cluster.store import (
    CompactedError,
    Expect,
    OutcomeUnknownError,
    Put,
    RemovedKey,
    Session,
    SessionEndedError,
    Store,
    StoreUnavailableError,
)
from semel_broker.world import World as BrokerWorld

from sim.host import Host
from sim.network import NetworkWeather
from sim.store import SimStore
from sim.world import NS, SimWorld

LIMIT_NS = 300 * NS
CALM = NetworkWeather()
ROUGH = NetworkWeather(
    latency_ms=(1.0, 40.0), spike_rate=0.1, spike_ms=200.0, split_rate=0.7, windows=(1 << 18, 1 << 20)
)
WEATHERS = {"calm": CALM, "rough": ROUGH}
SUITE = {
    name: function
    for name, function in vars(suite).items()
    if name.startswith("test_") and inspect.iscoroutinefunction(function)
}


class SimStoreSetup(StoreSetup):
    """See `broker.cluster.store_setups`."""

    def __init__(self, machine: SimStore, host: Host) -> None:
        self.machine = machine
        self.store = over(machine, host)

    async def crash(self) -> Store:
        self.machine.kill()
        await asyncio.sleep(1)
        self.machine.boot()
        return self.store

    async def forget(self) -> None:
        await self.store.transact([], [Put("forget", b"")])
        self.machine.forget()

    async def holder_dies(self, session: Session) -> Store:
        assert isinstance(session, EtcdSession)
        session.abandon()
        return self.store


def over(machine: SimStore, host: Host, request_timeout_ms: float = 5_000) -> EtcdStore:
    world = BrokerWorld(now_ms=host.now_ms, monotonic=host.monotonic, rng=Random(1), disk=host.disk)
    return EtcdStore([machine.url], namespace="/semel", world=world, request_timeout_ms=request_timeout_ms)


def play(main: Callable[[SimStore, Host], Coroutine[Any, Any, None]], weather: NetworkWeather = CALM) -> None:
    """Run a process that uses the store to its end."""
    world = SimWorld(seed=1)
    world.network.weather = weather
    machine = SimStore(world.host("store"))
    machine.boot()
    host = world.host("asker")
    host.boot(lambda host: main(machine, host))
    try:
        assert world.run(LIMIT_NS, lambda: not host.is_running), "it has not finished"
        assert not world.failures, "\n".join(map(str, world.failures))
    finally:
        world.close()


async def soon(waiting: Awaitable[Any]) -> Any:
    async with asyncio.timeout(60):
        return await waiting


@pytest.mark.parametrize("weather", WEATHERS)
@pytest.mark.parametrize("name", SUITE)
def test_suite_of_every_store(name: str, weather: str) -> None:
    async def main(machine: SimStore, host: Host) -> None:
        store_setup = SimStoreSetup(machine, host)
        given = {"store": store_setup.store, "store_setup": store_setup}
        await SUITE[name](**{wanted: given[wanted] for wanted in inspect.signature(SUITE[name]).parameters})
        await store_setup.close()

    play(main, WEATHERS[weather])


def test_the_suite_is_found() -> None:
    assert len(SUITE) > 20


def test_a_transaction_whose_answer_is_lost_is_of_unknown_outcome_and_may_have_happened() -> None:
    async def main(machine: SimStore, host: Host) -> None:
        store = over(machine, host)
        await store.get("k")
        network = host.world.network
        network.cut("store", host.name, both_ways=False)
        with pytest.raises(OutcomeUnknownError):
            await store.transact([Expect("k")], [Put("k", b"1")])
        network.mend("store", host.name)
        entry = await store.get("k")
        assert entry is not None
        assert entry.value == b"1"
        await store.close()

    play(main)


def test_a_transaction_that_is_under_way_when_the_store_dies_has_not_happened() -> None:
    async def main(machine: SimStore, host: Host) -> None:
        store = over(machine, host)
        await store.get("k")
        machine.slowdown = 1_000_000.0
        writing = asyncio.ensure_future(store.transact([Expect("k")], [Put("k", b"1")]))
        await asyncio.sleep(0.5)
        machine.kill()
        with pytest.raises(OutcomeUnknownError):
            await writing
        machine.heal()
        assert await store.get("k") is None
        await store.close()

    play(main)


def test_a_stopped_store_is_reported_as_unavailable() -> None:
    async def main(machine: SimStore, host: Host) -> None:
        store = over(machine, host, request_timeout_ms=1_000)
        machine.kill()
        with pytest.raises(StoreUnavailableError):
            await store.get("k")
        with pytest.raises(StoreUnavailableError):
            await store.transact([], [Put("k", b"1")])
        machine.boot()
        assert await store.get("k") is None
        await store.close()

    play(main)


def test_a_session_without_keep_alives_ends_for_its_holder_first() -> None:
    async def main(machine: SimStore, host: Host) -> None:
        store, network = over(machine, host), host.world.network
        session = await store.open_session(3_000)
        await store.transact([], [Put("brokers/1", b"", session.lease)])
        network.cut(host.name, "store")
        await session.ended()
        assert host.monotonic() < session.deadline + 0.2
        assert machine.etcd.leases
        await asyncio.sleep(1.5)  # the store checks leases twice a second
        assert not machine.etcd.leases
        network.mend(host.name, "store")
        assert await soon(store.get("brokers/1")) is None
        with pytest.raises(SessionEndedError):
            await store.transact([], [Put("brokers/1", b"", session.lease)])
        await store.close()

    play(main)


def test_a_store_that_starts_again_gives_every_session_its_whole_lifetime_again() -> None:
    async def main(machine: SimStore, host: Host) -> None:
        store = over(machine, host)
        session = await store.open_session(4_000)
        await store.transact([], [Put("brokers/1", b"", session.lease)])
        machine.kill()
        await asyncio.sleep(2.5)
        machine.boot()
        await asyncio.sleep(3)
        assert not session.has_ended
        assert await store.get("brokers/1") is not None
        await session.close()
        await store.close()

    play(main)


def test_an_interrupted_watch_misses_no_event_and_a_compacted_watch_reports_it() -> None:
    async def main(machine: SimStore, host: Host) -> None:
        store, network = over(machine, host), host.world.network
        watch = store.watch("k", (await store.list("")).revision)
        told: list[int] = []
        for number in range(20):
            revision = await store.transact([], [Put("k", b"%d" % number)])
            if number % 4 == 1:
                network.reset(host.name, "store")
                await asyncio.sleep(0.3)
            assert revision is not None
            while not told or told[-1] < revision:
                told += [each.revision for each in (await soon(anext(watch))).changes]
        assert told == list(range(told[0], told[0] + 20))
        machine.kill()
        for number in range(3):
            machine.etcd.txn(_put(b"/semel/k", b"%d" % number))
        machine.forget()
        machine.boot()
        with pytest.raises(CompactedError):
            await soon(anext(watch))
        await watch.close()
        await store.close()

    play(main)


def test_a_lease_takes_all_its_keys_in_one_transaction() -> None:
    async def main(machine: SimStore, host: Host) -> None:
        store = over(machine, host)
        session = await store.open_session(5_000)
        revision = await store.transact([], [Put(key, b"", session.lease) for key in ("b", "a", "c")])
        watch = store.watch("", revision or 0)
        session.abandon()
        changes = await soon(anext(watch))
        assert [each.key for each in changes.changes if isinstance(each, RemovedKey)] == ["a", "b", "c"]
        assert {each.revision for each in changes.changes} == {changes.revision}
        await watch.close()
        await store.close()

    play(main)


def _put(key: bytes, value: bytes) -> Any:
    return TxnRequest([], [RequestOp(PutRequest(key, value))])
