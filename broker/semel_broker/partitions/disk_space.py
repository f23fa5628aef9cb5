"""The free space of the disk: below a mark, clients' writes are refused, so that there is room to delete.

| free bytes | effect |
|---|---|
| below `log.min.free.bytes` (the mark) | Produce and new partitions are refused with KAFKA_STORAGE_ERROR |
| below half of it | followers fetch no records; groups and transactions store nothing new; no log is compacted |
| none | the reserve, a file of a quarter of the mark, is given up (`Disk.keep_reserve`); without it the process ends |

Deletions, members that leave, markers, the ends of transactions and checkpoints always go on: they free space, or must
not be lost.
"""

from __future__ import annotations

from asyncio import TimerHandle, get_running_loop
from typing import Final

from semel_protocol.errors import ErrorCode, KafkaError
from semel_storage.log_directory import RESERVE_FILE

from semel_broker.config.loading import BrokerConfig
from semel_broker.partitions.disk_hangs import DiskHangs
from semel_broker.world import World

LOOK_S: Final = 1.0
LOOK_BYTES_MIN: Final = 64 << 10
"""So many bytes may be written between two looks at the disk, however little is free."""
MARK_MAX: Final = 64 << 20
MARK_MIN: Final = 1 << 20
UNBOUNDED: Final = 1 << 62


def mark_of(total_bytes: int) -> int:
    """The mark of a disk of that size: a hundredth, from 1 MiB (an eighth of a very small disk) up to 64 MiB."""
    return min(MARK_MAX, max(total_bytes // 100, min(MARK_MIN, total_bytes // 8)))


class DiskSpace:
    """The disk of one data directory, looked at each second, and after half of the room above the mark was written.

    A disk that hangs (`hangs`) has no room either: the same writes are refused.
    """

    def __init__(self, world: World, config: BrokerConfig, root: str, hangs: DiskHangs | None = None) -> None:
        self.free_bytes = self.total_bytes = UNBOUNDED
        self.mark_bytes = 0
        self.is_short = False
        """Clients' writes are refused."""
        self._world = world
        self._config = config
        self.hangs = hangs or DiskHangs(world, config)
        self.hangs.listeners.append(self._note_hang)
        self._is_held = False
        """The disk hangs, and writes would wait for it."""
        self._root = root
        self._left = 0
        self._has_reserve = True
        self._looked_at = -LOOK_S
        self._timer: TimerHandle | None = None

    @property
    def is_critical(self) -> bool:
        """Whether less than half of the mark is free."""
        return self.is_short and self.free_bytes < self.mark_bytes // 2

    def start(self) -> None:
        """Look now, and each second from now on."""
        self.look()
        self._timer = get_running_loop().call_later(LOOK_S, self.start)

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    def check(self, size: int) -> None:
        """Raise KAFKA_STORAGE_ERROR if the disk has no room for `size` bytes of a client, or hangs."""
        if self._is_held:
            self.hangs.check()
        if self._left >= size and not self.is_short:
            self._left -= size
            return
        if not self.is_short or self._world.monotonic() - self._looked_at >= LOOK_S:
            self.look()
        if self.is_short or not self.has_room(size):
            raise self._refusal()
        self._left -= size

    def check_small(self) -> None:
        """Raise KAFKA_STORAGE_ERROR if the disk has no room even for what groups and transactions store, or hangs."""
        if self._is_held:
            self.hangs.check()
        if self.is_critical:
            raise self._refusal()

    def _note_hang(self) -> None:
        self._is_held = self.hangs.stops_writes

    def has_room(self, size: int) -> bool:
        """Whether `size` bytes can be written for a while, as compaction does before it frees more."""
        return self.free_bytes - size >= self.mark_bytes // 2

    def look(self) -> None:
        """Ask for the free bytes."""
        self._looked_at = self._world.monotonic()
        space = self._world.disk.space(self._root)
        wanted = self._config.log_min_free_bytes
        if space is None or wanted == 0:
            self._has_room(UNBOUNDED, 0)
            return
        self.total_bytes, self.mark_bytes = space.total_bytes, wanted if wanted > 0 else mark_of(space.total_bytes)
        self.free_bytes = free = space.free_bytes
        if free < self.mark_bytes:
            self._left = 0
            self._runs_short()
        elif not self.is_short or free >= self.mark_bytes + self.mark_bytes // 4:
            self._has_room(free, self.mark_bytes)
            self._keep_reserve()

    def _keep_reserve(self) -> None:
        path, size = f"{self._root}/{RESERVE_FILE}", self.mark_bytes // 4
        had_reserve, self._has_reserve = self._has_reserve, self._world.disk.keep_reserve(path, size)
        if had_reserve and not self._has_reserve:
            self._world.log.warning(
                "disk_reserve_not_kept",
                file=path,
                size_bytes=size,
                do="check that the broker's user may write this file, and that the file system can allocate it",
            )

    def _runs_short(self) -> None:
        if self.is_short:
            return
        self.is_short = True
        self._world.log.error(
            "disk_nearly_full",
            directory=self._root,
            free_bytes=self.free_bytes,
            min_free_bytes=self.mark_bytes,
            do="delete topics or records, shorten retention, or give the disk more space; until then clients' writes "
            "are refused with KAFKA_STORAGE_ERROR",
        )

    def _has_room(self, free: int, mark: int) -> None:
        self.free_bytes = free
        self._left = max(LOOK_BYTES_MIN, (free - mark) // 2)
        if self.is_short:
            self.is_short = False
            self._world.log.info("disk_has_room_again", directory=self._root, free_bytes=free, min_free_bytes=mark)

    def _refusal(self) -> KafkaError:
        return KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"the disk of broker {self._config.node_id} has {self.free_bytes} bytes free, and writes are refused below "
            f"log.min.free.bytes={self.mark_bytes}: delete topics or records, or free space otherwise",
        )
