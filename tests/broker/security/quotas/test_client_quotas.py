"""Clients against their quotas: throttle times, shared rates, bounded memory."""

from __future__ import annotations

import pytest
from semel_broker.security.quotas.client_quotas import SENSORS_MAX, SILENT_S, ClientQuotas, ConnectionAdmission, Sensors
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.quotas import DEFAULT, QuotaEntity


def quotas(entity: QuotaEntity, **values: float) -> ClientQuotas:
    made = ClientQuotas()
    made.table.change({entity: values})
    made.changed()
    return made


def test_without_a_quota_nothing_is_active() -> None:
    made = ClientQuotas()
    assert (made.is_active, made.is_metered, made.has_ip_rates) == (False, False, False)
    assert made.produced("alice", "app", 1 << 30, 0.0) == 0.0
    assert not made.throttled


def test_a_quota_of_a_user_is_shared_by_its_client_ids() -> None:
    made = quotas(QuotaEntity(user="alice"), producer_byte_rate=100)
    assert made.produced("alice", "one", 1_000, 0.0) == 0.0
    assert made.produced("alice", "two", 100, 0.0) == pytest.approx(1.0)
    assert made.produced("bob", "two", 1_000, 0.0) == 0.0


def test_a_default_quota_gives_each_its_own_rate() -> None:
    made = quotas(QuotaEntity(client_id=DEFAULT), producer_byte_rate=100)
    assert made.produced("alice", "one", 1_000, 0.0) == 0.0
    assert made.produced("alice", "two", 1_000, 0.0) == 0.0
    assert made.produced("bob", "two", 100, 0.0) == pytest.approx(1.0)


def test_a_fetch_above_the_quota_gets_nothing_and_is_not_counted() -> None:
    made = quotas(QuotaEntity(user="alice"), consumer_byte_rate=100)
    assert made.fetch_bytes_max("alice", "app") == 1_000
    assert made.fetched("alice", "app", 1_000, 0.0) == (0.0, True)
    wait_s, is_sent = made.fetched("alice", "app", 500, 0.0)
    assert (wait_s, is_sent) == (pytest.approx(5.0), False)
    assert made.fetched("alice", "app", 500, 11.0) == (0.0, True)


def test_a_batch_above_the_quota_of_a_window_is_read_in_an_empty_window() -> None:
    made = quotas(QuotaEntity(user="alice"), consumer_byte_rate=100)
    assert made.fetched("alice", "app", 10_000, 0.0) == (11.0, True)
    assert made.fetched("alice", "app", 10_000, 5.0) == (11.0, False)
    assert made.fetched("alice", "app", 10_000, 11.0) == (11.0, True)


def test_a_share_of_time_is_throttled_for_a_second_at_most() -> None:
    made = quotas(QuotaEntity(user="alice"), request_percentage=10)
    assert made.worked("alice", "app", 1.0, 0.0) == 0.0
    assert made.worked("alice", "app", 0.05, 0.0) == pytest.approx(0.5)
    assert made.worked("alice", "app", 3.0, 0.0) == 1.0


def test_strict_changes_are_refused_until_the_bucket_has_tokens() -> None:
    made, now = quotas(QuotaEntity(user="alice"), controller_mutation_rate=2), [0.0]
    mutations = made.mutations("alice", "app", is_strict=True, clock=lambda: now[0])
    assert mutations is not None
    mutations.take(20)
    mutations.take(6)  # accepted: the bucket was not overdrawn before
    with pytest.raises(KafkaError) as refused:
        mutations.take(1)
    assert refused.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert mutations.throttle_s == pytest.approx(2.0)
    now[0] = 2.0
    mutations.take(1)


def test_other_changes_are_made_and_throttled() -> None:
    made = quotas(QuotaEntity(user="alice"), controller_mutation_rate=2)
    mutations = made.mutations("alice", "app", is_strict=False, clock=lambda: 0.0)
    assert mutations is not None
    mutations.take(22)
    assert mutations.throttle_s == 0.0
    mutations.take(10)
    assert mutations.throttle_s == pytest.approx(5.0)


def test_connections_wait_until_they_are_due_and_are_refused_beyond_a_second() -> None:
    made = quotas(QuotaEntity(ip=DEFAULT), connection_creation_rate=2)
    assert not made.is_active  # it costs requests nothing
    burst = [made.connected("10.0.0.1", 0.0) for _ in range(22)]
    assert burst == [ConnectionAdmission()] * 22
    later = [made.connected("10.0.0.1", 0.0) for _ in range(4)]
    assert later == [
        ConnectionAdmission(0.5),
        ConnectionAdmission(1.0),
        ConnectionAdmission(1.0, True),
        ConnectionAdmission(1.0, True),
    ]
    assert made.connected("10.0.0.2", 0.0) == ConnectionAdmission()
    assert made.connected("10.0.0.1", 1.0) == ConnectionAdmission(0.5)


@pytest.mark.proves("unauthenticated-clients")
def test_ipv6_addresses_of_one_network_share_the_default_quota_of_connections() -> None:
    made = quotas(QuotaEntity(ip=DEFAULT), connection_creation_rate=2)
    burst = [made.connected(f"2001:db8::{number:x}", 0.0) for number in range(22)]
    assert burst == [ConnectionAdmission()] * 22
    assert made.connected("2001:db8::ffff", 0.0) == ConnectionAdmission(0.5)
    assert made.connected("2001:db8:0:1::1", 0.0) == ConnectionAdmission()


def test_an_ipv6_address_with_a_quota_of_its_own_does_not_share_it() -> None:
    made = quotas(QuotaEntity(ip="2001:db8::1"), connection_creation_rate=2)
    assert [made.connected("2001:db8::1", 0.0) for _ in range(22)] == [ConnectionAdmission()] * 22
    assert made.connected("2001:db8::1", 0.0) == ConnectionAdmission(0.5)
    assert made.connected("2001:db8::2", 0.0) == ConnectionAdmission()


def test_throttles_are_counted() -> None:
    made = quotas(QuotaEntity(user="alice"), producer_byte_rate=100)
    made.produced("alice", "app", 1_200, 0.0)
    made.produced("alice", "app", 100, 0.0)
    assert made.throttled["producer_byte_rate"].count == 2
    assert made.throttled["producer_byte_rate"].seconds == pytest.approx(5.0)


def test_ever_new_clients_do_not_fill_the_memory() -> None:
    made = quotas(QuotaEntity(client_id=DEFAULT), producer_byte_rate=1)
    for number in range(SENSORS_MAX + 100):
        made.produced("alice", f"app-{number}", 100, number / 1_000)
    assert len(made._rates) == len(made._clients) == SENSORS_MAX


def test_sensors_that_are_silent_for_an_hour_are_removed() -> None:
    sensors: Sensors[list[int]] = Sensors(list)
    first = sensors.get("a", 0.0)
    sensors.get("b", 10.0)
    assert sensors.get("a", SILENT_S) is first
    sensors.get("c", SILENT_S + 11.0)
    assert len(sensors) == 2
    assert sensors.get("b", SILENT_S + 11.0) == []
