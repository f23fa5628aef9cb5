"""deploy/docker-compose.single.yml as it stands: an application beside the broker and this machine reach it."""

from __future__ import annotations

import asyncio
import os
import urllib.request
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from support.etcd import free_ports

from tools.cluster import choice, compose
from tools.cluster.cluster import RunningProject

ROOT = Path(__file__).parents[2]
FILE = ROOT / "deploy/docker-compose.single.yml"
LINES = (ROOT / "README.md").read_bytes().splitlines()
"""What `app` writes."""


def page(url: str) -> bytes:
    """The whole page, read on a thread: the loop of the test forwards the published ports."""
    with urllib.request.urlopen(url, timeout=30) as answer:
        read: bytes = answer.read()
        return read


def consumed(bootstrap: str, count: int) -> list[bytes | None]:
    """The first `count` values of the topic that `app` writes to."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "host"})
    consumer.assign([TopicPartition("orders", 0, OFFSET_BEGINNING)])
    try:
        messages = consumer.consume(count, timeout=30)
        assert all(message.error() is None for message in messages)
        return [message.value() for message in messages]
    finally:
        consumer.close()


async def test_an_application_in_a_container_and_one_on_the_host_share_a_broker(tmp_path: Path) -> None:
    port, metrics_port = free_ports(2)
    project = compose.load(FILE, {**os.environ, "PORT": str(port), "METRICS_PORT": str(metrics_port)})
    state = tmp_path / "state"
    async with RunningProject(project, state, choice.place(project, state)) as running:
        await running.start("app")
        assert await running.ended("app") == 0, (state / "logs/app.log").read_text()
        assert await asyncio.to_thread(consumed, f"localhost:{port}", len(LINES)) == LINES

        await running.restart("broker")
        await running.healthy("broker")
        assert await asyncio.to_thread(consumed, f"localhost:{port}", len(LINES)) == LINES, "the volume keeps them"

        assert b"semel_ready 1" in await asyncio.to_thread(page, f"http://127.0.0.1:{metrics_port}/metrics")
