"""The store of a simulated cluster: an etcd on a machine of its own, asked over the world's network.

Brokers reach it with what they reach a real one with (`semel_broker.cluster.etcd.store`): what is tried here is that
code too. What it has agreed to is never lost, as by members of which most survive; all else may happen to it. It can
be down, stand still, be slow, far away, cut off from some; its answers get lost; it forgets what watches need.
"""

from __future__ import annotations

import asyncio

from sim.etcd import Etcd
from sim.etcd_gateway import Gateway
from sim.final import Told
from sim.host import Host

PORT = 2379
EXPIRE_EVERY_S = 0.5
NAMESPACE = "semel/"
"""Before every key, as brokers of this cluster are told."""


class SimStore:
    """`url` is what brokers are told. `slowdown`: what the time of every write is multiplied by."""

    def __init__(self, host: Host, *, commit_ms: tuple[float, float] = (0.2, 4.0), keeps: int = 1_000) -> None:
        self.host = host
        host.is_kafka = False
        self.url = f"http://{host.name}:{PORT}"
        self.etcd = Etcd(keeps)
        self.commit_ms = commit_ms
        self.slowdown = 1.0
        self._gateway: Gateway | None = None

    def boot(self) -> None:
        """Start the process; harmless when it runs."""
        if not self.host.is_running:
            self.host.boot(self._main)

    def kill(self) -> None:
        """What it was asked and had not agreed to is not done; who asked hears that the connection is gone."""
        self.host.kill()
        self._gateway = None

    def power_loss(self) -> None:
        """The same, and nobody hears of it."""
        self.host.power_loss()
        self._gateway = None

    def forget(self) -> None:
        """Changes of before are not kept any more: watches that have not heard of them cannot go on."""
        self.etcd.compact(self.etcd.revision)
        self.host.world.note(self.host.name, f"compacted up to {self.etcd.compacted}")

    def told(self) -> list[Told]:
        """Everything that was ever written to it, by the brokers' keys."""
        return [
            Told(
                event.kv.mod_revision,
                event.kv.key.decode().removeprefix(NAMESPACE),
                event.kv.value if event.type == "PUT" else None,
            )
            for event in self.etcd.story
        ]

    def heal(self) -> None:
        """It runs, and is as quick as ever."""
        self.slowdown = 1.0
        self.host.resume()
        self.boot()

    async def _main(self, host: Host) -> None:
        rng = host.rng

        def commit_s() -> float:
            low, high = self.commit_ms
            return (low + (high - low) * rng.random() ** 3) * self.slowdown / 1000

        self.etcd.elected(host.monotonic())
        gateway = self._gateway = Gateway(self.etcd, host.monotonic, commit_s)
        await asyncio.get_running_loop().create_server(gateway.connection, host.name, PORT)
        while True:
            await asyncio.sleep(EXPIRE_EVERY_S)
            gateway.expire()
