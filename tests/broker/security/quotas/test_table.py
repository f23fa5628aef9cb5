"""The quota that holds for a client: Kafka's order of eight."""

from __future__ import annotations

import pytest
from semel_broker.security.quotas.table import CACHED_MAX, Bound, QuotaTable
from semel_protocol.quotas import ANY, DEFAULT, PRODUCER_BYTE_RATE, QuotaEntity, QuotaFilter

KEY = PRODUCER_BYTE_RATE
ORDER = [
    (QuotaEntity(user="alice", client_id="app"), ("alice", "app")),
    (QuotaEntity(user="alice", client_id=DEFAULT), ("alice", "app")),
    (QuotaEntity(user="alice"), ("alice", None)),
    (QuotaEntity(user=DEFAULT, client_id="app"), ("alice", "app")),
    (QuotaEntity(user=DEFAULT, client_id=DEFAULT), ("alice", "app")),
    (QuotaEntity(user=DEFAULT), ("alice", None)),
    (QuotaEntity(client_id="app"), (None, "app")),
    (QuotaEntity(client_id=DEFAULT), (None, "app")),
]


@pytest.mark.parametrize("first", range(len(ORDER)))
def test_the_first_in_kafkas_order_holds(first: int) -> None:
    table = QuotaTable()
    table.change({entity: {KEY: float(number)} for number, (entity, _) in enumerate(ORDER) if number >= first})
    user, client_id = ORDER[first][1]
    assert table.bound(KEY, "alice", "app") == Bound(float(first), user, client_id)


def test_an_entity_without_a_value_for_the_quota_is_passed_over() -> None:
    table = QuotaTable()
    table.change({QuotaEntity(user="alice"): {"request_percentage": 5.0}, QuotaEntity(client_id="app"): {KEY: 7.0}})
    assert table.bound(KEY, "alice", "app") == Bound(7.0, None, "app")
    assert table.bound(KEY, "alice", "other") is None


def test_a_change_is_in_force_at_once() -> None:
    table, alice = QuotaTable(), QuotaEntity(user="alice")
    table.change({alice: {KEY: 1.0}})
    assert table.bound(KEY, "alice", "app") == Bound(1.0, "alice", None)
    table.change({alice: {KEY: 2.0}})
    assert table.bound(KEY, "alice", "app") == Bound(2.0, "alice", None)
    table.change({alice: {}})
    assert table.bound(KEY, "alice", "app") is None
    assert table.keys == frozenset()


def test_ever_new_client_ids_do_not_fill_the_cache() -> None:
    table = QuotaTable()
    table.change({QuotaEntity(client_id=DEFAULT): {KEY: 1.0}})
    for number in range(CACHED_MAX + 10):
        table.bound(KEY, "alice", f"app-{number}")
    assert len(table._cache) <= CACHED_MAX


def test_an_address_has_its_own_rate_or_the_default() -> None:
    table = QuotaTable()
    table.change(
        {
            QuotaEntity(ip=DEFAULT): {"connection_creation_rate": 5.0},
            QuotaEntity(ip="10.0.0.1"): {"connection_creation_rate": 50.0},
        }
    )
    assert table.connection_rate("10.0.0.1") == ("10.0.0.1", 50.0)
    assert table.connection_rate("10.0.0.2") == ("10.0.0.2", 5.0)


BOTH = QuotaEntity(user="alice", client_id="app")


@pytest.mark.parametrize(
    ("wanted", "entity", "is_selected"),
    [
        (QuotaFilter(), BOTH, True),
        (QuotaFilter(strict=True), BOTH, False),
        (QuotaFilter(user="alice"), BOTH, True),
        (QuotaFilter(user="alice", strict=True), BOTH, False),
        (QuotaFilter(user="alice", client_id=ANY, strict=True), BOTH, True),
        (QuotaFilter(user="bob"), BOTH, False),
        (QuotaFilter(user=ANY), QuotaEntity(user=DEFAULT), True),
        (QuotaFilter(user=DEFAULT), QuotaEntity(user=DEFAULT), True),
        (QuotaFilter(user=DEFAULT), BOTH, False),
        (QuotaFilter(user="<default>"), QuotaEntity(user=DEFAULT), False),
        (QuotaFilter(ip=ANY), BOTH, False),
        (QuotaFilter(user=ANY), QuotaEntity(client_id="app"), False),
    ],
)
def test_a_filter_selects_as_in_kafka(wanted: QuotaFilter, entity: QuotaEntity, is_selected: bool) -> None:
    assert wanted.matches(entity) is is_selected
