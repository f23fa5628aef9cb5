"""Safeguards of fairness: no connection keeps the broker's processor or memory from the other connections."""

from __future__ import annotations

from functools import partial
from typing import Any

from semel_broker.context import INT32_MAX
from semel_broker.net.connection import Connection
from semel_broker.net.entrances import Entrances
from semel_broker.net.frame_buffer import FrameBuffer
from semel_broker.net.pipeline import ConnectionPipeline
from semel_broker.scheduling.answer_memory import AnswerMemory
from semel_broker.scheduling.frame_memory import FrameMemory, Holding
from semel_broker.scheduling.turns import Slices

from sim.ablations.ablation import Seam, safeguard
from sim.crowd import CrowdRun
from sim.quota_run import QuotaRun

of_fairness = partial(safeguard, alone=CrowdRun)


@of_fairness(
    "turns of connections", "a connection with thousands of pipelined requests lets other connections have their turn"
)
def no_turns(seam: Seam) -> None:
    def all_at_once(self: ConnectionPipeline, now: float | None = None) -> None:
        self.write()
        while self._may_start():
            self._start(self._queue.popleft()).started_at = self._context.loop.time()
            self.write()
        self._received_at.clear()
        self._check_in_flight()

    seam.replace(ConnectionPipeline, "advance", all_at_once)


@of_fairness("slices of long requests", "a request with very many elements lets other connections have their turn")
def no_slices(seam: Seam) -> None:
    seam.replace(Slices, "is_over", lambda self, steps=1: False)


@of_fairness(
    "nothing is started for a peer that has gone",
    "requests of a closed connection are not executed, since their answers cannot be read",
)
def start_for_closed_connections(seam: Seam) -> None:
    lost = Connection.connection_lost

    def lost_and_gone_on(self: Connection, exc: Exception | None) -> None:
        queue = list(self._pipeline._queue)
        lost(self, exc)
        self._pipeline._queue.extend(queue)
        self._pipeline.advance()

    seam.replace(Connection, "connection_lost", lost_and_gone_on)
    seam.replace(Connection, "takes_requests", property(lambda self: not self._write_paused))


@of_fairness(
    "memory grows as a frame arrives",
    "a frame takes memory for the bytes that have arrived, not for the size that it announces",
)
def memory_as_announced(seam: Seam) -> None:
    cut = FrameBuffer._cut

    def cut_whole(self: FrameBuffer, end: int) -> Any:
        frames = cut(self, end)
        if self._frame is not None:
            self._frame += bytes(self._size - len(self._frame))
        return frames

    seam.replace(FrameBuffer, "_cut", cut_whole)


@of_fairness("memory is reclaimed", "connections that hold memory without progress do not block the others")
def no_eviction(seam: Seam) -> None:
    seam.replace(FrameMemory, "stalled", lambda self, moved_bytes_min: [])


@of_fairness("small frames before large ones", "a small frame does not wait for memory behind large frames")
def one_line(seam: Seam) -> None:
    def is_large(self: FrameMemory, holding: Holding) -> bool:
        return False

    seam.replace(FrameMemory, "_is_large", is_large)


@of_fairness(
    "an answer takes a part of the free memory", "unread answers leave memory for the answers to other connections"
)
def answers_of_any_size(seam: Seam) -> None:
    seam.replace(AnswerMemory, "answer_bytes_max", property(lambda self: INT32_MAX))


@safeguard(
    "first requests of new connections wait",
    "a client that opens a connection for each request stays within its quota",
    alone=QuotaRun,
)
def no_entrances(seam: Seam) -> None:
    seam.replace(Entrances, "wait", lambda *_: True)
