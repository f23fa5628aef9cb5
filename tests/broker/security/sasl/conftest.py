from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from broker.conftest import StartBroker
from broker.harness import Harness
from broker.sasl_login import make_user

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@pytest.fixture
def start_sasl(start_broker: StartBroker) -> Callable[..., Awaitable[Harness]]:
    """A broker with SASL_PLAINTEXT and the user alice."""

    async def start(**settings: Any) -> Harness:
        given = {
            "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
            "sasl_enabled_mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512,PLAIN",
            "sasl_plain_without_tls_enable": "true",
            "durability": "os",
            **settings,
        }
        broker = await start_broker(**given)
        await make_user(broker, "alice")
        return broker

    return start


@pytest.fixture
async def sasl_broker(start_sasl: Callable[..., Awaitable[Harness]]) -> Harness:
    return await start_sasl()
