"""Begins, commits and aborts a batch on the driver: each batch is one step of the sink's transaction group."""

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
"""The transaction groups of this process, with their connections. One event loop per process: a fork does not use its
parent's.
"""

TWO_DRIVERS = (
    "Another driver writes to this sink: is the query running twice, or do two queries share one semel.sink.id? The "
    "rows that this driver wrote for the batch are not visible and will be aborted"
)


def begin(options: SinkOptions, group: str) -> GroupStep:
    """Begins a new step, which aborts an unfinished earlier one. Raises the errors of `TransactionGroup.begin`."""
    return run(_begin(options, group))


def commit(options: SinkOptions, messages: Sequence[Written | None]) -> None:
    """Commits all transactions of the batch, once. Raises ProducerFenced if another driver has begun a later step."""
    written = [message for message in messages if message is not None]
    assert len(written) == len(messages) > 0, f"Spark commits a batch with missing messages: {messages}"
    step, token = written[0].step, written[0].token
    assert step is not None
    assert all((message.step, message.token) == (step, token) for message in written), (
        "the messages belong to two batches"
    )
    if all(message.skipped for message in written):
        log.info("sink_batch_skipped: sink %s has already committed %s", step.group, token)
        return
    prepared = [message.transaction for message in written if message.transaction is not None]
    try:
        decided_now = run(_commit(options, step, token, prepared))
    except ProducerFenced as error:
        error.extend_message(TWO_DRIVERS)
        raise
    if not decided_now:
        log.info("sink_commit_repeated: sink %s has already committed %s", step.group, token)


def abort(options: SinkOptions, step: GroupStep | None) -> None:
    """Aborts the whole step, including transactions of attempts that Spark does not report.

    An abort after the decision or the end of the step has no effect. step: None if it is not known; the next step
    aborts it.
    """
    if step is None:
        log.info("sink_step_unknown: the next batch aborts the step, or its timeout does")
        return
    try:
        run(_abort(options, step))
    except TransactionWasCommitted:
        log.info("sink_step_already_committed: sink %s, step %d; a repeated batch is skipped", step.group, step.epoch)


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
