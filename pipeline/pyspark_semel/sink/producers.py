"""The producers of a worker process, which keeps them and their connections from one batch to the next.

Exactly once: a producer is a member of the sink's transaction group under a unique name, and joins a step at most once.
Two attempts of a task never share a name, so a late attempt cannot end the transaction that the other has prepared.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict

from semel import GroupStep, Producer

from pyspark_semel.options import SparkClientSettings
from pyspark_semel.sink.identity import unique_name

log = logging.getLogger(__name__)

IDLE_MAX = 16
"""A worker process may serve several queries and sinks; it keeps the producers that were used last."""

Place = tuple[tuple[tuple[str, str], ...], str]
"""The client settings and the group; "" without a group: at least once."""


class IdleProducers:
    """The producers of one event loop that no task uses."""

    def __init__(self) -> None:
        self._producers: OrderedDict[Producer, tuple[Place, int]] = OrderedDict()

    def take(self, place: Place, below_epoch: int) -> Producer | None:
        """Remove and return a producer of this place that was last used in an older step."""
        for producer, (where, epoch) in self._producers.items():
            if where == place and epoch < below_epoch:
                del self._producers[producer]
                return producer
        return None

    def put(self, place: Place, epoch: int, producer: Producer) -> Producer | None:
        """Add a producer. Returns the least recently used one if there are too many; the caller stops it."""
        self._producers[producer] = place, epoch
        return self._producers.popitem(last=False)[0] if len(self._producers) > IDLE_MAX else None


_idle: dict[asyncio.AbstractEventLoop, IdleProducers] = {}
"""One event loop per process: a fork does not use the loop of its parent."""


async def member(settings: SparkClientSettings, step: GroupStep) -> Producer:
    """Return a producer in this step, with its transaction begun. Raises the errors of `Producer.start` and `join`.

    ProducerFenced: the step is over; the message names the process that began a later one.
    """
    producer = _idle_producers().take((settings.key, step.group), step.epoch)
    if producer is None:
        name = f"{step.group}/{unique_name()}"
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


async def independent(settings: SparkClientSettings) -> Producer:
    """Return a producer without transactions."""
    producer = _idle_producers().take((settings.key, ""), 1)
    if producer is None:
        producer = Producer(**settings.keywords())
        await producer.start()
    return producer


async def release(producer: Producer, settings: SparkClientSettings, step: GroupStep | None) -> None:
    """Return the producer to the idle producers."""
    surplus = _idle_producers().put((settings.key, step.group if step else ""), step.epoch if step else 0, producer)
    if surplus is not None:
        await discard(surplus)


async def discard(producer: Producer) -> None:
    """Stop the producer, which aborts its open transaction."""
    try:
        await producer.stop()
    except Exception as error:
        log.warning("sink_producer_stop_failed: %s", error)


def _idle_producers() -> IdleProducers:
    return _idle.setdefault(asyncio.get_running_loop(), IdleProducers())
