"""Users and their SCRAM credentials through the Admin (KIP-554)."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator

import pytest
from client.fake_broker import FakeBroker
from semel.admin import (
    Admin,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialsDescription,
    UserScramCredentialUpsertion,
)
from semel.errors import (
    ClusterAuthorizationFailedError,
    DuplicateResourceError,
    ResourceNotFoundError,
    UnacceptableCredentialError,
)
from semel_broker.testing.in_process import EphemeralBroker
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k51_alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResponseResult,
)

pytestmark = pytest.mark.real_time
SHA256, SHA512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
DUPLICATE_RESOURCE, RESOURCE_NOT_FOUND = ErrorCode.DUPLICATE_RESOURCE, ErrorCode.RESOURCE_NOT_FOUND
SEMEL_ONLY = pytest.mark.semel_only("Kafka's broker follows its controller a moment later")


def user(name: str, mechanism: ScramMechanism = SHA256, iterations: int = 4096) -> UserScramCredentialUpsertion:
    return UserScramCredentialUpsertion(name, ScramCredentialInfo(mechanism, iterations), "a password")


@pytest.fixture
async def admin(semel_broker: EphemeralBroker) -> AsyncIterator[Admin]:
    async with Admin(bootstrap_servers=semel_broker.bootstrap_servers) as made:
        yield made


@SEMEL_ONLY
async def test_users_are_stored_described_and_deleted(admin: Admin) -> None:
    assert await admin.describe_user_scram_credentials() == {}
    await admin.alter_user_scram_credentials([user("b"), user("b", SHA512, 16_384), user("a/ü =,%")])
    both = (ScramCredentialInfo(SHA256, 4096), ScramCredentialInfo(SHA512, 16_384))
    assert await admin.describe_user_scram_credentials() == {
        "a/ü =,%": UserScramCredentialsDescription("a/ü =,%", both[:1]),
        "b": UserScramCredentialsDescription("b", both),
    }
    await admin.alter_user_scram_credentials([UserScramCredentialDeletion("b", SHA256), user("c")])
    assert await admin.describe_user_scram_credentials(["c", "b"]) == {
        "b": UserScramCredentialsDescription("b", both[1:]),
        "c": UserScramCredentialsDescription("c", both[:1]),
    }


@SEMEL_ONLY
async def test_what_cannot_be_done_is_named_and_the_rest_is_done(admin: Admin) -> None:
    for wrong, error, words in (
        ([user("x", iterations=4095)], UnacceptableCredentialError, "too few iterations"),
        ([user("x", iterations=16_385)], UnacceptableCredentialError, "too many iterations"),
        ([user("")], UnacceptableCredentialError, "the name of a user"),
        ([user("x"), user("x")], DuplicateResourceError, "a credential of the user x twice"),
        ([UserScramCredentialDeletion("x", SHA256)], ResourceNotFoundError, "no credential for SCRAM-SHA-256"),
        ([user("x"), UserScramCredentialDeletion("x", SHA512)], ResourceNotFoundError, "SCRAM-SHA-512"),
    ):
        with pytest.raises(error, match=words):
            await admin.alter_user_scram_credentials([*wrong, user("ok")])
    assert list(await admin.describe_user_scram_credentials()) == ["ok"]
    with pytest.raises(ResourceNotFoundError, match="there is no user x"):
        await admin.describe_user_scram_credentials(["x"])
    with pytest.raises(ValueError, match="the password is empty"):
        await admin.alter_user_scram_credentials([UserScramCredentialUpsertion("x", ScramCredentialInfo(SHA256), "")])


@SEMEL_ONLY
async def test_more_users_than_a_transaction_of_the_store_holds(admin: Admin) -> None:
    await admin.alter_user_scram_credentials([user(f"user-{number}") for number in range(150)])
    assert len(await admin.describe_user_scram_credentials()) == 150


@SEMEL_ONLY
@pytest.mark.semel(
    settings={
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:root",
    }
)
async def test_without_the_right_it_is_refused(semel_broker: EphemeralBroker) -> None:
    async with Admin(bootstrap_servers=semel_broker.bootstrap_servers) as admin:
        for call in (admin.describe_user_scram_credentials(), admin.alter_user_scram_credentials([user("a")])):
            with pytest.raises(ClusterAuthorizationFailedError):
                await call


class OneOfAUserAtATime:
    """Answers as Apache Kafka's controller does: a request alters at most one credential of each user."""

    def __init__(self) -> None:
        self.credentials: dict[tuple[str, int], int] = {}
        self.requests = 0

    async def answer(self, request: AlterUserScramCredentialsRequest) -> AlterUserScramCredentialsResponse:
        self.requests += 1
        named = Counter(each.name for each in (*request.deletions, *request.upsertions))
        codes = {name: DUPLICATE_RESOURCE if count > 1 else 0 for name, count in named.items()}
        for deletion in request.deletions:
            if not codes[deletion.name] and self.credentials.pop((deletion.name, deletion.mechanism), None) is None:
                codes[deletion.name] = RESOURCE_NOT_FOUND
        for upsertion in request.upsertions:
            if not codes[upsertion.name]:
                self.credentials[upsertion.name, upsertion.mechanism] = upsertion.iterations
        return AlterUserScramCredentialsResponse(
            results=[
                AlterUserScramCredentialsResponseResult(user=name, error_code=code) for name, code in codes.items()
            ]
        )


async def test_a_broker_that_takes_one_credential_of_a_user_gets_one_after_the_other(fake_broker: FakeBroker) -> None:
    kafka = OneOfAUserAtATime()
    fake_broker.answers[51] = kafka.answer
    async with Admin(bootstrap_servers=fake_broker.address) as admin:
        await admin.alter_user_scram_credentials([user("a"), user("b"), user("a", SHA512, 8192), user("b", SHA512)])
        assert kafka.credentials == {("a", 1): 4096, ("a", 2): 8192, ("b", 1): 4096, ("b", 2): 4096}
        assert kafka.requests == 3
        await admin.alter_user_scram_credentials(
            [UserScramCredentialDeletion("a", SHA256), user("a", SHA512), user("c")]
        )
        assert kafka.credentials == {("a", 2): 4096, ("b", 1): 4096, ("b", 2): 4096, ("c", 1): 4096}


async def test_what_is_refused_then_is_named_and_other_users_are_altered(fake_broker: FakeBroker) -> None:
    kafka = OneOfAUserAtATime()
    fake_broker.answers[51] = kafka.answer
    wrong = [UserScramCredentialDeletion("x", SHA256), user("x", SHA512)]
    async with Admin(bootstrap_servers=fake_broker.address) as admin:
        with pytest.raises(ResourceNotFoundError, match="altering the user x"):
            await admin.alter_user_scram_credentials([*wrong, user("ok"), user("ok", SHA512)])
        assert kafka.credentials == {("ok", 1): 4096, ("ok", 2): 4096}
        with pytest.raises(DuplicateResourceError):
            await admin.alter_user_scram_credentials([user("x"), user("x")])
    assert kafka.credentials == {("ok", 1): 4096, ("ok", 2): 4096}


def test_a_password_is_not_in_a_repr() -> None:
    assert "a password" not in repr(user("alice"))
