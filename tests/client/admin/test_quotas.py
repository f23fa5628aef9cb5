"""Quotas of clients through the Admin."""

from __future__ import annotations

import pytest
from semel.admin import Admin, QuotaEntity, QuotaFilter
from semel.errors import InvalidRequestError
from semel_broker.testing.in_process import EphemeralBroker

pytestmark = pytest.mark.real_time
ALICE = QuotaEntity(user="alice")
EVERY_APP = QuotaEntity(user="alice", client_id=QuotaEntity.DEFAULT)


@pytest.mark.semel_only("reads its own writes at once; the tests of semel quota run on Kafka")
async def test_quotas_are_altered_and_described(semel_broker: EphemeralBroker) -> None:
    async with Admin(bootstrap_servers=semel_broker.bootstrap_servers) as admin:
        await admin.alter_client_quotas(
            {ALICE: {"producer_byte_rate": 1e6, "request_percentage": 0.5}, EVERY_APP: {"consumer_byte_rate": 2e6}}
        )
        both = {EVERY_APP: {"consumer_byte_rate": 2e6}, ALICE: {"producer_byte_rate": 1e6, "request_percentage": 0.5}}
        assert await admin.describe_client_quotas() == both
        strict = QuotaFilter(user="alice", strict=True)
        assert await admin.describe_client_quotas(strict) == {ALICE: both[ALICE]}
        of_default = QuotaFilter(client_id=QuotaFilter.DEFAULT)
        assert await admin.describe_client_quotas(of_default) == {EVERY_APP: both[EVERY_APP]}
        assert await admin.describe_client_quotas(QuotaFilter(ip=QuotaFilter.ANY)) == {}
        await admin.alter_client_quotas({ALICE: {"producer_byte_rate": None}, EVERY_APP: {"consumer_byte_rate": None}})
        assert await admin.describe_client_quotas() == {ALICE: {"request_percentage": 0.5}}


@pytest.mark.semel_only("reads its own writes at once; the tests of semel quota run on Kafka")
async def test_a_refused_entity_is_named_and_the_others_are_altered(semel_broker: EphemeralBroker) -> None:
    async with Admin(bootstrap_servers=semel_broker.bootstrap_servers) as admin:
        wrong = QuotaEntity(ip="not an address")
        with pytest.raises(InvalidRequestError, match=r"ip not an address.*is not an IP address"):
            await admin.alter_client_quotas(
                {wrong: {"connection_creation_rate": 1}, ALICE: {"request_percentage": 0.5}}
            )
        await admin.alter_client_quotas({EVERY_APP: {"producer_byte_rate": 1}}, validate_only=True)
        assert await admin.describe_client_quotas() == {ALICE: {"request_percentage": 0.5}}
