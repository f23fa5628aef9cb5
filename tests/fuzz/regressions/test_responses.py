"""What fuzzing of responses has found in the client, each as the smallest lie that showed it."""

from __future__ import annotations

import pytest
from client.fake_broker import FakeBroker
from semel.admin import Admin
from semel.errors import UnsupportedVersionError
from semel_protocol.api import APIS

METADATA = 3


async def test_version_that_cannot_say_what_is_asked_is_an_error_of_the_clients_own() -> None:
    versions = {key: api.advertised for key, api in APIS.items() if api.advertised}
    async with FakeBroker(versions=versions | {METADATA: (0, 0)}) as broker:
        with pytest.raises(UnsupportedVersionError, match="Metadata v0"):
            async with Admin(bootstrap_servers=broker.address) as admin:
                await admin.list_topics()
