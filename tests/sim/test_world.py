"""The world: loops take turns, virtual time advances only when no host has anything to run, digests repeat."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Coroutine
from itertools import pairwise
from typing import Any

import pytest

from sim.host import Host
from sim.world import NS, SimWorld, StuckHost


def test_time_advances_only_to_the_next_timer() -> None:
    world = SimWorld(1)
    seen: list[float] = []

    async def main(host: Host) -> None:
        began = asyncio.get_running_loop().time()
        for delay in (3600, 0.25, 0):
            await asyncio.sleep(delay)
            seen.append(asyncio.get_running_loop().time() - began)

    world.host("a").boot(main)
    world.run(10_000 * NS)
    assert seen == pytest.approx([3600, 3600.25, 3600.25], abs=1e-6)
    world.close()


def test_callbacks_of_one_process_run_in_order_beside_other_processes() -> None:
    for seed in range(20):
        world = SimWorld(seed)
        seen: dict[str, list[int]] = {"a": [], "b": []}
        turns: list[str] = []

        async def main(host: Host, seen: dict[str, list[int]] = seen, turns: list[str] = turns) -> None:
            def note(number: int) -> None:
                seen[host.name].append(number)
                turns.append(host.name)

            for number in range(5):
                asyncio.get_running_loop().call_soon(note, number)
                await asyncio.sleep(0)

        for name in seen:
            world.host(name).boot(main)
        world.run(NS)
        assert seen == {"a": [0, 1, 2, 3, 4], "b": [0, 1, 2, 3, 4]}
        world.close()


def test_which_host_comes_first_is_drawn_from_the_seed() -> None:
    firsts = set()
    for seed in range(10):
        world = SimWorld(seed)
        turns: list[str] = []

        async def main(host: Host, turns: list[str] = turns) -> None:
            turns.append(host.name)

        for name in "abc":
            world.host(name).boot(main)
        world.run(NS)
        firsts.add(turns[0])
        world.close()
    assert len(firsts) > 1


def test_a_timer_never_fires_before_its_time() -> None:
    world = SimWorld(3)

    async def main(host: Host) -> None:
        loop = asyncio.get_running_loop()
        for number in range(2000):
            due = loop.time() + number * 0.000_123_7
            fired = loop.create_future()
            loop.call_at(due, fired.set_result, None)
            await fired
            assert loop.time() >= due
            assert loop.time() - due < 1e-6

    world.host("a").boot(main)
    world.run(10_000 * NS)
    assert world.failures == []
    world.close()


def test_a_cancelled_timer_does_not_fire() -> None:
    world = SimWorld(3)
    fired: list[int] = []

    async def main(host: Host) -> None:
        asyncio.get_running_loop().call_later(1, fired.append, 1).cancel()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2):
                await asyncio.sleep(3)

    world.host("a").boot(main)
    world.run(10 * NS)
    assert fired == []
    assert world.failures == []
    world.close()


def test_a_killed_process_runs_no_code_not_even_finally_blocks() -> None:
    world = SimWorld(1)
    seen: list[str] = []

    async def main(host: Host) -> None:
        try:
            asyncio.get_running_loop().call_later(5, seen.append, "timer")
            await asyncio.sleep(3)
        finally:
            seen.append("finally")

    host = world.host("a")
    host.boot(main)
    world.run(NS)
    host.kill()
    world.run(20 * NS)
    assert seen == []
    world.close()


def test_a_process_that_ends_itself_starts_nothing_on_the_way_out() -> None:
    world = SimWorld(1)
    seen: list[str] = []

    async def inner() -> None:
        seen.append("inner")

    async def outer(what: Coroutine[Any, Any, None]) -> None:
        await what

    async def main(host: Host) -> None:
        try:
            host.exit("enough")
        finally:
            asyncio.get_running_loop().create_task(outer(inner()))
            seen.append("created")

    world.host("a").boot(main)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a coroutine that was never awaited would warn
        world.run(NS)
        world.close()
    assert seen == []


@pytest.mark.parametrize("end", ["exit", "pause"])
def test_nothing_runs_after_the_callback_in_which_a_process_ends_or_pauses(end: str) -> None:
    world = SimWorld(1)
    seen: list[str] = []

    async def main(host: Host) -> None:
        loop = asyncio.get_running_loop()
        loop.call_soon(host.exit, "enough") if end == "exit" else loop.call_soon(host.pause)
        loop.call_soon(seen.append, "behind it")
        asyncio.create_task(asyncio.sleep(0)).add_done_callback(lambda _: seen.append("a turn later"))
        await asyncio.sleep(1)

    host = world.host("a")
    host.boot(main)
    world.run(5 * NS)
    assert seen == []
    host.resume()
    world.run(10 * NS)
    assert seen == ([] if end == "exit" else ["behind it", "a turn later"])
    world.close()


def test_a_host_can_be_booted_again() -> None:
    world = SimWorld(1)
    seen: list[int] = []

    async def main(host: Host) -> None:
        seen.append(host.incarnation)
        await asyncio.sleep(100)

    host = world.host("a")
    for _ in range(3):
        host.boot(main)
        world.run(world.now_ns + NS)
        host.kill()
    assert seen == [1, 2, 3]
    world.close()


def test_a_paused_process_runs_nothing_until_it_is_resumed() -> None:
    world = SimWorld(1)
    seen: list[int] = []

    async def main(host: Host) -> None:
        for _ in range(10):
            await asyncio.sleep(1)
            seen.append(world.now_ms // 1000)

    host = world.host("a")
    host.boot(main)
    world.after(int(2.5 * NS), host.pause)
    world.after(int(7.5 * NS), host.resume)
    world.run(30 * NS)
    assert seen == [1, 2, 7, 8, 9, 10, 11, 12, 13, 14]
    world.close()


def test_wall_clocks_jump_and_monotonic_ones_do_not() -> None:
    world = SimWorld(1)
    host = world.host("a")
    wall_ms, monotonic_s = host.now_ms(), host.monotonic()
    world.run(NS)
    host.jump_clock(-60_000)
    assert host.now_ms() - wall_ms == 1_000 - 60_000
    assert host.monotonic() - monotonic_s == pytest.approx(1)
    assert world.host("b").monotonic() != host.monotonic()
    world.close()


def test_an_unexpected_exception_fails_the_run() -> None:
    for where in ("main", "callback", "task"):
        world = SimWorld(1)

        async def main(host: Host, where: str = where) -> None:
            async def fail() -> None:
                raise ValueError(where)

            if where == "main":
                await fail()
            elif where == "callback":
                asyncio.get_running_loop().call_soon(int, "none")
            else:
                await asyncio.wait([asyncio.create_task(fail())])

        world.host("a").boot(main)
        world.run(NS)
        world.close()
        (failure,) = world.failures
        assert failure.host == "a"
        assert "ValueError" in failure.details


def test_a_process_that_never_waits_is_stuck() -> None:
    world = SimWorld(1)

    async def main(host: Host) -> None:
        while True:
            await asyncio.sleep(0)

    world.host("a").boot(main)
    with pytest.raises(StuckHost):
        world.run(NS)
    world.close()


async def _refuse(host: Host, what: str) -> None:
    loop = asyncio.get_running_loop()
    match what:
        case "executor":
            await loop.run_in_executor(None, int)
        case "thread":
            await asyncio.to_thread(int)
        case "signal":
            loop.add_signal_handler(1, int)
        case "threadsafe":
            loop.call_soon_threadsafe(int)
        case "reader":
            loop.add_reader(0, int)
        case "subprocess":
            await loop.subprocess_exec(asyncio.SubprocessProtocol, "true")
        case "names":
            await loop.getaddrinfo("localhost", 1)
        case "datagrams":
            await loop.create_datagram_endpoint(asyncio.DatagramProtocol)
        case "tls":
            await loop.create_connection(asyncio.Protocol, "a", 1, ssl=True)
        case "local address":
            await loop.create_connection(asyncio.Protocol, "a", 1, local_addr=("a", 2))
        case "reuse":
            await loop.create_server(asyncio.Protocol, "a", 1, reuse_port=True)
        case "signature":
            loop.call_soon(int, wrong=1)  # type: ignore[call-arg]
        case "transport":
            server = await loop.create_server(asyncio.Protocol, host.name, 1)
            transport, _ = await loop.create_connection(asyncio.Protocol, host.name, server.sockets[0].getsockname()[1])
            transport.get_write_buffer_limits(1)  # type: ignore[call-arg]
        case "serve":
            await (await loop.create_server(asyncio.Protocol, host.name, 1)).serve_forever()


@pytest.mark.parametrize(
    "what",
    [
        "executor", "thread", "signal", "threadsafe", "reader", "subprocess", "names", "datagrams", "tls",
        "local address", "reuse", "signature", "transport", "serve",
    ],
)  # fmt: skip
def test_features_that_are_not_modelled_are_refused(what: str) -> None:
    world = SimWorld(1)
    refused: list[bool] = []

    async def main(host: Host) -> None:
        with pytest.raises((NotImplementedError, TypeError)):
            await _refuse(host, what)
        refused.append(True)

    world.host("a").boot(main)
    world.run(NS)
    world.close()
    assert world.failures == []
    assert refused == [True]


def test_a_process_runs_nothing_during_a_blocking_sync() -> None:
    world = SimWorld(1)
    host = world.host("a")
    ticks: list[float] = []

    async def main(host: Host) -> None:
        asyncio.get_running_loop().create_task(tick())
        await asyncio.sleep(0.01)
        host.disk.block()
        host.disk.block()
        host.pause()
        world.after(NS // 20, host.resume)  # this does not end the blocking call
        await asyncio.sleep(0.5)

    async def tick() -> None:
        while True:
            await asyncio.sleep(0.001)
            ticks.append(world.now_ns / NS)

    host.disk.weather.sync_ms = (50.0, 50.0)
    host.boot(main)
    world.run(NS)
    assert max(later - earlier for earlier, later in pairwise(ticks)) >= 0.1
    assert not world.failures
    world.close()
