"""AlterUserScramCredentials (key 51): create, change and delete SCRAM credentials of users. KIP-554."""

from semel_protocol.declaration import Api, ApiKey
from semel_protocol.schema import Int8, Int16, Int32, Message


class AlterUserScramCredentialsRequestDeletion(Message, kw_only=True):
    name: str
    mechanism: Int8


class AlterUserScramCredentialsRequestUpsertion(Message, kw_only=True):
    """`salted_password`: what PBKDF2 makes of password, salt and iterations. The password itself is never sent."""

    name: str
    mechanism: Int8
    iterations: Int32
    salt: bytes
    salted_password: bytes


class AlterUserScramCredentialsRequest(Message, kw_only=True):
    deletions: list[AlterUserScramCredentialsRequestDeletion]
    upsertions: list[AlterUserScramCredentialsRequestUpsertion]


class AlterUserScramCredentialsResponseResult(Message, kw_only=True):
    user: str = ""
    error_code: Int16 = 0
    error_message: str | None = None


class AlterUserScramCredentialsResponse(Message, kw_only=True):
    """A result for each user of the request."""

    throttle_time_ms: Int32 = 0
    results: list[AlterUserScramCredentialsResponseResult] = []


API = Api(
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    declared=(0, 0),
    flexible=0,
    advertised=(0, 0),
)
