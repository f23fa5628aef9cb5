"""The authorizer decides as Kafka's StandardAuthorizer: denials first, implied operations, patterns, hosts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from semel_broker.security import authorizer as module
from semel_broker.security.authorizer import Authorizer, Principal
from semel_protocol.acls import (
    IMPLIED_BY,
    WILDCARD_PRINCIPAL,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    applies,
)

ALICE = Principal("User:alice", "10.0.0.1")
BOB = Principal("User:bob", "10.0.0.2")


def acl(
    text: str,
    principal: str = "User:alice",
    name: str = "flights",
    *,
    kind: ResourceType = ResourceType.TOPIC,
    pattern: PatternType = PatternType.LITERAL,
    host: str = "*",
) -> Acl:
    """`acl("ALLOW READ")`."""
    permission, operation = text.split()
    return Acl(kind, name, pattern, principal, host, Operation[operation], Permission[permission])


def authorizer(*acls: Acl, super_users: tuple[str, ...] = (), allow_if_none: bool = False) -> Authorizer:
    made = Authorizer(super_users, allow_if_none=allow_if_none)
    made.change(added=acls)
    return made


def test_nothing_is_allowed_without_an_entry() -> None:
    decision = authorizer().decide(ALICE, Operation.READ, ResourceType.TOPIC, "flights")
    assert not decision.is_allowed
    assert "allow.everyone.if.no.acl.found is false" in decision.why


def test_everything_is_allowed_without_an_entry_if_the_setting_says_so_and_nothing_else_once_there_is_one() -> None:
    one = authorizer(acl("ALLOW READ"), allow_if_none=True)
    assert one.allows(BOB, Operation.READ, ResourceType.TOPIC, "delays")
    assert not one.allows(BOB, Operation.READ, ResourceType.TOPIC, "flights")


def test_an_entry_allows_its_principal_its_operation_and_its_name_only() -> None:
    one = authorizer(acl("ALLOW READ"))
    assert one.allows(ALICE, Operation.READ, ResourceType.TOPIC, "flights")
    assert not one.allows(ALICE, Operation.WRITE, ResourceType.TOPIC, "flights")
    assert not one.allows(ALICE, Operation.READ, ResourceType.TOPIC, "flight")
    assert not one.allows(ALICE, Operation.READ, ResourceType.GROUP, "flights")
    assert not one.allows(BOB, Operation.READ, ResourceType.TOPIC, "flights")


def test_an_entry_for_a_host_allows_that_host_only() -> None:
    one = authorizer(acl("ALLOW READ", host="10.0.0.1"))
    assert one.allows(ALICE, Operation.READ, ResourceType.TOPIC, "flights")
    assert not one.allows(Principal(ALICE.name, "10.0.0.9"), Operation.READ, ResourceType.TOPIC, "flights")


@pytest.mark.parametrize("operation", [Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER])
def test_some_operations_imply_describe_when_allowed_and_nothing_when_denied(operation: Operation) -> None:
    assert authorizer(acl(f"ALLOW {operation.name}")).allows(ALICE, Operation.DESCRIBE, ResourceType.TOPIC, "flights")
    both = authorizer(acl(f"DENY {operation.name}"), acl("ALLOW DESCRIBE"))
    assert both.allows(ALICE, Operation.DESCRIBE, ResourceType.TOPIC, "flights")


@pytest.mark.proves("denial-for-all")
def test_a_denial_wins_whatever_allows_it() -> None:
    for denial in (
        acl("DENY WRITE"),
        acl("DENY ALL"),
        acl("DENY WRITE", WILDCARD_PRINCIPAL),
        acl("DENY WRITE", name="*"),
        acl("DENY WRITE", name="fl", pattern=PatternType.PREFIXED),
    ):
        one = authorizer(acl("ALLOW ALL"), acl("ALLOW ALL", name="*"), denial)
        decision = one.decide(ALICE, Operation.WRITE, ResourceType.TOPIC, "flights")
        assert (decision.is_allowed, decision.rule) == (False, denial)


@pytest.mark.proves("denial-for-all")
def test_the_literal_name_star_is_every_name_also_for_a_denial() -> None:
    """A broker that takes `*` for a topic's name ignores a denial of everything."""
    one = authorizer(acl("ALLOW ALL", name="flights"), acl("DENY ALL", WILDCARD_PRINCIPAL, name="*"))
    assert not one.allows(ALICE, Operation.READ, ResourceType.TOPIC, "flights")
    assert authorizer(acl("ALLOW READ", name="*")).allows(ALICE, Operation.READ, ResourceType.TOPIC, "any")


def test_a_prefix_covers_longer_names_and_itself() -> None:
    one = authorizer(acl("ALLOW READ", name="fl", pattern=PatternType.PREFIXED))
    assert [one.allows(ALICE, Operation.READ, ResourceType.TOPIC, name) for name in ("fl", "flights", "f")] == [
        True,
        True,
        False,
    ]


def test_a_super_user_may_do_everything_whatever_is_denied() -> None:
    one = authorizer(acl("DENY ALL", name="*"), super_users=("User:alice",))
    assert one.decide(ALICE, Operation.DELETE, ResourceType.TOPIC, "flights").why == "super user"
    assert one.allows_any(ALICE, Operation.WRITE, ResourceType.TOPIC)


@pytest.mark.proves("right-taken-away")
def test_a_change_is_in_force_at_the_next_decision() -> None:
    one = authorizer(acl("ALLOW READ"))
    assert one.allows(ALICE, Operation.READ, ResourceType.TOPIC, "flights")
    one.change(removed=[acl("ALLOW READ")])
    assert not one.allows(ALICE, Operation.READ, ResourceType.TOPIC, "flights")


def test_the_cache_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CACHED_MAX", 10)
    one = authorizer()
    for number in range(100):
        one.allows(ALICE, Operation.READ, ResourceType.TOPIC, f"t{number}")
        assert len(one._cache) <= 10


def test_whether_there_is_any_topic_to_write_to() -> None:
    """KIP-679: an idempotent producer needs no right but that to write to one topic."""
    write = Operation.WRITE, ResourceType.TOPIC
    assert authorizer(acl("ALLOW WRITE")).allows_any(ALICE, *write)
    assert not authorizer(acl("ALLOW WRITE")).allows_any(BOB, *write)
    assert not authorizer(acl("ALLOW WRITE"), acl("DENY WRITE")).allows_any(ALICE, *write)
    assert not authorizer(acl("ALLOW WRITE"), acl("DENY ALL", name="*")).allows_any(ALICE, *write)
    prefix = acl("DENY WRITE", name="fl", pattern=PatternType.PREFIXED)
    assert not authorizer(acl("ALLOW WRITE"), prefix).allows_any(ALICE, *write)
    assert authorizer(acl("ALLOW WRITE", name="*"), prefix).allows_any(ALICE, *write)


names = st.sampled_from(["*", "f", "fl", "flights", "flight", "g"])
acls = st.builds(
    Acl,
    st.just(ResourceType.TOPIC),
    names,
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    st.sampled_from(["User:alice", "User:bob", WILDCARD_PRINCIPAL]),
    st.sampled_from(["*", "10.0.0.1"]),
    st.sampled_from([Operation.ALL, Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.ALTER_CONFIGS]),
    st.sampled_from([Permission.ALLOW, Permission.DENY]),
)


@pytest.mark.proves("denial-for-all")
@given(
    st.lists(acls, max_size=8),
    st.sampled_from([ALICE, BOB]),
    st.sampled_from([Operation.READ, Operation.DESCRIBE, Operation.WRITE, Operation.DESCRIBE_CONFIGS]),
    names.filter(lambda name: name != "*"),
)
def test_a_decision_is_that_of_the_rule_written_out(
    entries: list[Acl], principal: Principal, operation: Operation, name: str
) -> None:
    """The definition, entry by entry, without indexes and cache."""

    def speaks(entry: Acl, operations: set[Operation]) -> bool:
        return (
            applies(entry, name)
            and entry.principal in (principal.name, WILDCARD_PRINCIPAL)
            and entry.host in (principal.host, "*")
            and bool(operations & {entry.operation})
        )

    is_denied = any(e.permission is Permission.DENY and speaks(e, {operation, Operation.ALL}) for e in entries)
    enough = {operation, Operation.ALL, *IMPLIED_BY.get(operation, ())}
    is_allowed = any(e.permission is Permission.ALLOW and speaks(e, enough) for e in entries)
    one = authorizer(*entries)
    for _ in range(2):  # the second time from the cache
        assert one.allows(principal, operation, ResourceType.TOPIC, name) == (is_allowed and not is_denied)


@given(st.lists(acls, max_size=8), st.sampled_from([ALICE, BOB]))
def test_a_right_to_write_to_one_of_the_names_is_a_right_to_write_to_some_topic(
    entries: list[Acl], principal: Principal
) -> None:
    one = authorizer(*entries)
    if any(one.allows(principal, Operation.WRITE, ResourceType.TOPIC, name) for name in ("f", "fl", "flights", "zz")):
        assert one.allows_any(principal, Operation.WRITE, ResourceType.TOPIC)


def test_a_filter_selects_by_each_of_its_fields() -> None:
    entry = acl("ALLOW READ", host="10.0.0.1")
    assert AclFilter().matches(entry)
    assert AclFilter(ResourceType.TOPIC, "flights", PatternType.LITERAL, "User:alice", "10.0.0.1").matches(entry)
    for other in (
        AclFilter(ResourceType.GROUP),
        AclFilter(name="flight"),
        AclFilter(pattern=PatternType.PREFIXED),
        AclFilter(principal="User:bob"),
        AclFilter(host="*"),
        AclFilter(operation=Operation.ALL),
        AclFilter(permission=Permission.DENY),
    ):
        assert not other.matches(entry)


def test_a_filter_with_match_selects_every_entry_that_applies_to_the_name() -> None:
    match = AclFilter(ResourceType.TOPIC, "flights", PatternType.MATCH)
    assert match.matches(acl("ALLOW READ"))
    assert match.matches(acl("ALLOW READ", name="*"))
    assert match.matches(acl("ALLOW READ", name="fl", pattern=PatternType.PREFIXED))
    assert not match.matches(acl("ALLOW READ", name="fl"))
    assert not match.matches(acl("ALLOW READ", name="*", pattern=PatternType.PREFIXED))


@given(st.lists(acls, max_size=8, unique=True), st.data())
def test_entries_that_are_added_and_removed_leave_the_others(entries: list[Acl], data: st.DataObject) -> None:
    one = authorizer(*entries)
    gone = data.draw(st.lists(st.sampled_from(entries), unique=True)) if entries else []
    one.change(added=entries, removed=gone)
    assert one.acls == set(entries)
    one.change(removed=gone)
    rest = authorizer(*(entry for entry in entries if entry not in gone))
    assert one.acls == rest.acls
    for principal in (ALICE, BOB):
        for operation in (Operation.READ, Operation.WRITE, Operation.DESCRIBE):
            for name in ("f", "fl", "flights", "g"):
                question = principal, operation, ResourceType.TOPIC, name
                assert one.allows(*question) == rest.allows(*question)
            assert one.allows_any(principal, operation, ResourceType.TOPIC) == rest.allows_any(
                principal, operation, ResourceType.TOPIC
            )
