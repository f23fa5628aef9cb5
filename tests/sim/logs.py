"""Sends the client's log lines to the transcript, under the host that wrote them. An error line fails the run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from sim.loop import SimLoop

CLIENT_LOGGER = "semel"


class ToWorld(logging.Handler):
    """The handler. The client logs an error only for an unexpected event, so an error is a failure of the run."""

    def emit(self, record: logging.LogRecord) -> None:
        loop = asyncio._get_running_loop()
        if not isinstance(loop, SimLoop) or loop.dead:
            return
        if record.levelno >= logging.ERROR:
            error = record.exc_info[1] if record.exc_info else None
            loop.world.fail(loop.host.name, record.getMessage(), error)
        elif loop.world.is_listened_to:
            loop.world.tell(loop.host.name, record.getMessage())


@contextmanager
def captured() -> Iterator[None]:
    """Within this context, the client's log goes to the world and nowhere else."""
    logger = logging.getLogger(CLIENT_LOGGER)
    handler, before = ToWorld(), (logger.handlers, logger.propagate, logger.level)
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.handlers, logger.propagate = before[0], before[1]
        logger.setLevel(before[2])
