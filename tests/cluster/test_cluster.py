"""Services together, on loopback and in network namespaces: order, health, kills, pauses, cuts, and a clean end."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from support.etcd import free_ports

from tools.cluster.cluster import RunningProject
from tools.cluster.places import HOST, NotAvailableError
from tools.cluster.service import ServiceError, ServiceHealth, ServiceState
from tools.cluster.state import RunningError

PLACES = ("loopback", "namespaces")
Open = Callable[..., RunningProject]

CHECK = "{test: [CMD, python3, /srv/ask.py, %s, '7000', '1'], interval: 20ms, start_interval: 20ms, start_period: 20s}"

PAIR = f"""
services:
  app:
    image: python
    command: [python3, /srv/echo.py, 0.0.0.0, "7000"]
    volumes: [".:/srv"]
    environment: {{STORE: "store:7000"}}
    healthcheck: {CHECK % "app"}
    depends_on: {{store: {{condition: service_healthy}}}}
  store:
    image: python
    command: [python3, /srv/echo.py, store, "7000"]
    volumes: [".:/srv", "data:/var/lib/store"]
    healthcheck: {CHECK % "store"}
volumes:
  data:
"""
"""Two echoes on the same port, one after the other."""


def asks(cluster: RunningProject, asker: str, whom: str, within_s: float = 5) -> bool:
    """Whether a service gets an answer from another one, by a command that runs as a service's command does."""
    words = ["python3", str(cluster.state.path.parent / "ask.py"), whom, "7000", str(within_s)]
    command = cluster.place.command(asker, [cluster.place.text(asker, word) for word in words])
    return subprocess.run(command, capture_output=True, check=False, timeout=30).returncode == 0


@pytest.mark.parametrize("kind", PLACES)
async def test_services_start_in_order_reach_each_other_by_name_and_leave_nothing(kind: str, opened: Open) -> None:
    said: list[str] = []
    cluster = opened(PAIR, kind)
    cluster._say = said.append
    async with cluster:
        assert [line.split()[0] for line in said if "started" in line] == ["store", "app"]
        assert [each.health for each in cluster.services.values()] == [ServiceHealth.HEALTHY, ServiceHealth.HEALTHY]
        assert asks(cluster, "app", "store")
        assert asks(cluster, "store", "app")
        with socket.create_connection((cluster.address("store"), 7000), timeout=5):
            pass  # the host reaches a service at its own port, although both have the same
        processes = [psutil.Process(each.pid) for each in cluster.services.values() if each.pid]
        (device,) = {cluster.address(name).rpartition(".")[0] for name in cluster.services}
    assert [line.split()[0] for line in said if "ended" in line] == ["app", "store"]
    assert not any(process.is_running() for process in processes)
    links = subprocess.run(["ip", "addr"], capture_output=True, text=True, check=False).stdout
    assert f"inet {device}." not in links
    assert not cluster.state.is_taken()


@pytest.mark.parametrize("kind", PLACES)
async def test_a_killed_service_comes_back_at_its_address_with_its_data(kind: str, opened: Open, scripts: Path) -> None:
    async with opened(PAIR, kind) as cluster:
        address = cluster.address("store")
        (scripts / "state/volumes/data/kept").write_text("kept")
        await cluster.kill("store")
        assert cluster.services["store"].exit_status == -signal.SIGKILL
        assert not asks(cluster, "app", "store", 1)
        await cluster.start("store")
        await cluster.healthy("store")
        assert asks(cluster, "app", "store")
        assert cluster.address("store") == address
        assert (scripts / "state/volumes/data/kept").read_text() == "kept"


@pytest.mark.parametrize("kind", PLACES)
async def test_a_paused_service_takes_connections_and_does_not_answer(kind: str, opened: Open) -> None:
    async with opened(PAIR, kind) as cluster:
        await cluster.pause("store")
        assert not asks(cluster, "app", "store", 0.3)
        await cluster.unpause("store")
        assert asks(cluster, "app", "store")


async def test_a_partition_loses_everything_between_two_and_nothing_else(opened: Open) -> None:
    async with opened(PAIR, "namespaces") as cluster:
        with socket.create_connection((cluster.address("store"), 7000), timeout=5) as before:
            await cluster.partition("app", "store")
            assert not asks(cluster, "app", "store", 0.5)
            assert not asks(cluster, "store", "app", 0.5)
            before.sendall(b"still\n")
            assert before.recv(10) == b"still\n", "the host is not cut off"
        await cluster.restart("store")
        await cluster.healthy("store")
        assert not asks(cluster, "app", "store", 0.5), "a restart heals nothing"
        await asyncio.gather(cluster.heal(), cluster.heal())  # two who clean up at the same time
        assert asks(cluster, "app", "store")
        assert asks(cluster, "store", "app")
        assert cluster.cuts == {}


async def test_a_connection_outlives_a_partition_and_what_was_sent_meanwhile_arrives(opened: Open) -> None:
    async with opened(PAIR, "namespaces") as cluster:
        reader, writer = await asyncio.open_connection(cluster.address("store"), 7000)
        writer.write(b"before\n")
        assert await reader.readline() == b"before\n"
        await cluster.partition("store", HOST)
        writer.write(b"meanwhile\n")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await reader.readline()
        await cluster.heal("store", HOST)
        async with asyncio.timeout(20):
            assert await reader.readline() == b"meanwhile\n"
        writer.close()


async def test_one_direction_can_be_cut_alone(opened: Open) -> None:
    async with opened(PAIR, "namespaces") as cluster:
        listener = cluster.address("store"), 7001
        hear = cluster.place.command("store", ["python3", "-c", HEAR, *map(str, listener)])
        with subprocess.Popen(hear, stdout=subprocess.PIPE, text=True) as hearing:
            assert hearing.stdout is not None
            assert hearing.stdout.readline() == "listens\n"
            await cluster.partition("store", "app", one_way=True)
            tell = cluster.place.command("app", ["python3", "-c", TELL, *map(str, listener)])
            subprocess.run(tell, check=True, timeout=20)
            assert hearing.stdout.readline() == "told\n", "app's words reach store"
        assert cluster.cuts == {("store", "app"): None}
        assert not asks(cluster, "app", "store", 0.5), "store's answers do not reach app"


HEAR = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind((sys.argv[1], int(sys.argv[2])))
print("listens", flush=True)
print(s.recv(10).decode(), flush=True)
"""
TELL = """
import socket, sys
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"told", (sys.argv[1], int(sys.argv[2])))
"""


async def test_an_isolated_service_is_cut_off_from_all(opened: Open) -> None:
    async with opened(PAIR, "namespaces") as cluster:
        await cluster.isolate("store")
        assert not asks(cluster, "app", "store", 0.5)
        with pytest.raises(TimeoutError):
            socket.create_connection((cluster.address("store"), 7000), timeout=0.3)
        await cluster.heal("store")
        assert asks(cluster, "app", "store")


async def test_on_loopback_a_partition_is_refused(opened: Open) -> None:
    async with opened(PAIR, "loopback") as cluster:
        with pytest.raises(NotAvailableError, match="there are no partitions on loopback"):
            await cluster.partition("app", "store")
        assert cluster.cuts == {}


async def test_two_projects_run_side_by_side_on_the_same_ports(opened: Open, scripts: Path) -> None:
    first, second = opened(PAIR), opened(PAIR)
    second.state = type(second.state)(scripts / "other")
    async with first, second:
        assert first.address("store") != second.address("store")
        assert asks(first, "app", "store")
        assert asks(second, "app", "store")


async def test_a_state_folder_has_one_owner(opened: Open) -> None:
    first, second = opened(PAIR), opened(PAIR)
    await first.open()
    with pytest.raises(RunningError, match=r"in use by process \d+"):
        await second.open()
    await first.close()
    await second.open()
    await second.close()


async def test_a_published_port_leads_to_its_service(opened: Open) -> None:
    (port,) = free_ports(1)
    async with opened(PAIR.replace("  store:\n", f'    ports: ["127.0.0.1:{port}:7000"]\n  store:\n')) as cluster:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        long = b"x" * 60_000 + b"\n"
        for _ in range(50):
            writer.write(long)  # more than the buffers of all sockets on the way
        assert [len(await reader.readline()) for _ in range(50)] == [len(long)] * 50
        writer.write_eof()
        assert await reader.read() == b"", "the end of one direction ends the service's answer, too"
        writer.close()
        await cluster.kill("app")
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with pytest.raises(ConnectionError):
            await _nothing(reader)
        writer.close()


async def test_bytes_sent_before_the_service_is_reached_are_kept(opened: Open) -> None:
    (port,) = free_ports(1)
    async with opened(PAIR.replace("  store:\n", f'    ports: ["127.0.0.1:{port}:7000"]\n  store:\n')):
        with socket.create_connection(("127.0.0.1", port)) as early:
            early.sendall(b"early\n")  # the door has not even seen the connection
            early.shutdown(socket.SHUT_WR)
            reader, writer = await asyncio.open_connection(sock=early)
            async with asyncio.timeout(10):
                assert await reader.read() == b"early\n"
            writer.close()


async def _nothing(reader: asyncio.StreamReader) -> None:
    if await reader.read() == b"":
        raise ConnectionResetError("closed")


@pytest.mark.parametrize(
    ("store", "patience", "words"),
    [
        (
            "[python3, -c, \"print('no disk'); raise SystemExit(3)\"]",
            "start_period: 20s",
            r"store is ended \(3\).*no disk",
        ),
        (
            "[python3, -c, import time; time.sleep(60)]",
            "retries: 1",
            "store is running, unhealthy: .*ConnectionRefused",
        ),
    ],
)
async def test_a_service_that_cannot_start_is_named_with_its_error(
    store: str, patience: str, words: str, opened: Open
) -> None:
    text = PAIR.replace('[python3, /srv/echo.py, store, "7000"]', store).replace("start_period: 20s", patience)
    cluster = opened(text)
    with pytest.raises(ServiceError, match=f"(?s){words}"):
        async with cluster:
            pytest.fail("it must not come up")
    assert "app" not in cluster.services or cluster.services["app"].state is ServiceState.CREATED
    assert not cluster.state.is_taken()


ONE_SHOT = """
services:
  prepare: {image: python, command: [python3, -c, "raise SystemExit(%d)"]}
  app:
    image: python
    command: [python3, -c, import time; time.sleep(60)]
    depends_on: {prepare: {condition: service_completed_successfully}}
"""


async def test_a_service_waits_until_another_has_completed(opened: Open) -> None:
    async with opened(ONE_SHOT % 0) as cluster:
        assert (cluster.services["prepare"].exit_status, cluster.services["app"].state) == (0, ServiceState.RUNNING)
    with pytest.raises(ServiceError, match=r"app waits for prepare, which has ended \(4\)"):
        async with opened(ONE_SHOT % 4):
            pass


async def test_a_service_that_is_not_ready_in_time_is_named(opened: Open) -> None:
    cluster = opened(
        PAIR.replace('[python3, /srv/echo.py, store, "7000"]', "[python3, -c, import time; time.sleep(60)]")
    )
    await cluster.open()
    try:
        with pytest.raises(TimeoutError, match=r"not ready after 0\.5 s: store is running, starting.*; app is created"):
            await cluster.up(timeout_s=0.5)
    finally:
        await cluster.close()


async def test_unknown_services_are_named_with_those_that_there_are(opened: Open) -> None:
    cluster = opened(PAIR)
    with pytest.raises(ServiceError, match="no service 'sore'; the services are app, store"):
        await cluster.start("sore")
    with pytest.raises(ServiceError, match="store was not started yet"):
        await cluster.kill("store")


async def test_a_service_s_environment_is_what_the_file_says(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/of/the/caller")
    async with opened(PAIR) as cluster:
        pid = cluster.services["app"].pid
        assert pid is not None
        environment = psutil.Process(pid).environ()
        assert environment["STORE"] == f"{cluster.address('store')}:7000"
        assert "PYTHONPATH" not in environment


async def test_names_resolve_inside_a_namespace_and_commands_stay_as_written(opened: Open) -> None:
    async with opened(PAIR, "namespaces") as cluster:
        pid = cluster.services["app"].pid
        assert pid is not None
        assert psutil.Process(pid).environ()["STORE"] == "store:7000"
        assert psutil.Process(pid).cmdline()[-2:] == ["0.0.0.0", "7000"]
