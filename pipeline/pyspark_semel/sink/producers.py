"""The producers of a worker process. They are kept from one batch to the next, with their connections.

Exactly once: a producer is a member of the sink's transaction group under a name that it alone has, and takes part in a
step at most once. Two attempts of a task never share a name, so that a late one cannot end what the other has prepared.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict

from semel import GroupStep, Producer

from pyspark_semel.options import ClientSettings
from pyspark_semel.sink.identity import fresh_name

log = logging.getLogger(__name__)

IDLE_MAX = 16
"""A worker process may serve several queries, and write sinks that are gone; those used last are kept."""

Place = tuple[tuple[tuple[str, str], ...], str]
"""Settings and group; no group: at least once."""


class Idle:
    """Producers that no task has now, of one event loop."""

    def __init__(self) -> None:
        self._producers: OrderedDict[Producer, tuple[Place, int]] = OrderedDict()

    def take(self, place: Place, below_epoch: int) -> Producer | None:
        """One of this place that was last used in an older step."""
        for producer, (where, epoch) in self._producers.items():
            if where == place and epoch < below_epoch:
                del self._producers[producer]
                return producer
        return None

    def put(self, place: Place, epoch: int, producer: Producer) -> Producer | None:
        """Gives the one that is to be stopped, if these are too many now."""
        self._producers[producer] = place, epoch
        return self._producers.popitem(last=False)[0] if len(self._producers) > IDLE_MAX else None


_idle: dict[asyncio.AbstractEventLoop, Idle] = {}
"""One event loop per process: what a fork inherits is nothing to it."""


async def member(settings: ClientSettings, step: GroupStep) -> Producer:
    """A producer in this step, its transaction begun. Raises what `Producer.start` and `join` raise.

    ProducerFenced: the step is over; says who has begun another one.
    """
    producer = _here().take((settings.key, step.group), step.epoch)
    if producer is None:
        name = f"{step.group}/{fresh_name()}"
        producer = Producer(**settings.keywords(), transactional_id=name, transaction_group_step=step)
        await producer.start()
    else:
        try:
            await producer.join(step)
        except BaseException:
            await discard(producer)
            raise
    await producer.begin_transaction()
    return producer


async def independent(settings: ClientSettings) -> Producer:
    """A producer without transactions."""
    producer = _here().take((settings.key, ""), 1)
    if producer is None:
        producer = Producer(**settings.keywords())
        await producer.start()
    return producer


async def keep(producer: Producer, settings: ClientSettings, step: GroupStep | None) -> None:
    """The task is done with it."""
    surplus = _here().put((settings.key, step.group if step else ""), step.epoch if step else 0, producer)
    if surplus is not None:
        await discard(surplus)


async def discard(producer: Producer) -> None:
    """Stops it; its open transaction, if any, is aborted."""
    try:
        await producer.stop()
    except Exception as error:
        log.warning("a producer of the sink could not be stopped in good order: %s", error)


def _here() -> Idle:
    return _idle.setdefault(asyncio.get_running_loop(), Idle())
