"""The pytest plugin and its broker: quick start, empty, restartable, and data kept on request."""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Any, get_args

import pytest
import trustme  # noqa: F401  (pytester removes modules that an inner run imports first; cryptography must not be loaded twice)
from aiokafka import AIOKafkaConsumer
from broker.wire import Wire, batch
from confluent_kafka.admin import AdminClient as ConfluentAdmin
from kafka import KafkaConsumer
from semel import Admin
from semel_broker.config.loading import ConfigError
from semel_broker.testing.in_process import EphemeralBroker
from semel_broker.testing.plugin import SECURITY
from semel_broker.testing.security import FORMS, ClientName, SecurityName
from semel_storage.disk.memory_disk import MemoryDisk

pytestmark = pytest.mark.real_time

pytest_plugins = ["pytester"]

READY_MS_MAX = 50
EXAMPLES = re.findall(r"```python\n(.*?)```", (Path(__file__).parents[3] / "docs" / "testing.md").read_text(), re.S)


@asynccontextmanager
async def wire_to(broker: EphemeralBroker) -> AsyncIterator[Wire]:
    wire = await Wire.connect(broker.port)
    try:
        yield wire
    finally:
        await wire.close()


async def append(broker: EphemeralBroker, value: bytes) -> None:
    async with wire_to(broker) as wire:
        assert (await wire.produce("t", batch(value))).error_code == 0


async def values(broker: EphemeralBroker) -> list[bytes | None]:
    async with wire_to(broker) as wire:
        return await wire.values("t")


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return pytester.runpytest_inprocess("-o", "asyncio_default_fixture_loop_scope=function", *arguments)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda text: re.findall(r"def (test_\w+)", text)[0])
def test_example_of_the_documentation_passes(pytester: pytest.Pytester, example: str) -> None:
    pytester.makepyfile(example)
    pytester.makeini("[pytest]\nasyncio_mode = auto")
    run(pytester).assert_outcomes(passed=1)


def test_the_two_headline_examples_have_about_ten_lines() -> None:
    for example in EXAMPLES[:2]:
        body = example.partition("def test_")[2].strip().splitlines()
        assert len(body) <= 12, body


def test_a_broker_is_ready_within_50_ms() -> None:
    EphemeralBroker().start().kill()  # imports
    taken_ms = []
    for _ in range(9):
        began = time.perf_counter()
        broker = EphemeralBroker().start()
        taken_ms.append((time.perf_counter() - began) * 1000)
        broker.kill()
    assert median(taken_ms) < READY_MS_MAX, taken_ms


async def test_each_test_has_an_empty_broker(semel_broker: EphemeralBroker) -> None:
    semel_broker.create_topic("t")
    assert await values(semel_broker) == []
    await append(semel_broker, b"one")
    assert await values(semel_broker) == [b"one"]


async def test_each_test_has_an_empty_broker_again(semel_broker: EphemeralBroker) -> None:
    semel_broker.create_topic("t")  # would exist already
    assert await values(semel_broker) == []


@pytest.mark.parametrize("end", ["stop", "kill"])
async def test_data_and_address_survive_stop_and_kill(end: str) -> None:
    with EphemeralBroker() as broker:
        broker.create_topic("t")
        port = broker.port
        await append(broker, b"one")
        getattr(broker, end)()
        assert not broker.is_running
        with pytest.raises(ConnectionRefusedError):
            await Wire.connect(port)
        broker.start()
        assert broker.port == port
        await append(broker, b"two")
        assert await values(broker) == [b"one", b"two"]


async def test_kill_drops_connections_and_leaves_no_thread() -> None:
    broker = EphemeralBroker().start()
    wire = await Wire.connect(broker.port)
    assert "semel-broker" in [thread.name for thread in threading.enumerate()]
    broker.kill()
    assert await wire.closed_by_peer()
    await wire.close()
    assert "semel-broker" not in [thread.name for thread in threading.enumerate()]


async def test_a_waiting_fetch_does_not_delay_the_stop() -> None:
    with EphemeralBroker() as broker:
        broker.create_topic("t")
        async with wire_to(broker) as wire:
            waiting = asyncio.create_task(wire.fetch("t", 0, max_wait_ms=20_000))
            await asyncio.sleep(0.05)  # so that it waits already; sooner would be as good
            began = time.monotonic()
            await asyncio.to_thread(broker.kill)
            assert time.monotonic() - began < 2
            waiting.cancel()
            await asyncio.wait([waiting])


def test_two_brokers_live_side_by_side() -> None:
    with EphemeralBroker() as one, EphemeralBroker() as other:
        one.create_topic("t")
        other.create_topic("t")
        assert one.port != other.port
        assert one.node.broker.cluster_id != other.node.broker.cluster_id


def test_an_invalid_setting_is_refused_and_no_thread_is_left() -> None:
    broker = EphemeralBroker({"num.partitons": 3})
    with pytest.raises(ConfigError, match=r"did you mean num\.partitions"):
        broker.start()
    with pytest.raises(ConfigError, match="cannot connect to"):
        EphemeralBroker({"advertised.host.name": "0.0.0.0"}).start()
    assert not broker.is_running
    assert "semel-broker" not in [thread.name for thread in threading.enumerate()]


def test_saved_data_are_what_a_served_broker_would_leave(tmp_path: Path) -> None:
    with EphemeralBroker() as broker:
        broker.create_topic("t", 2)
        asyncio.run(append(broker, b"one"))
        broker.stop()
        saved = broker.save(tmp_path / "data")
    assert (saved / "meta.properties").exists()
    assert b"one" in (saved / "t-0" / "00000000000000000000.log").read_bytes()
    reread = MemoryDisk()
    for path in sorted(saved.rglob("*")):
        name = f"data/{path.relative_to(saved)}"
        if path.is_dir():
            reread.mkdir(name)
        else:
            reread.write_atomically(name, path.read_bytes())
    again = EphemeralBroker()
    again._disk = reread
    with again:
        assert asyncio.run(values(again)) == [b"one"]


def test_the_brokers_log_lines_reach_logging(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "semel_broker"), EphemeralBroker() as broker:
        broker.create_topic("t", 2)
    assert "topic_created topic=t partitions=2" in caplog.text


SETTINGS = """
    import pytest

    pytestmark = pytest.mark.semel(settings={"num.partitions": 2, "message.max.bytes": 5000})

    def test_module(semel_broker):
        config = semel_broker.node.broker.config
        assert (config.num_partitions, config.message_max_bytes, config.log_roll_hours) == (2, 5000, 7)

    @pytest.mark.semel(settings={"num.partitions": 4, "delete.topic.enable": False})
    def test_nearest_mark_wins(semel_broker):
        config = semel_broker.node.broker.config
        assert (config.num_partitions, config.message_max_bytes, config.delete_topic_enable) == (4, 5000, False)

    def test_session_has_the_settings_of_the_ini_file(semel_broker_session):
        assert semel_broker_session.node.broker.config.num_partitions == 3
        semel_broker_session.create_topic("t")

    def test_session_lasts(semel_broker_session):
        assert semel_broker_session.node.broker.topics.get("t") is not None
"""


def test_settings_come_from_ini_and_marks(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(SETTINGS)
    pytester.makeini("[pytest]\nsemel_settings =\n  num.partitions=3\n  log.roll.hours = 7\naddopts = --strict-markers")
    run(pytester).assert_outcomes(passed=4)


@pytest.mark.parametrize("mark", ["pytest.mark.semel({'a': 1})", "pytest.mark.semel(config={})"])
def test_an_invalid_mark_is_refused_with_the_right_form(pytester: pytest.Pytester, mark: str) -> None:
    pytester.makepyfile(f"import pytest\n@{mark}\ndef test_it(semel_broker): ...")
    result = run(pytester)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(['*write @pytest.mark.semel(settings={"num.partitions": 3})*'])


KEEPING = """
    def test_it(semel_broker):
        semel_broker.create_topic("t")

    def test_another(semel_broker, semel_broker_session):
        assert False
"""


@pytest.mark.parametrize("workers", [0, 1])
def test_keep_writes_the_data_and_prints_the_path(pytester: pytest.Pytester, workers: int) -> None:
    pytester.makepyfile(KEEPING)
    arguments = ["--semel-keep", f"--basetemp={pytester.path}/kept", *(["-n", str(workers)] if workers else [])]
    result = run(pytester, *arguments)
    result.assert_outcomes(passed=1, failed=1)
    lines = [line for line in result.outlines if "/kept/" in line and line.startswith(("test_keep", "session"))]
    assert len(lines) == 3, lines
    places = {line.split(": ")[0].rpartition(":")[2]: Path(line.split(": ")[1]) for line in lines}
    assert sorted(places) == ["session", "test_another", "test_it"]
    assert (places["test_it"] / "meta.properties").exists()
    assert b"topic" in (places["test_it"] / "semel.store").read_bytes()


def test_without_keep_nothing_is_written_or_printed(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(semel_broker): ...")
    result = run(pytester, f"--basetemp={pytester.path}/kept")
    result.assert_outcomes(passed=1)
    assert not list((pytester.path / "kept").glob("semel*"))
    assert "data kept" not in result.stdout.str()


def test_the_broker_is_not_imported_until_a_test_asks_for_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("import sys\ndef test_it(): assert 'semel_broker.node' not in sys.modules")
    pytester.runpytest_subprocess().assert_outcomes(passed=1)


def test_the_report_of_a_failed_test_has_the_broker_s_log(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        "def test_it(semel_broker):\n    semel_broker.create_topic('orders')\n    assert False\n\n"
        "def test_other(semel_broker):\n    pass\n"
    )
    result = run(pytester)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*log of semel_broker*", "*topic_created*orders*"])
    assert result.stdout.str().count("log of semel_broker") == 1


def test_the_report_of_a_refused_topic_ends_at_the_line_of_the_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(semel_broker):\n    for _ in 'ab':\n        semel_broker.create_topic('x')\n")
    result = run(pytester)
    result.stdout.fnmatch_lines(["*TOPIC_ALREADY_EXISTS: topic 'x' exists*"])
    assert "in_process.py" not in result.stdout.str().partition("log of semel_broker")[0]


def test_a_broker_says_where_it_is(semel_broker: EphemeralBroker) -> None:
    assert repr(semel_broker) == f"<EphemeralBroker at {semel_broker.bootstrap_servers}, running>"
    semel_broker.kill()
    assert repr(semel_broker).endswith("stopped>")
    assert repr(EphemeralBroker()) == "<EphemeralBroker at 127.0.0.1:a free port, stopped>"


@pytest.mark.semel(security="tls")
async def test_a_broker_with_tls(semel_broker: EphemeralBroker) -> None:
    context = ssl.create_default_context(cafile=semel_broker.ssl_cafile)
    context.load_cert_chain(semel_broker.ssl_certfile)
    wire = Wire(*await asyncio.open_connection("127.0.0.1", semel_broker.port, ssl=context))
    await wire.create_topic("t")
    assert (await wire.produce("t", batch(b"x"))).error_code == 0
    await wire.close()


@pytest.mark.parametrize("security", [each for each in FORMS if each != "plaintext"])
@pytest.mark.parametrize("client", get_args(ClientName))
async def test_settings_for_each_client_connect_as_the_user(security: SecurityName, client: ClientName) -> None:
    with EphemeralBroker(security=security) as broker:
        settings = broker.client_settings(client)
        assert sorted(await topics_seen(client, settings)) == []
        broker.create_topic("orders")
        assert await topics_seen(client, settings) == ["orders"]
        if FORMS[security].mechanism:
            broker.create_user("alice", "another, with ,= and ü")
            assert await topics_seen(client, broker.client_settings(client, user="alice")) == []


async def topics_seen(client: ClientName, settings: dict[str, Any]) -> list[str]:
    """The topics that a client may describe."""
    if client == "confluent-kafka":
        found = await asyncio.to_thread(ConfluentAdmin(settings).list_topics, timeout=10)
        return list(found.topics)
    if client == "kafka-python":
        return sorted(await asyncio.to_thread(kafka_python_topics, settings))
    if client == "aiokafka":
        consumer = AIOKafkaConsumer(**settings)
        await consumer.start()
        try:
            return sorted(await consumer.topics())
        finally:
            await consumer.stop()
    async with Admin(**settings) as admin:
        return list(await admin.list_topics())


def kafka_python_topics(settings: dict[str, Any]) -> list[str]:
    consumer = KafkaConsumer(**settings)
    try:
        return list(consumer.topics())
    finally:
        consumer.close()


def test_settings_without_security_are_the_address() -> None:
    with EphemeralBroker() as broker:
        assert broker.client_settings() == {"bootstrap_servers": broker.bootstrap_servers}
        assert broker.client_settings("confluent-kafka") == {"bootstrap.servers": broker.bootstrap_servers}
        with pytest.raises(AssertionError, match="scram"):
            broker.create_user("alice", "a password")


def test_an_unknown_client_user_or_security_is_refused_with_what_there_is() -> None:
    with EphemeralBroker(security="scram") as broker:
        with pytest.raises(ValueError, match="'aiokafka', 'confluent-kafka'"):
            broker.client_settings("kafkajs")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=r"create_user\(\) has not made the user 'alice'"):
            broker.client_settings(user="alice")
    with pytest.raises(ValueError, match="'scram\\+tls'"):
        EphemeralBroker(security="sasl")  # type: ignore[arg-type]
    assert tuple(FORMS) == get_args(SecurityName) == SECURITY


async def test_users_and_passwords_outlive_a_restart_and_are_in_no_log() -> None:
    with EphemeralBroker(security="scram") as broker:
        broker.create_user("alice", "first password")
        broker.create_user("alice", "second password")
        settings = [broker.client_settings(user=user) for user in ("test", "alice")]
        broker.restart()
        for each in settings:
            async with Admin(**each) as admin:
                await admin.list_topics()
        passwords = [str(each["sasl_plain_password"]) for each in settings]
        assert not any(secret in line for line in broker.log for secret in [*passwords, "first password"])
        assert not any(secret in repr(broker) for secret in passwords)
    with EphemeralBroker(security="scram") as other:
        assert other.client_settings()["sasl_plain_password"] != passwords[0]
