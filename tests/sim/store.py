"""The store of a simulated cluster: an etcd on a machine of its own, reached over the world's network.

Brokers use their real client of etcd (`semel_broker.cluster.etcd.store`), so runs test it too. Agreed writes are never
lost, as if most members of etcd survive. All other faults can occur: the store can stop, pause, be slow, be far away or
be cut off from some brokers. Its answers can be lost, and it can compact events that watches need.
"""

from __future__ import annotations

import asyncio

from sim.etcd import Etcd
from sim.etcd_gateway import SimEtcdGateway
from sim.final import StoreWrite
from sim.host import Host

PORT = 2379
EXPIRE_EVERY_S = 0.5
NAMESPACE = "semel/"
"""The prefix of every key, as configured in the brokers."""


class SimStore:
    """`url`: the address for brokers. `slowdown`: a factor for the time of each write."""

    def __init__(self, host: Host, *, commit_ms: tuple[float, float] = (0.2, 4.0), keeps: int = 1_000) -> None:
        self.host = host
        host.is_kafka = False
        self.url = f"http://{host.name}:{PORT}"
        self.etcd = Etcd(keeps)
        self.commit_ms = commit_ms
        self.slowdown = 1.0
        self._gateway: SimEtcdGateway | None = None

    def boot(self) -> None:
        """Start the process, if it does not run."""
        if not self.host.is_running:
            self.host.boot(self._main)

    def kill(self) -> None:
        """Requests that are not carried out yet are lost. The clients see their connections close."""
        self.host.kill()
        self._gateway = None

    def power_loss(self) -> None:
        """As `kill`, but the clients see nothing."""
        self.host.power_loss()
        self._gateway = None

    def forget(self) -> None:
        """Compact all changes: watches that have not received them cannot continue."""
        self.etcd.compact(self.etcd.revision)
        self.host.world.note(self.host.name, f"compacted up to {self.etcd.compacted}")

    def told(self) -> list[StoreWrite]:
        """All writes since the start, with the keys as brokers know them."""
        return [
            StoreWrite(
                event.kv.mod_revision,
                event.kv.key.decode().removeprefix(NAMESPACE),
                event.kv.value if event.type == "PUT" else None,
            )
            for event in self.etcd.facts
        ]

    def heal(self) -> None:
        """Run at normal speed."""
        self.slowdown = 1.0
        self.host.resume()
        self.boot()

    async def _main(self, host: Host) -> None:
        rng = host.rng

        def commit_s() -> float:
            low, high = self.commit_ms
            return (low + (high - low) * rng.random() ** 3) * self.slowdown / 1000

        self.etcd.elected(host.monotonic())
        gateway = self._gateway = SimEtcdGateway(self.etcd, host.monotonic, commit_s)
        await asyncio.get_running_loop().create_server(gateway.connection, host.name, PORT)
        while True:
            await asyncio.sleep(EXPIRE_EVERY_S)
            gateway.expire()
