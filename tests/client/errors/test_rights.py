"""The text of an error for a missing right."""

from __future__ import annotations

import pytest
from semel.errors import TopicAuthorizationFailedError, error_for
from semel.errors.rights import NeededRight
from semel_protocol.acls import Operation, ResourceType, add_command
from semel_protocol.errors import ErrorCode

REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def text(context: str, principal: str | None) -> str:
    right = NeededRight(principal=principal, operation=Operation.READ, topic="orders", group="g")
    error = error_for(REFUSED, context, right)
    assert isinstance(error, TopicAuthorizationFailedError)
    return str(error).removeprefix("[29 TOPIC_AUTHORIZATION_FAILED] ")


def test_a_client_that_knows_its_user_names_it() -> None:
    assert text("fetch from orders-0", "User:bob") == (
        "fetch from orders-0: User:bob may not READ TOPIC 'orders'. An administrator can allow it: "
        "semel acl add --principal User:bob --allow read --topic orders"
    )


def test_a_client_with_a_certificate_says_where_its_name_is() -> None:
    assert text("fetch from orders-0", None) == (
        "fetch from orders-0: this client may not READ TOPIC 'orders'. An administrator can allow it: semel acl add "
        "--principal User:NAME --allow read --topic orders (the broker's log has the principal: not_authorized)"
    )


def test_the_name_that_the_broker_knows_wins() -> None:
    """A broker may map names, and a consumer needs READ although its first request needs DESCRIBE."""
    said = "topic: User:CN=pod 1,O=x from 10.0.0.7 may not DESCRIBE TOPIC 'orders'. An administrator can allow it: ..."
    assert text(said, "User:bob") == (
        "topic: User:CN=pod 1,O=x from 10.0.0.7 may not READ TOPIC 'orders'. An administrator can allow it: "
        "semel acl add --principal 'User:CN=pod 1,O=x' --allow read --topic orders"
    )


@pytest.mark.parametrize(
    ("code", "end"),
    [
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, "--allow read --group g"),
        (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "--allow write --transactional-id x"),
    ],
)
def test_the_resource_is_that_of_the_error_code(code: ErrorCode, end: str) -> None:
    right = NeededRight(principal="User:a", operation=Operation.WRITE, group="g", transactional_id="x")
    assert str(error_for(code, "commit", right)).endswith(end)


def test_another_error_stays_as_it_is() -> None:
    right = NeededRight(principal="User:a", operation=Operation.READ, topic="t")
    assert str(error_for(ErrorCode.OFFSET_OUT_OF_RANGE, "fetch", right)) == str(
        error_for(ErrorCode.OFFSET_OUT_OF_RANGE, "fetch")
    )


def test_a_cluster_has_no_name_in_the_command() -> None:
    assert add_command("User:a", Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, "kafka-cluster") == (
        "semel acl add --principal User:a --allow idempotent-write --cluster"
    )
