"""Notices that the disk hangs: a call to it has been waiting for `disk.hang.timeout.ms`.

| | while the disk hangs |
|---|---|
| requests that need no disk | are served: metadata, heartbeats, reads of what the kernel has in memory |
| writes that came before | wait until the disk goes on or their time-out is over; none is answered as stored before |
| new writes of clients | get KAFKA_STORAGE_ERROR: what they wrote could not be made durable, and may hold the loop |
| in a cluster | the brokers learn it (`Registration.offline_changed`): replicas in sync on other disks lead |

With `durability=os` no write waits for the disk. There the log and the metrics alone have it: a long sync of many bytes
in the background is nothing that clients notice.
"""

from __future__ import annotations

from asyncio import TimerHandle, get_running_loop
from collections.abc import Callable
from typing import Final

from semel_protocol.errors import ErrorCode, KafkaError
from semel_storage.disk.hang_log import HangLog

from semel_broker.config.loading import BrokerConfig
from semel_broker.world import World

LOOK_S: Final = 0.5


class DiskHangs:
    """Of the disk of one data directory. `listeners` are called when it hangs, and when it goes on."""

    def __init__(self, world: World, config: BrokerConfig) -> None:
        self.listeners: list[Callable[[], None]] = []
        self._world = world
        self._config = config
        limit_s = config.disk_hang_timeout_ms / 1000
        self._hang_log = HangLog(limit_s, world.monotonic, problem=world.log.error, event=world.log.warning)
        self._timer: TimerHandle | None = None

    @property
    def is_hanging(self) -> bool:
        """Whether the disk hangs, as of the last look."""
        return self._hang_log.is_hanging

    @property
    def waiting_s(self) -> float:
        """Seconds that the oldest call to the disk has been waiting; 0: none waits."""
        call = self._world.disk.oldest_call()
        return 0.0 if call is None else call.seconds

    @property
    def stops_writes(self) -> bool:
        """Whether writes would wait for a disk that hangs."""
        return self.is_hanging and self._config.durability == "fsync"

    def start(self) -> None:
        """Look at the disk now, and every half second from now on."""
        self.look()
        self._timer = get_running_loop().call_later(LOOK_S, self.start)

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    def look(self) -> None:
        """Notice that the disk hangs or goes on; the log has each once."""
        if self._hang_log.look(self._world.disk.oldest_call()):
            for listener in self.listeners:
                listener()

    def check(self) -> None:
        """Raise KAFKA_STORAGE_ERROR while writes would wait for a disk that hangs."""
        if self.stops_writes:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"the disk of broker {self._config.node_id} hangs for {self.waiting_s:.0f} s, and nothing can be "
                "stored: try again; the broker's log has disk_hangs with the path",
            )
