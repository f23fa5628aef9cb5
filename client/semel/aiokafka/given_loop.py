"""aiokafka's deprecated setting `loop`: the event loop that an object is to run in."""

from __future__ import annotations

import asyncio
import warnings

from semel.errors import KafkaConfigurationError


class GivenLoop:
    """The loop that a program gave to a constructor, or None. semel uses the loop that runs at `start`."""

    def __init__(self, loop: object) -> None:
        if loop is not None and not isinstance(loop, asyncio.AbstractEventLoop):
            raise KafkaConfigurationError(f"loop={loop!r}: give an event loop, or leave it out")
        if loop is not None:
            warnings.warn(
                "the setting `loop` has no effect: leave it out, and start the object in that loop",
                DeprecationWarning,
                stacklevel=3,
            )
        self._loop = loop

    def check(self, kind: str) -> None:
        """Raise KafkaConfigurationError when another loop runs."""
        if self._loop is not None and self._loop is not asyncio.get_running_loop():
            raise KafkaConfigurationError(f"{kind} was given another event loop than the one that runs: leave it out")
