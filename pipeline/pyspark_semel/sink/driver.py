"""Begins, commits and aborts a batch on the driver: each batch is one step of the sink's transaction group.

A batch write without a name has a generated group, which is forgotten after its only step.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from semel import GroupStep, PreparedTransaction, TransactionGroup
from semel.errors import KafkaConnectionError, KafkaError, NotSemelBrokerError, ProducerFenced, TransactionWasCommitted

from pyspark_semel.event_loop import run
from pyspark_semel.options import NO_ANSWER
from pyspark_semel.sink.identity import owner
from pyspark_semel.sink.options import SinkOptions
from pyspark_semel.sink.task import Written

log = logging.getLogger(__name__)

_groups: dict[tuple[asyncio.AbstractEventLoop, str, tuple[tuple[str, str], ...]], TransactionGroup] = {}
"""The transaction groups of this process, with their connections. One event loop per process: a fork does not use its
parent's.
"""

FORGET_S = 10.0
"""How long the driver of a batch write tries to have its generated group forgotten."""

TWO_DRIVERS = (
    "Another driver writes to this sink: is the query running twice, or do two queries share one semel.sink.id? The "
    "rows that this driver wrote for the batch are not visible and will be aborted"
)

OTHER_BROKERS = "The sink is exactly once with semel's brokers only. With others set semel.delivery to at-least-once"


def begin(options: SinkOptions, group: str) -> GroupStep:
    """Begin a new step, which aborts an unfinished earlier one. Raises the errors of `TransactionGroup.begin`."""
    return run(_begin(options, group))


def commit(options: SinkOptions, messages: Sequence[Written | None]) -> None:
    """Commit all transactions of the batch, once. Raises ProducerFenced if another driver has begun a later step."""
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
    """Abort the whole step, including transactions of attempts that Spark does not report.

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


async def _begin(options: SinkOptions, name: str) -> GroupStep:
    try:
        async with _group(options, name) as group:
            return await group.begin()
    except KafkaConnectionError as error:
        error.extend_message(NO_ANSWER)
        raise
    except NotSemelBrokerError as error:
        error.extend_message(OTHER_BROKERS)
        raise


async def _commit(options: SinkOptions, step: GroupStep, token: str, prepared: list[PreparedTransaction]) -> bool:
    async with _group(options, step.group) as group:
        decided_now = await group.commit(step, token, prepared)
        await _forget(options, group, step)
        return decided_now


async def _abort(options: SinkOptions, step: GroupStep) -> None:
    async with _group(options, step.group) as group:
        await group.abort(step)
        await _forget(options, group, step)


async def _forget(options: SinkOptions, group: TransactionGroup, step: GroupStep) -> None:
    """Make the brokers forget a generated group, whose outcome is known. A failure changes nothing for the rows: the
    brokers keep the group until it expires.
    """
    if options.sink_id is not None:
        return
    try:
        async with asyncio.timeout(FORGET_S):
            await group.forget(step)
    except (KafkaError, TimeoutError) as error:
        log.info("sink_group_not_forgotten: %s stays in the lists until it expires: %s", step.group, error)


@asynccontextmanager
async def _group(options: SinkOptions, name: str) -> AsyncIterator[TransactionGroup]:
    """The group of a sink, which is kept with its connections; a generated one is used once, and stopped."""
    if options.sink_id is None:
        async with _new_group(options, name) as group:
            yield group
        return
    place = asyncio.get_running_loop(), name, options.settings.key
    kept = _groups.get(place)
    if kept is None:
        kept = _new_group(options, name)
        await kept.start()
        _groups[place] = kept
    yield kept


def _new_group(options: SinkOptions, name: str) -> TransactionGroup:
    settings = options.group_keywords()
    return TransactionGroup(name, **settings, owner=owner(f"sink {name!r}"), timeout_ms=options.timeout_ms)
