"""Producer ids that are bound to their owners by a keyed hash."""

from __future__ import annotations

import pytest
from broker.coordination.owners import SECRET, owners
from hypothesis import given
from hypothesis import strategies as st
from semel_broker.coordination.producer_owners import (
    BOUND,
    NUMBERS,
    REFUSALS_MAX,
    TAG_BITS,
    VERIFIED_MAX,
    owner_of,
    transactional_owner,
)
from semel_broker.security.authorizer import ANONYMOUS, Principal
from semel_protocol.errors import ErrorCode, KafkaError

ALICE = Principal("User:alice", "10.0.0.1")
MALLORY = Principal("User:mallory", "10.0.0.2")

NAMES = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)


@given(NAMES, st.integers(0, NUMBERS - 1), st.binary(max_size=100))
def test_a_bound_id_is_a_positive_64_bit_number_with_its_number_and_its_owner(
    name: str, number: int, secret: bytes
) -> None:
    ours = owners(secret)
    bound = ours.bind(name, number)
    assert BOUND <= bound < 2**63
    assert bound % NUMBERS == number
    assert ours.owns(name, bound)
    assert bound == owners(secret).bind(name, number), "all brokers of a cluster bind alike"


@given(st.lists(NAMES, min_size=2, max_size=2, unique=True), st.integers(0, NUMBERS - 1))
def test_an_id_has_one_owner(names: list[str], number: int) -> None:
    """For all names that hypothesis finds: the chance that a wrong tag fits is 1 in 2^28."""
    ours = owners()
    assert not ours.owns(names[0], ours.bind(names[1], number))
    assert not ours.owns(names[0], owners(SECRET + b"another").bind(names[0], number))


def test_each_bit_of_an_id_counts() -> None:
    ours = owners()
    bound = ours.bind("x", 12345)
    assert [bit for bit in range(63) if ours.owns("x", bound ^ (1 << bit))] == []


def test_tags_are_spread_evenly() -> None:
    tags = {owners().bind("x", number) >> 34 for number in range(2000)}
    assert len(tags) > 1990
    assert max(tags) - BOUND // NUMBERS > 0.99 * (1 << TAG_BITS)


def test_numbers_wrap() -> None:
    assert owners().bind("x", NUMBERS + 5) == owners().bind("x", 5)


def test_kinds_of_owners_have_no_name_in_common() -> None:
    assert owner_of(None, ALICE) == "principal User:alice"
    assert owner_of("tx", ALICE) == transactional_owner("tx") == "transactional id tx"
    assert owner_of("", ALICE) != owner_of(None, ALICE)


def test_ids_of_older_versions_are_accepted_from_all_clients_and_later_ones_from_none() -> None:
    end = [0]
    ours = owners(unbound_end=lambda: end[0])
    with pytest.raises(KafkaError) as refused:
        ours.check("x", 0, ALICE)
    assert refused.value.code is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    end[0] = 1000
    ours.check("x", 0, ALICE)
    ours.check("y", 999, MALLORY)
    with pytest.raises(KafkaError):
        ours.check("x", 1000, ALICE)


def test_what_is_remembered_is_bounded_and_no_foreign_id_is_among_it() -> None:
    ours = owners()
    first = ours.bind("x", 0)
    for number in range(VERIFIED_MAX + 10):
        ours.check("x", ours.bind("x", number), ALICE)
    assert len(ours._verified) == VERIFIED_MAX
    ours.check("x", first, ALICE)
    with pytest.raises(KafkaError):
        ours.check("y", first, ALICE)
    ours.check("x", first, ALICE)


def test_refusals_are_counted_for_each_principal_and_for_each_host_without_authentication() -> None:
    ours = owners()

    def refused(sender: Principal) -> ErrorCode:
        with pytest.raises(KafkaError) as error:
            ours.check("x", BOUND, sender)
        return error.value.code

    hosts = [Principal(ANONYMOUS.name, f"10.0.0.{host}") for host in range(2)]
    for sender in (MALLORY, hosts[0]):
        for _ in range(REFUSALS_MAX):
            assert refused(sender) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert refused(sender) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert refused(Principal(MALLORY.name, "10.9.9.9")) is ErrorCode.NOT_ENOUGH_REPLICAS, "one principal, two hosts"
    for sender in (ALICE, hosts[1]):
        assert refused(sender) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
