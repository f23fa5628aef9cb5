"""What the driver does about a batch: begins a step of the sink's transaction group, and decides it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from semel import GroupStep, PreparedTransaction, TransactionGroup
from semel.errors import ProducerFenced, TransactionWasCommitted

from pyspark_semel.event_loop import run
from pyspark_semel.sink.identity import owner
from pyspark_semel.sink.options import SinkOptions
from pyspark_semel.sink.task import Written

log = logging.getLogger(__name__)

_groups: dict[tuple[asyncio.AbstractEventLoop, str, tuple[tuple[str, str], ...]], TransactionGroup] = {}
"""Of this process, with their connections. One event loop per process: what a fork inherits is nothing to it."""

TWO_DRIVERS = (
    "Another driver writes to this sink: is the query running twice, or do two queries share one semel.sink.id? What "
    "this one has written of the batch is not visible, and never will be"
)


def begin(options: SinkOptions, group: str) -> GroupStep:
    """A new step; what is left of the last one is aborted. Raises what `TransactionGroup.begin` raises."""
    return run(_begin(options, group))


def commit(options: SinkOptions, messages: Sequence[Written | None]) -> None:
    """Makes all of the batch visible, once. Raises ProducerFenced when somebody else has the sink now."""
    written = [message for message in messages if message is not None]
    assert len(written) == len(messages) > 0, f"Spark commits a batch of which it has {messages}"
    step, token = written[0].step, written[0].token
    assert step is not None
    assert all((message.step, message.token) == (step, token) for message in written), "tasks of two batches"
    if all(message.skipped for message in written):
        log.info("sink %s: %s was committed before, nothing was written", step.group, token)
        return
    prepared = [message.transaction for message in written if message.transaction is not None]
    try:
        decided_now = run(_commit(options, step, token, prepared))
    except ProducerFenced as error:
        error.extend_message(TWO_DRIVERS)
        raise
    if not decided_now:
        log.info("sink %s: %s had been committed already", step.group, token)


def abort(options: SinkOptions, step: GroupStep | None) -> None:
    """Makes all of this step invisible for good, also what attempts wrote that nobody knows of.

    Harmless when the step was decided or is over. step: None when it is not known; the next one aborts it then.
    """
    if step is None:
        log.info("the sink's step is not known here: the next batch aborts it, or its time-out")
        return
    try:
        run(_abort(options, step))
    except TransactionWasCommitted:
        log.info("sink %s: step %d was committed; the batch is skipped when it comes again", step.group, step.epoch)


async def _begin(options: SinkOptions, group: str) -> GroupStep:
    return await (await _group(options, group)).begin()


async def _commit(options: SinkOptions, step: GroupStep, token: str, prepared: list[PreparedTransaction]) -> bool:
    return await (await _group(options, step.group)).commit(step, token, prepared)


async def _abort(options: SinkOptions, step: GroupStep) -> None:
    await (await _group(options, step.group)).abort(step)


async def _group(options: SinkOptions, name: str) -> TransactionGroup:
    place = asyncio.get_running_loop(), name, options.settings.key
    group = _groups.get(place)
    if group is None:
        settings = options.group_keywords()
        group = TransactionGroup(name, **settings, owner=owner(f"sink {name!r}"), timeout_ms=options.timeout_ms)
        await group.start()
        _groups[place] = group
    return group
