"""A transaction whose transactional id is hidden may look like a hanging one: the commands say so."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from click.testing import CliRunner, Result
from semel import Admin, NewTopic, Producer
from semel.admin import Acl, Operation, PatternType, Permission, ResourceType
from semel.cli.main import main
from semel_broker.testing.in_process import EphemeralBroker

pytestmark = [pytest.mark.real_time, pytest.mark.semel(security="scram"), pytest.mark.semel_only("users of its own")]

VIEWER = "viewer"
WORDS = "hidden from this principal"


@pytest.fixture
async def in_progress(semel_broker: EphemeralBroker) -> AsyncIterator[EphemeralBroker]:
    """The producer of `shop` has a record in orders-0 in a transaction; the viewer may read the topic."""
    settings = semel_broker.client_settings()
    async with Admin(**settings) as admin:
        await admin.create_topics([NewTopic("orders", 1)])
        await admin.create_acls(
            [
                Acl(ResourceType.TOPIC, "orders", PatternType.LITERAL, f"User:{VIEWER}", "*", each, Permission.ALLOW)
                for each in (Operation.DESCRIBE, Operation.READ)
            ]
        )
    semel_broker.create_user(VIEWER, "its password")
    async with Producer(**settings, transactional_id="shop") as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("orders", b"one")
        yield semel_broker
        await producer.abort_transaction()


async def semel(broker: EphemeralBroker, user: str | None, *words: str, answer: str = "") -> Result:
    settings = broker.client_settings() if user is None else broker.client_settings("semel", user)
    options = [part for name, value in settings.items() for part in ("-X", f"{name}={value}")]
    return await asyncio.to_thread(CliRunner().invoke, main, [*words, *options], input=answer)


async def test_commands_say_that_a_transaction_may_be_hidden_instead_of_hanging(in_progress: EphemeralBroker) -> None:
    found = await semel(in_progress, VIEWER, "txn", "hanging", "orders")
    assert (found.exit_code, WORDS in found.output) == (3, True), found.output
    (facts,) = json.loads((await semel(in_progress, VIEWER, "txn", "hanging", "orders", "--json")).stdout)["hanging"]
    assert facts["may_be_hidden"]
    stuck = await semel(in_progress, VIEWER, "topic", "stuck", "orders")
    assert WORDS in stuck.output
    producer = ("--partition", "orders:0", "--producer-id", str(facts["producer_id"]))
    refused = await semel(in_progress, VIEWER, "txn", "abort", *producer, answer="n\n")
    assert WORDS in refused.output


async def test_a_principal_that_may_describe_the_id_sees_no_hanging_transaction(in_progress: EphemeralBroker) -> None:
    found = await semel(in_progress, None, "txn", "hanging", "orders")
    assert (found.exit_code, WORDS in found.output) == (0, False), found.output
