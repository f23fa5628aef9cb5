"""A broker with all kinds of state, connections that send malformed input, and another client with valid requests.

All of it runs on one `VirtualLoop` over a disk in memory. A conversation takes a fraction of a millisecond, and the
same conversation always has the same result.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Coroutine, Sequence
from random import Random
from sys import getsizeof
from typing import Any, TypeVar

import msgspec
from broker.members import WireMember
from broker.transactional import TransactionalProducer
from broker.wire import Wire, batch
from fuzz.oracle import AnswerChecker
from fuzz.other_client import OtherClient
from fuzz.record_batches import ProducerFields, any_batch
from semel_broker.config.loading import load
from semel_broker.config.topic_configs import TopicSettings
from semel_broker.node import Node
from semel_broker.telemetry.otlp import read_otlp
from semel_broker.world import SilentLogger, World
from semel_protocol.headers import encode_request_frame
from semel_storage.disk.memory_disk import MemoryDisk
from support.virtual_loop import VirtualLoop

T = TypeVar("T")

DATA = "data"
WALL_MS = 1_700_000_000_000
TIMEOUT_S = 40.0
"""Longer than the broker holds any request, except requests that set their own limit."""
SILENT_S = 1.0
LONGEST_TURN_S_MAX = 1.0
"""A longer turn fails a test even on a slow machine. For `make fuzz` the limit is 0.05 s."""

SETTINGS = {
    "log.dir": DATA,
    "port": "0",
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.backoff.ms": "5000",
    "log.retention.check.interval.ms": "5000",
    "log.segment.bytes": "20000",
    "message.max.bytes": "1500000",
    "metrics.listener": "127.0.0.1:0",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
}

LONG_TOPIC = "ab" * 124
LONG_ID = "ab" * 2048
HEAVY_PATTERNS = [
    "[ab]*a[ab]{1000}[ab]{1000}",
    "(?:[ab]?){1000}c",
    "(?:.?){500}c",
    r"(?i)\pL{30}.*",
    "(?:(?:a?b?)*){100}c",
    ".*(a?){500}a{500}",
]
"""Regular expressions that take as much work as any over long names; some are refused."""

Conversation = Sequence[bytes]
"""The frames, valid or malformed, that one connection sends one after the other."""


class ErrorLog(SilentLogger):
    """A logger that keeps error lines, which no peer may cause, and the names of all other events."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.events: list[str] = []

    def info(self, event: str, **_: object) -> None:
        self.events.append(event)

    warning = info

    def error(self, event: str, **fields: object) -> None:
        error = fields.pop("exc_info", None)
        text = "".join(traceback.format_exception(error)) if isinstance(error, BaseException) else ""
        self.lines.append(f"{event} {fields} {text}")

    def exception(self, event: str, **fields: object) -> None:
        self.lines.append(f"{event} {fields} {traceback.format_exc()}")


class FuzzedBroker:
    """Usage: `FuzzedBroker.open()`, any number of `talk`, then `close`, which checks all data once more."""

    def __init__(self, **settings: str) -> None:
        self.loop = VirtualLoop()
        self.disk = MemoryDisk()
        self.log = ErrorLog()
        self.settings = {**SETTINGS, **{name.replace("_", "."): value for name, value in settings.items()}}
        if "listeners" in self.settings:
            del self.settings["port"]
        self.pools: dict[str, Sequence[Any]] = {}
        self.producers: list[ProducerFields] = [ProducerFields()]
        self.recorded: list[bytes] = []
        self.answered = 0
        self.closed = 0
        self._node: Node | None = None
        self._other_client: OtherClient | None = None

    @classmethod
    def open(cls, **settings: str) -> FuzzedBroker:
        target = cls(**settings)
        target.run(target._fill())
        return target

    @property
    def node(self) -> Node:
        assert self._node is not None
        return self._node

    @property
    def other_client(self) -> OtherClient:
        assert self._other_client is not None
        return self._other_client

    @property
    def memory_of_files(self) -> int:
        """The memory of all files on the disk in memory, in bytes: more than their size, as they grow in steps."""
        names = [name for folder in ("", *self.disk.listdir(DATA)) for name in self._paths(folder)]
        return sum(getsizeof(self.disk._names[name].data) for name in names)

    def run(self, job: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the target's loop. Raises `Stuck` when nothing can run any more."""
        asyncio.set_event_loop(self.loop)
        try:
            return self.loop.run_until_complete(job)
        finally:
            asyncio.set_event_loop(None)

    # --- conversations -----------------------------------------------------------------------------------------

    def talk(self, *conversations: Conversation, random: Random | None = None) -> None:
        """Hold conversations at once, each on its own connection, beside a round of the other_client. Asserts `check`.

        With `random` the bytes arrive in pieces.
        """

        async def all_at_once() -> None:
            jobs = [self._converse(conversation, random) for conversation in conversations]
            await asyncio.gather(self.other_client.round(), *jobs)

        self.run(all_at_once())
        self.check()

    def talk_beside(self, conversations: Sequence[Conversation], silent: Sequence[bytes]) -> None:
        """As `talk`, beside open connections that send the bytes `silent` and never read."""

        async def all_at_once() -> None:
            ends = [await self._be_silent(data) for data in silent]
            jobs = [self._converse(conversation, None) for conversation in conversations]
            await asyncio.gather(self.other_client.round(), *jobs)
            for end in ends:
                end.close()
            await asyncio.sleep(SILENT_S)

        self.run(all_at_once())
        self.check()

    async def _be_silent(self, data: bytes) -> asyncio.Transport:
        transport, _ = await self.loop.create_connection(asyncio.Protocol, "127.0.0.1", self.node.port)
        transport.pause_reading()
        transport.write(data)
        return transport

    async def _converse(self, conversation: Conversation, random: Random | None) -> None:
        peer = AnswerChecker(self.loop, conversation, self.node.broker.config)
        transport, _ = await self.loop.create_connection(lambda: peer, "127.0.0.1", self.node.port)
        data = b"".join(conversation)
        at = 0
        while at < len(data):
            size = len(data) if random is None or random.random() < 0.6 else random.choice((1, 3, 4, 5, 60, 1000))
            with self.loop.uncounted():
                transport.write(data[at : at + size])
            at += size
            if random is not None and random.random() < 0.3:
                await asyncio.sleep(0)
        await peer.all_answered(TIMEOUT_S)
        self.answered += peer.answered
        self.closed += peer.is_closed
        transport.close()
        await asyncio.sleep(0)

    def check(self) -> None:
        """Assert the invariants: no error in the log or in the loop, and no long turn."""
        assert not self.log.lines, "\n".join(self.log.lines)
        assert not self.loop.errors, "\n".join(self.loop.errors)
        assert self.loop.longest_turn_s < LONGEST_TURN_S_MAX, f"the loop was held up for {self.loop.longest_turn_s} s"

    def close(self) -> None:
        """Kill the broker, start it again over its files, and check that the other_client has lost nothing."""
        self.run(self._restart())
        self.check()
        self.run(self.node.stop())
        self.check()
        self.loop.close()

    async def pass_time(self, seconds: float) -> None:
        """Let virtual time pass, so that timers, sweeps and the cleaner run."""
        await asyncio.sleep(seconds)

    async def _restart(self) -> None:
        await self.other_client.round()
        await self.other_client.leave()
        await self.kill()
        await self.start()
        await self.other_client.arrive(self.node.port)
        await self.other_client.check_all()
        await self.other_client.round()
        await self.other_client.leave()

    async def kill(self) -> None:
        """End the broker as SIGKILL does."""
        await self.node.server.abort()
        for task in [task for task in asyncio.all_tasks(self.loop) if task is not asyncio.current_task()]:
            task.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        self.disk.kill()

    # --- set-up -------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start a broker over the files on the disk."""

        def now_ms() -> int:
            return WALL_MS + int(self.loop.time() * 1000)

        world = World(
            now_ms=now_ms, monotonic=self.loop.time, rng=Random(1), disk=self.disk, log=self.log, read_otlp=read_otlp
        )
        self._node = await Node.start(
            load(overrides=[f"{name}={value}" for name, value in self.settings.items()]), world
        )

    async def _fill(self) -> None:
        """Create topics of all kinds, a group with a member and offsets, and open and ended transactions."""
        await self.start()
        wire = RecordingWire(*await asyncio.open_connection("127.0.0.1", self.node.port))
        self.recorded = wire.frames
        await wire.create_topic("t", partitions=2)
        await wire.create_topic("c", cleanup_policy="compact", segment_ms="1000", min_cleanable_dirty_ratio="0.01")
        await wire.create_topic("stamped", message_timestamp_type="LogAppendTime", max_message_bytes="2000")
        await wire.create_topic(LONG_TOPIC)
        for topic in ("t", "c", "stamped"):
            await wire.produce(topic, batch(b"x" * 100, b"y"))
        member = WireMember(wire, "g", topics=("t",))
        await member.join(session_timeout_ms=1_800_000)
        await member.sync({member.member_id: b"t0"})
        await member.commit({0: 1})
        producers = []
        for name in ("open", "done", "idle"):
            producers.append(await TransactionalProducer(wire, name=name).init(timeout_ms=900_000))
        await TransactionalProducer(wire, name=LONG_ID).init(timeout_ms=900_000)
        opened, done, _ = producers
        await done.produce("t", b"committed")
        await done.end()
        await done.produce("t", b"aborted")
        await done.end(commit=False)
        await opened.produce("t", b"open", partition=1)
        await opened.commit_offsets({0: 1}, member=member)
        await wire.fetch("t", 0, isolation_level=1, max_wait_ms=0)
        await wire.close()
        self._other_client = OtherClient()
        await self._other_client.arrive(self.node.port, create=True)
        self._fill_pools(member, producers)

    def _fill_pools(self, member: WireMember, producers: Sequence[TransactionalProducer]) -> None:
        """Set the pools of field values with which a message passes the first checks of its handler."""
        ids = [row.producer_id for row in producers]
        epochs = [row.epoch for row in producers]
        self.producers += [
            ProducerFields(row.producer_id, row.epoch, sequence, is_transactional)
            for row in producers
            for sequence in (0, 1)
            for is_transactional in (True, False)
        ]
        self.producers += [ProducerFields(7_000, 0, 0), ProducerFields(7_000, 0, 1), ProducerFields(7_000, 1, 0)]
        topics = self.node.broker.topics
        settings = [name.replace("_", ".") for name in TopicSettings.__struct_fields__]
        names = ["t", "t", "c", "stamped", "u", "__consumer_offsets", "__transaction_state", LONG_TOPIC]
        few = [0, 0, 1, 2, -1]
        self.pools = {
            "name": names,
            "topic": names,
            "topics": names,
            "topic_names": names,
            "topic_id": [topic.topic_id for name in ("t", "c") if (topic := topics.get(name)) is not None],
            "partition": few,
            "partition_index": few,
            "index": few,
            "partitions": few,
            "partition_indexes": few,
            "group_id": ["g", "g", "h", ""],
            "groups": ["g", "h"],
            "group_ids": ["g", "h"],
            "groups_names": ["g", "h"],
            "member_id": [member.member_id, "", "nobody"],
            "generation_id": [member.generation, -1, 0],
            "generation_id_or_member_epoch": [member.generation, -1, 0],
            "group_instance_id": ["static"],
            "protocol_type": ["consumer", ""],
            "protocol_name": ["range", "roundrobin"],
            "JoinGroupRequestProtocol.name": ["range", "roundrobin"],
            "metadata": [member.join_request().protocols[0].metadata, b""],
            "session_timeout_ms": [10_000, 6_000, 1_800_000],
            "rebalance_timeout_ms": [10_000, 100],
            "max_wait_ms": [0, 10, 500],
            "min_bytes": [0, 1],
            "max_bytes": [1 << 20, 1, 0],
            "partition_max_bytes": [1 << 20, 1, 0],
            "fetch_offset": [0, 1, 3, 1 << 40],
            "timestamp": [-1, -2, -3, -4, WALL_MS, WALL_MS + 1_000_000],
            "replica_id": [-1],
            "session_id": [0],
            "session_epoch": [-1, 0],
            "isolation_level": [0, 1],
            "acks": [-1, 1, 0],
            "timeout_ms": [0, 1000, 30_000],
            "transactional_id": ["open", "done", "idle", "new", None, LONG_ID, LONG_ID * 8],
            "v3_and_below_transactional_id": ["open", "done", "idle", LONG_ID * 8],
            "transactional_id_pattern": ["", ".*", *HEAVY_PATTERNS],
            "subscribed_topic_regex": ["", "t|c", *HEAVY_PATTERNS],
            "transactional_ids": ["open", "done", "idle", "nobody"],
            "transaction_timeout_ms": [60_000, 1000],
            "producer_id": [*ids, -1, 7_000],
            "v3_and_below_producer_id": ids,
            "producer_epoch": [*epochs, -1, 0],
            "v3_and_below_producer_epoch": epochs,
            "committed_offset": [0, 1, 5],
            "num_partitions": [-1, 1, 2],
            "count": [2, 3, 1],
            "replication_factor": [-1, 1],
            "assignments": [],
            "broker_ids": [1],
            "resource_type": [2, 2, 4],
            "resource_name": ["t", "c", "u", "1", ""],
            "AlterConfigsRequestConfig.name": settings,
            "IncrementalAlterConfigsRequestConfig.name": settings,
            "CreateTopicsRequestConfig.name": settings,
            "configuration_keys": settings,
            "config_operation": [0, 1, 2, 3],
            "value": ["", "1", "-1", "compact", "delete", "compact,delete", str(2**63 - 1), "1e9", "0.5", "x" * 99],
            "key_type": [0, 1],
            "key": ["g", "open"],
            "coordinator_keys": ["g", "open"],
            "state_filters": ["Ongoing", "Empty"],
            "states_filter": ["Stable"],
        }  # fmt: skip

    def pools_with_batches(self, random: Random, *, bombs: bool = False) -> dict[str, Sequence[Any]]:
        """The pools, with new random record batches."""
        records = [any_batch(random, random.choice(self.producers), bombs=bombs) for _ in range(2)]
        return {**self.pools, "records": [*records, b""]}

    def _paths(self, folder: str) -> list[str]:
        root = f"{DATA}/{folder}" if folder else DATA
        return [path for name in self.disk.listdir(root) if (path := f"{root}/{name}") in self.disk._names]


class RecordingWire(Wire):
    """Keeps the frames that it sends. Malformed frames are made from these valid ones."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        super().__init__(reader, writer)
        self.frames: list[bytes] = []

    def send(self, request: msgspec.Struct, version: int | None = None, client_id: str | None = "wire") -> int:
        correlation_id = super().send(request, version, client_id)  # type: ignore[arg-type]
        _, api, used = self._expected[-1]
        chunks = encode_request_frame(api, used, correlation_id, client_id, request)  # type: ignore[arg-type]
        self.frames.append(b"".join(chunks)[4:])
        return correlation_id
