"""A broker on a simulated host: the unchanged Node. It is started again when its process has ended."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace
from semel_broker import world as broker_world
from semel_broker.cluster.store import OutcomeUnknownError, StoreUnavailableError
from semel_broker.config.loading import load
from semel_broker.node import Node
from semel_protocol.errors import ErrorCode, KafkaError
from semel_storage.checkpoints import CorruptCheckpoint
from semel_storage.log_directory import WrongDirectory
from semel_storage.segments.segment import CorruptLog

from sim.coverage import fault_met
from sim.damage import undo
from sim.host import Host
from sim.moments import SERVES, MomentWatch

PORT = 9092
DATA = "data"
SETTINGS: Mapping[str, object] = {
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 2,
    "group.min.session.timeout.ms": 1_000,
}
"""Settings of all runs: few internal partitions make a start fast, and workloads may have short sessions."""


EXPECTED_ERRORS = ("log_unreadable", "partition_offline", "disk_nearly_full", "disk_hangs")
"""Log events of level error that faults explain."""
REFUSED_FOLLOWER, STORAGE_ERROR = "replica_not_followed", ErrorCode.KAFKA_STORAGE_ERROR
"""Explained, too: a leader whose files are damaged refuses its followers until another replica leads."""


class SimLogger:
    """The broker's log: its lines go to the transcript. An unexpected error or exception fails the run."""

    def __init__(self, host: Host, expected: Sequence[str] = EXPECTED_ERRORS) -> None:
        self._host, self._expected = host, expected

    def debug(self, event: str, **fields: object) -> None:
        self._line(event, fields)

    def info(self, event: str, **fields: object) -> None:
        self._line(event, fields)

    def warning(self, event: str, **fields: object) -> None:
        self._line(event, fields)

    def error(self, event: str, **fields: object) -> None:
        error = fields.pop("exc_info", None)
        self._line(event, fields)
        is_expected = event in self._expected or (event == REFUSED_FOLLOWER and fields["code"] == STORAGE_ERROR)
        if isinstance(error, BaseException) or not is_expected:
            self._host.world.fail(
                self._host.name, f"{event} {fields}", error if isinstance(error, BaseException) else None
            )

    def exception(self, event: str, **fields: object) -> None:
        self._host.world.fail(self._host.name, f"{event} {fields}", sys.exc_info()[1])

    def _line(self, event: str, fields: dict[str, object]) -> None:
        world = self._host.world
        reason = fields.get("reason", "") if event == "producer_fenced" else ""
        world.count(f"came/log: {event} {reason}")
        if world.is_listened_to:
            world.tell(self._host.name, event + "".join(f" {key}={value}" for key, value in fields.items()))


MIN_FREE_BYTES = (0, 40_000)
"""Values of `log.min.free.bytes`: without it a full disk ends the process."""
UNEXPLAINED_MS = 60_000
"""A broker that refuses to start for no damage is a finding: starts in vain need not come often until the run ends."""
OPERATOR_S = 0.3
"""The time until an operator repairs files of a broker that serves its other partitions."""
RECOMPRESSED_AT_ONCE = "recompressed at once"
"""A key among the settings of a run: the value of `Limits.recompressed_at_once_bytes`."""
OPENED_AT_START = "logs opened at start"
"""Another one: the value of `Limits.logs_opened_at_start_max`. Later each log is opened in a turn of its own."""
LEFT_LOGS_TOGETHER = "left logs synced together"
"""Another one: the value of `Limits.left_logs_synced_together_min`."""
LIMITS = {
    RECOMPRESSED_AT_ONCE: "recompressed_at_once_bytes",
    OPENED_AT_START: "logs_opened_at_start_max",
    LEFT_LOGS_TOGETHER: "left_logs_synced_together_min",
}
OPENED_LOOK_S = 0.02


class SimBroker:
    """A broker. `address`: the bootstrap address for clients. `settings`: broker settings under Kafka's names.

    `watch`: faults that wait for a moment of this broker. `restart_after_ms`: the time until the process starts again
    after it ended by itself, for example because its disk failed.
    """

    def __init__(
        self, host: Host, settings: Mapping[str, object] | None = None, *, restart_after_ms: int = 500
    ) -> None:
        self.host = host
        self.address = f"{host.name}:{PORT}"
        self.settings = {**SETTINGS, **(settings or {}), "host.name": host.name, "port": PORT, "log.dir": DATA}
        marks = host.world.random("free bytes", host.name)
        self.settings.setdefault("log.min.free.bytes", marks.choice(MIN_FREE_BYTES))
        self.limits = {field: self.settings.pop(key) for key, field in LIMITS.items() if key in self.settings}
        if "logs_opened_at_start_max" in self.limits:
            self.limits["logs_opened_in_turn_max"] = 1
        self.restart_after_ms = restart_after_ms
        self.node: Node | None = None
        self.damaged: dict[str, bytes] = {}
        """The contents of damaged files before the damage, by path. They are restored if the broker refuses to start.
        """
        self.audit: Callable[[str], None] | None = None
        """Takes the lines of the audit log, which the settings ask for."""
        self.audit_is_behind: Callable[[], bool] = lambda: False
        self.watch = MomentWatch()
        host.disk.changed = self.watch.has_changed
        self._stop: asyncio.Future[None] | None = None
        self._opening: asyncio.Task[None] | None = None
        host.ended = self._ended

    @property
    def serves(self) -> bool:
        """Whether the broker has started, is not stopping, and its process is not paused."""
        loop = self.host.loop
        is_told_to_stop = self._stop is None or self._stop.done()
        return self.node is not None and not is_told_to_stop and loop is not None and not loop.paused

    @property
    def is_in_service(self) -> bool:
        """Whether the broker has started and is not stopping; its process may wait or be paused."""
        return self.node is not None and self._stop is not None and not self._stop.done() and self.host.is_running

    def nodes(self) -> list[Node]:
        """The node, if it has started."""
        return [] if self.node is None else [self.node]

    def boot(self) -> None:
        """Start the process, if it does not run."""
        if not self.host.is_running:
            self.node = None
            self.host.world.count("came/starts of the broker")
            self.host.boot(self._main)

    def kill(self) -> None:
        """SIGKILL."""
        self._forget_opened()
        self.host.kill()
        self.node = None

    def power_loss(self) -> None:
        self._forget_opened()
        self.host.power_loss()
        self.node = None

    def terminate(self) -> None:
        """SIGTERM: the process answers the requests in progress, closes its logs and ends. Then it starts again."""
        if self._stop is not None and not self._stop.done() and self.host.is_running:
            self._stop.set_result(None)

    async def _main(self, host: Host) -> None:
        config = load(overrides=[f"{name}={_text(value)}" for name, value in self.settings.items()])
        config.limits = replace(config.limits, **self.limits)
        world = broker_world.World(
            now_ms=host.now_ms,
            monotonic=host.monotonic,
            rng=host.rng,
            disk=host.disk,
            log=SimLogger(host),
            audit=self.audit,
            audit_is_behind=self.audit_is_behind,
        )
        self._stop = asyncio.get_running_loop().create_future()
        refused = host.disk.opens_refused
        try:
            node = await Node.start(config, world)
        except (CorruptLog, CorruptCheckpoint, WrongDirectory) as error:
            self._repair(error)
            host.exit("refused to start")
        except KafkaError as error:
            if error.code is not ErrorCode.KAFKA_STORAGE_ERROR or host.disk.opens_refused == refused:
                raise
            host.exit("no log can be opened")
        except (StoreUnavailableError, OutcomeUnknownError) as error:
            host.world.note(host.name, f"starts in vain: {error}")
            host.exit("the store is not there")
        await self._restore_offline(node)
        self.node = node
        self._forget_opened()
        if node.broker.topics.unopened:
            host.world.count("came/starts that leave logs for later")
            self._opening = asyncio.get_running_loop().create_task(self._watch_opening(node))
        host.world.note(host.name, "serves")
        self.watch.has_come(SERVES)
        await self._stop
        await node.stop()
        host.world.note(host.name, "stopped")

    async def _watch_opening(self, node: Node) -> None:
        """Until all logs are open, repair those that turn out to be damaged."""
        while True:
            is_last = not node.broker.topics.unopened  # the last log may have opened, damaged, since the last look
            await self._restore_offline(node)
            if is_last:
                break
            await asyncio.sleep(OPENED_LOOK_S)
        self.host.world.count("came/logs opened late: all")
        self._forget_opened()

    def _forget_opened(self) -> None:
        """Files of open logs are whole: what they were before they were damaged is of no use any more."""
        if self.node is None:
            return
        topics, stale = self.node.broker.topics, self.host.disk.stale
        made = {f"{DATA}/{each.topic}-{each.index}": each for each in topics.here()}
        for path in (*self.damaged, *stale):
            partition = made.get(path.rpartition("/")[0])
            if not topics.unopened if partition is None else partition.is_open:
                self.damaged.pop(path, None)
                stale.pop(path, None)

    async def _restore_offline(self, node: Node) -> None:
        """Repair the files of offline partitions as an operator would, then end the process, which starts again.

        Meanwhile the broker serves its other partitions, whose files are not touched. Where damage of a file of the
        whole data directory is the cause, everything is repaired at once. Raises an error that no damage explains.
        """
        offline = [each for each in node.broker.topics.here() if each.is_offline]
        if not offline:
            return
        disk, world = self.host.disk, self.host.world
        found: dict[str, bytes] = {}
        for each in offline:
            inside = f"{DATA}/{each.topic}-{each.index}/"
            mine = {path: data for path, data in {**self.damaged, **disk.stale}.items() if path.startswith(inside)}
            if not mine:
                self._repair(WrongDirectory(each.offline_reason))
                break
            found |= mine
        else:
            world.count("came/damage: partitions offline, others served")
            await asyncio.sleep(OPERATOR_S)
            undo(disk, found)
            for path in found:
                self.damaged.pop(path, None)
                disk.stale.pop(path, None)
        world.note(self.host.name, f"offline: {[each.offline_reason for each in offline]}")
        self.host.exit("files of offline partitions repaired")

    def _repair(self, error: CorruptLog | CorruptCheckpoint | WrongDirectory) -> None:
        """Repair a data directory as an operator would after a refused start. Raises an error that no damage explains.

        A stale sector may hold a whole batch of another log. After a damaged batch it looks like a batch of this log.
        """
        host = self.host
        if isinstance(error, CorruptLog) and error.path in host.disk.stale:
            host.world.count("came/stale sectors: the broker refused to start")
            host.disk.put(error.path, host.disk.stale.pop(error.path))
        elif self.damaged:
            host.world.count("came/damage: the broker refused to start")
            undo(host.disk, self.damaged)
            self.damaged.clear()
        else:
            self.restart_after_ms = max(self.restart_after_ms, UNEXPLAINED_MS)
            raise error
        host.world.note(host.name, f"refuses to start: {error}")

    def _ended(self, how: str) -> None:
        world = self.host.world
        self._forget_opened()
        if how != "returned":
            fault_met(world, f"({how.partition(' of ')[0]})", self.node)
        self.node = None
        world.note(self.host.name, f"starts again in {self.restart_after_ms} ms")
        again = self._boot_again if self.host.machine_up else self.boot
        world.after(self.restart_after_ms * 1_000_000, again)

    def _boot_again(self) -> None:
        if self.host.machine_up:
            self.boot()


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
