"""EDGE: `semel serve --console`: `semel console` as a child process, so that its page takes no turn of the broker's
event loop.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from semel_broker.config.loading import BrokerConfig

EVERY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104
"""An address that a broker listens on -> one that a client of this machine can connect to."""
STOP_S = 3


class ConsoleProcess:
    """Its settings (user, TLS) come from the environment, as those of every command. It ends with the broker, also
    when the broker is killed: then its standard input ends.
    """

    def __init__(self, process: Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, config: BrokerConfig, broker_port: int, port: int) -> ConsoleProcess:
        """Start it. It prints the address of its page to standard error, where no log is, or why it cannot listen."""
        host = config.client_listeners[0].address.host
        host = EVERY_ADDRESS.get(host, host)
        address = f"[{host}]:{broker_port}" if ":" in host else f"{host}:{broker_port}"
        command = ["-m", "semel", "console", "-b", address, "--port", str(port), "--until-input-ends"]
        return cls(await asyncio.create_subprocess_exec(sys.executable, *command, stdin=PIPE, stdout=sys.stderr))

    async def stop(self) -> None:
        """End it, within `STOP_S`."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), STOP_S)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
