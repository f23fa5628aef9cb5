"""One broker with a crowd of clients that overload it, and a bystander that sends small requests one at a time.

The broker is the unchanged Node with small limits, on a processor that takes time. The seed decides the members of the
crowd. Three rules are checked: the broker answers each request of the bystander in time; the memory of requests and
answers stays within its limits; all of it is free after the crowd has left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from random import Random
from typing import Any

from broker.wire import Wire, batch, fetch_request, produce_request
from semel_broker import world as broker_world
from semel_broker.config.limits import Limits
from semel_broker.config.loading import load
from semel_broker.net.dispatch import Peer
from semel_broker.net.frame_buffer import SCRATCH_BYTES
from semel_broker.net.server import Server
from semel_broker.node import Node
from semel_broker.scheduling.frame_memory import READ_BYTES_EXHAUSTED
from semel_protocol.messages.k02_list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
)
from semel_protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from semel_protocol.messages.k18_api_versions import ApiVersionsRequest
from semel_protocol.schema import Message

from sim.broker import PORT, SimBroker, SimLogger, _text
from sim.checkers.anomaly import Anomaly, few
from sim.control import Listener
from sim.crowd_members import (
    ELEMENTS_MAX,
    EMPTY_TOPIC,
    KIB,
    KINDS,
    LARGE_FRAME_BYTES,
    MIB,
    TOPIC,
    CrowdMember,
    keep_doing,
)
from sim.host import Host
from sim.network import NetworkWeather
from sim.processor import Processor
from sim.run import RunVerdict
from sim.world import NS, SimWorld, StuckHost

CHECKERS = ("bystander-waits", "memory-exceeded", "not-given-back")

LIMITS = Limits(
    request_elements_max=ELEMENTS_MAX,
    in_flight_bytes_max=2 * MIB,
    total_in_flight_bytes_max=8 * MIB,
    small_frame_bytes=512 * KIB,
    total_write_buffer_bytes_max=4 * MIB,
    answer_bytes_min=16 * KIB,
)
SETTINGS = {"socket.request.max.bytes": LARGE_FRAME_BYTES, "message.max.bytes": MIB}

PROMPT_S = 0.4
"""Limit for a request for which the broker need not reclaim memory."""
LARGE_S = 1.5
"""Limit for a Produce of 300 KB, which takes one turn for each part, while the processor is busy."""
RECLAIMED_S = 5.0
"""Limit for a Produce of 300 KB while idle connections hold all memory."""
CROWD_FOR_NS = 6 * NS
STARTS_WITHIN_NS = 20 * NS
GIVEN_BACK_WITHIN_NS = 60 * NS
LOOK_EVERY_NS = NS // 200
GONE_AFTER_NS = NS // 10
"""After this time the broker knows that the crowd has left."""
MEMBERS_MAX = 24
HOLDERS = ("stops amid large", "stops amid small", "queues behind what waits")
HOLDERS_SHARE = 0.3
"""Share of the runs in which the crowd only holds memory."""
ANOMALIES_MAX = 10
LARGE_RECORD_BYTES = 300_000
STORED_RECORDS = 6


class CrowdedBroker(SimBroker):
    """A broker with small limits and a slow processor."""

    def __init__(self, host: Host, processor: Processor) -> None:
        super().__init__(host, SETTINGS)
        self._processor = processor

    async def _main(self, host: Host) -> None:
        config = load(overrides=[f"{name}={_text(value)}" for name, value in self.settings.items()])
        config.limits = LIMITS
        world = broker_world.World(
            now_ms=host.now_ms,
            monotonic=self._processor.monotonic,
            rng=host.rng,
            disk=host.disk,
            log=SimLogger(host),
        )
        self._stop = asyncio.get_running_loop().create_future()
        self.node = await Node.start(config, world)
        host.world.note(host.name, "serves")
        await self._stop
        await self.node.stop()

    @property
    def server(self) -> Server:
        """The server that accepts clients."""
        assert self.node is not None
        return self.node.server


class CrowdRun:
    """One run of a seed. `anomalies`: findings."""

    about = "crowd"

    def __init__(self, seed: int, listener: Listener | None = None) -> None:
        self.seed = seed
        rng = Random(f"crowd/{seed}")
        self.world = world = SimWorld(seed, listener)
        world.network.weather = NetworkWeather(spike_rate=0.0, windows=(16 * KIB, 64 * KIB))
        host = world.host("broker")
        self.processor = Processor(host, self._request_started)
        self.broker = CrowdedBroker(host, self.processor)
        self.faults = draw(rng)
        self.anomalies: list[Anomaly] = []
        self.waits: list[tuple[str, float]] = []
        """Each request of the bystander by name, with the seconds until its answer."""
        self._asked: tuple[str, int] | None = None
        """The bystander's open request, and when it was sent."""
        self._is_prepared = False
        self._left_ns: int | None = None
        self._looked_ns = 0

    def judged(self) -> RunVerdict:
        """Execute the run and give the verdict."""
        self.execute()
        world = self.world
        return RunVerdict(
            seed=self.seed,
            digest=world.digest(),
            anomalies=self.anomalies[:ANOMALIES_MAX],
            failures=[str(failure) for failure in world.failures],
            simulated_s=world.now_ns / NS,
            steps=world.steps,
        )

    def execute(self) -> list[str]:
        """Run, and return all findings as text."""
        world = self.world
        try:
            with self.processor.charging():
                self._execute()
        except StuckHost as error:
            self._note("bystander-waits", str(error))
        finally:
            world.close()
        return [*map(str, self.anomalies), *map(str, world.failures)]

    def _execute(self) -> None:
        world = self.world
        self.broker.boot()
        world.run(STARTS_WITHIN_NS, lambda: self.broker.serves)
        world.host("bystander").boot(self._stand_by)
        world.run(world.now_ns + STARTS_WITHIN_NS, lambda: self._is_prepared)
        hosts = {member.host for member in self.faults}
        for name in sorted(hosts):
            members = [member for member in self.faults if member.host == name]
            world.host(name).boot(partial(self._be_many, members))
        world.run(world.now_ns + CROWD_FOR_NS, self._look)
        world.note("crowd", "leaves")
        self._left_ns = world.now_ns
        for name in sorted(hosts):
            world.hosts[name].kill()
        if not world.run(world.now_ns + GIVEN_BACK_WITHIN_NS, self._is_given_back):
            self._note("not-given-back", few(held(self.broker.server), 20))

    # --- the crowd -------------------------------------------------------------------------------------------

    async def _be_many(self, members: list[CrowdMember], host: Host) -> None:
        rngs = [self.world.random("member", host.name, number) for number in range(len(members))]
        address = self.broker.host.name, PORT
        doings = [
            keep_doing(member, rng, lambda: self._left_ns is not None, address)
            for member, rng in zip(members, rngs, strict=True)
        ]
        await asyncio.gather(*doings)

    def _request_started(self, peer: Peer) -> None:
        if self._left_ns is None or peer.host == "bystander":
            return
        if self.world.now_ns > self._left_ns + GONE_AFTER_NS and not self._has_unread(peer):
            self._note("not-given-back", f"a request of {peer.host} was started after its client had left")

    def _has_unread(self, peer: Peer) -> bool:
        """Whether the broker has not read all that the peer sent before it left: it may serve these requests."""
        name = peer.host, peer.port
        return any(each.has_unread for each in self.broker.host.endpoints if each.get_extra_info("peername") == name)

    # --- the bystander ---------------------------------------------------------------------------------------

    async def _stand_by(self, host: Host) -> None:
        wire = await self._connected()
        for name in (TOPIC, EMPTY_TOPIC):
            await wire.create_topic(name)
        await wire.produce(TOPIC, batch(b"first"))
        for _ in range(STORED_RECORDS):
            await wire.produce(TOPIC, batch(bytes(LARGE_RECORD_BYTES)))
        self._is_prepared = True
        rng = self.world.random("bystander")
        while True:
            await asyncio.sleep(rng.uniform(0.0, 0.05))
            if rng.random() < 0.1:
                wire.writer.close()
                wire = await self._connected()
            name, request = rng.choice(REQUESTS)
            began_ns = self.world.now_ns
            self._asked = name, began_ns
            try:
                answer: Any = await wire.call(request)
            except (OSError, EOFError, TimeoutError) as error:
                self._note("bystander-waits", f"{name}: {error!r} after {self._since_s(began_ns):.3f} s")
                wire.writer.transport.abort()
                wire = await self._connected()
                continue
            finally:
                self._asked = None
            waited_s = self._since_s(began_ns)
            self.world.note("bystander", f"{name} answered after {waited_s:.6f} s")
            self.waits.append((name, waited_s))
            if codes := [code for code in error_codes(answer) if code]:
                self._note("bystander-waits", f"{name} was answered with errors {codes}")
            if waited_s > self.bound_s(name):
                self._note("bystander-waits", f"{name} was answered after {waited_s:.3f} s")

    async def _connected(self) -> Wire:
        return Wire(*await asyncio.open_connection(self.broker.host.name, PORT))

    def bound_s(self, name: str) -> float:
        """The longest time that the bystander may wait for the answer to this request."""
        kinds = [KINDS[member.kind] for member in self.faults]
        if name != "large Produce":
            return PROMPT_S
        if any(kind.holds_memory for kind in kinds):
            return RECLAIMED_S
        return LARGE_S if any(kind.is_work for kind in kinds) else PROMPT_S

    def _since_s(self, began_ns: int) -> float:
        return (self.world.now_ns - began_ns) / NS

    # --- checks ----------------------------------------------------------------------------------------------

    def _look(self) -> bool:
        """Check the memory limits, and the bystander's open request, every 5 ms. True stops the run: something was
        found."""
        if self.world.now_ns >= self._looked_ns + LOOK_EVERY_NS:
            self._looked_ns = self.world.now_ns
            if self._asked is not None and self._since_s(self._asked[1]) > self.bound_s(self._asked[0]):
                self._note(
                    "bystander-waits", f"{self._asked[0]} has no answer after {self._since_s(self._asked[1]):.3f} s"
                )
            for what in exceeded(self.broker.server):
                self._note("memory-exceeded", what)
        return bool(self.anomalies)

    def _is_given_back(self) -> bool:
        return bool(self.anomalies) or not held(self.broker.server)

    def _note(self, checker: str, what: str) -> None:
        anomaly = Anomaly(checker, f"{self.world.now_ns / NS:.6f} {what}")
        self.anomalies.append(anomaly)
        self.world.tell("checker", str(anomaly))


def _list_offsets() -> Message:
    row = ListOffsetsRequestPartition(partition_index=0, timestamp=-1)
    return ListOffsetsRequest(
        replica_id=-1, isolation_level=0, topics=[ListOffsetsRequestTopic(name=TOPIC, partitions=[row])]
    )


REQUESTS: tuple[tuple[str, Message], ...] = (
    ("ApiVersions", ApiVersionsRequest()),
    ("Metadata", MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])),
    ("small Produce", produce_request(TOPIC, batch(b"x"))),
    ("large Produce", produce_request(TOPIC, batch(bytes(LARGE_RECORD_BYTES)))),
    ("ListOffsets", _list_offsets()),
    ("Fetch", fetch_request(TOPIC, 0, partition_max_bytes=16 * KIB)),
)


def draw(rng: Random) -> list[CrowdMember]:
    """The members of the crowd of one run."""
    kinds = rng.sample(list(KINDS), rng.choice((1, 1, 2, 3, 4)))
    if rng.random() < HOLDERS_SHARE:
        kinds = rng.sample(HOLDERS, rng.choice((2, 3)))
    hosts = [f"crowd-{number}" for number in range(1, rng.choice((1, 3)) + 1)]
    return [
        CrowdMember(rng.choice(hosts), kind)
        for kind in kinds
        for _ in range(rng.choice((1, 6, MEMBERS_MAX // len(kinds))))
    ]


def error_codes(answer: Any) -> Iterator[int]:
    """The error codes in an answer to the bystander."""
    yield getattr(answer, "error_code", 0)
    for topic in [*getattr(answer, "topics", []), *getattr(answer, "responses", [])]:
        yield getattr(topic, "error_code", 0)
        for row in [*getattr(topic, "partitions", []), *getattr(topic, "partition_responses", [])]:
            yield row.error_code


def exceeded(server: Server) -> Iterator[str]:
    """Memory above its limit, and memory that is not accounted for."""
    context, connections = server.context, list(server._connections)
    limits, taken = context.limits, context.memory.taken
    most = limits.total_in_flight_bytes_max + LARGE_FRAME_BYTES + SCRATCH_BYTES
    most += len(connections) * READ_BYTES_EXHAUSTED  # each connection may receive so much without holding memory
    if taken > most:
        yield f"{taken} bytes of requests are held, the limit is {most}"
    is_there = sum(
        connection._intake.frames.held_bytes
        + sum(map(len, connection._pipeline._queue))
        + sum(request.frame_bytes for request in connection._pipeline._requests)
        for connection in connections
        if connection._intake.is_open
    )
    if is_there != taken:
        yield f"{is_there} bytes of requests are held, {taken} are accounted for"
    unsent = sum(_unsent(connection._transport) for connection in connections)
    if unsent > context.answers.taken:
        yield f"{unsent} bytes of answers are held, {context.answers.taken} are accounted for"
    most = limits.total_write_buffer_bytes_max + max(
        LARGE_FRAME_BYTES, limits.total_write_buffer_bytes_max // limits.answer_part_of_free
    )
    if context.answers.taken > most:
        yield f"{context.answers.taken} bytes of answers are held, the limit is {most}"


def held(server: Server) -> list[str]:
    """The memory and tasks that the broker still holds for closed connections."""
    context = server.context
    found = [f"{server.connection_count} connections"] if server.connection_count > 1 else []
    for what, count in (
        ("bytes of requests", context.memory.taken),
        ("bytes of answers", context.answers.taken),
        ("waiting requests", len(context.tasks)),
        ("connections that wait for memory", int(context.memory.has_waiting)),
        ("connections that wait for their turn", int(context.turns.has_waiting)),
        ("connections that wait to send answers", context.answers.waiting),
    ):
        found += [f"{count} {what}"] if count else []
    return found


def _unsent(transport: Any) -> int:
    size: int = transport.get_write_buffer_size() if transport is not None else 0
    return size
