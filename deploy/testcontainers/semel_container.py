"""A broker in a container, for testcontainers (https://testcontainers-python.readthedocs.io). Copy this file.

    with SemelContainer() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})

Python tests need no container: the pytest fixture `semel_broker` starts a broker in the process (docs/testing.md).
"""

from __future__ import annotations

import socket
import time
from typing import Self

from testcontainers.core.container import DockerContainer

PORT = 9092
"""Of the container."""
START_S = 60


class SemelContainer(DockerContainer):
    """A broker of its own, without data. `settings`: of the broker, such as {"num.partitions": "3"}.

    The port of the host is chosen before the start, because the broker tells it to its clients.
    """

    def __init__(self, image: str = "semel:local", settings: dict[str, str] | None = None) -> None:
        super().__init__(image)
        self._host_port = _free_port()
        self.with_bind_ports(PORT, self._host_port)
        self.with_env("SEMEL_LISTENERS", f"HOST://0.0.0.0:{PORT}")
        self.with_env("SEMEL_ADVERTISED_LISTENERS", f"HOST://{self.bootstrap_servers}")
        self.with_env("SEMEL_LISTENER_SECURITY_PROTOCOL_MAP", "HOST:PLAINTEXT")
        self.with_env("SEMEL_GROUP_INITIAL_REBALANCE_DELAY_MS", "0")
        for name, value in (settings or {}).items():
            self.with_env("SEMEL_" + name.upper().replace(".", "_"), value)

    @property
    def bootstrap_servers(self) -> str:
        """HOST:PORT for programs of this machine."""
        return f"{self.get_container_host_ip()}:{self._host_port}"

    def start(self) -> Self:
        """Start the container; return when the broker answers. Raises TimeoutError with the broker's log."""
        super().start()
        deadline = time.monotonic() + START_S
        while self.exec(["python", "-m", "semel_broker.health", f"127.0.0.1:{PORT}"]).exit_code != 0:
            if time.monotonic() > deadline:
                log = b"\n".join(self.get_logs()).decode(errors="replace")
                self.stop()
                raise TimeoutError(f"the broker did not answer within {START_S} s; its log:\n{log}")
            time.sleep(0.1)
        return self


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
