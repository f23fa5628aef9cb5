"""The class for testcontainers: the broker accepts what it sets. Docker is not needed: no container starts."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Any

import pytest
from semel_broker.config.loading import load

from tools.cluster import compose
from tools.cluster.programs import declared

ROOT = Path(__file__).parents[2]


class RemoteDocker:
    """A Docker on another host; no container is asked for."""

    def __init__(self, **settings: object) -> None: ...

    def get_connection_mode(self) -> Any:
        return importlib.import_module("testcontainers.core.config").ConnectionMode.docker_host

    def host(self) -> str:
        return "docker-host"


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("testcontainers.core.container.DockerClient", RemoteDocker)
    spec = importlib.util.spec_from_file_location("semel_container", ROOT / "deploy/testcontainers/semel_container.py")
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def test_the_broker_advertises_the_port_of_the_host(module: Any) -> None:
    container = module.SemelContainer(settings={"num.partitions": "3"})
    project = compose.load(ROOT / "docker-compose.yml", {})
    image = declared(project, project.services["broker-1"]).variables
    config = load(environment={**image, **container.env})
    assert config.warnings == []
    assert config.num_partitions == 3
    (listener,) = config.client_listeners
    assert listener.address.port == module.PORT
    assert str(listener.advertised) == container.bootstrap_servers
    published = {str(port).partition("/")[0]: at for port, at in container.ports.items()}
    assert container.bootstrap_servers == f"docker-host:{published[str(module.PORT)]}"
