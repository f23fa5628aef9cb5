"""One broker with a quota, and clients that open a new connection for each Produce, as short scripts do.

An answer throttles the connection that it goes to, so such clients never wait for one. One rule is checked: all records
that the broker has stored fit the quota, with the burst that its window allows, and clients make progress.
"""

from __future__ import annotations

import asyncio
from functools import partial

from broker.wire import Wire, batch, produce_request
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k49_alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntity,
    AlterClientQuotasRequestEntry,
    AlterClientQuotasRequestOp,
)
from semel_protocol.quotas import PRODUCER_BYTE_RATE

from sim.broker import PORT, SimBroker
from sim.checkers.anomaly import Anomaly
from sim.control import Listener
from sim.host import Host
from sim.run import RunVerdict
from sim.world import NS, SimWorld

QUOTA_EXCEEDED = "quota-exceeded"
RATE = 20_000
BATCH_BYTES = 5_000
WINDOW_S = 11
"""The window of a quota. In its first window a client may send the quota of the whole window at once."""
FOR_S = 60
STARTS_WITHIN_NS = 20 * NS
CLIENTS_MAX = 8
SLACK_BATCHES = 2
PROGRESS_SHARE_MIN = 0.5


class QuotaRun:
    """One run of a seed. `faults`: the clients."""

    about = "new connections over a quota"

    def __init__(self, seed: int, listener: Listener | None = None) -> None:
        self.seed = seed
        self.world = world = SimWorld(seed, listener)
        self.broker = SimBroker(world.host("broker"), {"log.min.free.bytes": 0})
        self.faults = [f"client-{n}" for n in range(world.random("clients").randint(1, CLIENTS_MAX))]
        self.stored_bytes = 0
        self._is_prepared = False

    def judged(self) -> RunVerdict:
        """Execute the run and give the verdict."""
        anomalies = []
        world = self.world
        try:
            self._execute()
        finally:
            world.close()
        most = RATE * (FOR_S + WINDOW_S) + (SLACK_BATCHES + len(self.faults)) * BATCH_BYTES
        if not PROGRESS_SHARE_MIN * RATE * FOR_S <= self.stored_bytes <= most:
            anomalies.append(Anomaly(QUOTA_EXCEEDED, f"{self.stored_bytes} bytes in {FOR_S} s, {most} are allowed"))
        return RunVerdict(
            seed=self.seed,
            digest=world.digest(),
            anomalies=anomalies,
            failures=[str(failure) for failure in world.failures],
            simulated_s=world.now_ns / NS,
            steps=world.steps,
        )

    def _execute(self) -> None:
        world = self.world
        self.broker.boot()
        world.run(STARTS_WITHIN_NS, lambda: self.broker.serves)
        world.host("operator").boot(self._prepare)
        world.run(world.now_ns + STARTS_WITHIN_NS, lambda: self._is_prepared)
        for name in self.faults:
            world.host(name).boot(partial(self._produce, deadline_ns=world.now_ns + FOR_S * NS))
        world.run(world.now_ns + FOR_S * NS)

    async def _prepare(self, host: Host) -> None:
        wire = await self._connected()
        await wire.create_topic("t")
        entity = AlterClientQuotasRequestEntity(entity_type="client-id", entity_name=None)
        op = AlterClientQuotasRequestOp(key=PRODUCER_BYTE_RATE, value=float(RATE), remove=False)
        entry = AlterClientQuotasRequestEntry(entity=[entity], ops=[op])
        answer = await wire.call(AlterClientQuotasRequest(entries=[entry], validate_only=False))
        assert answer.entries[0].error_code == ErrorCode.NONE, answer
        self._is_prepared = True

    async def _produce(self, host: Host, deadline_ns: int) -> None:
        data = batch(bytes(BATCH_BYTES))
        while self.world.now_ns < deadline_ns:
            wire = await self._connected()
            try:
                answer = await wire.call(produce_request("t", data))
                assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE, answer
                self.stored_bytes += BATCH_BYTES
            except EOFError:
                await asyncio.sleep(1)  # too many connections wait
            finally:
                wire.writer.close()

    async def _connected(self) -> Wire:
        return Wire(*await asyncio.open_connection(self.broker.host.name, PORT))
