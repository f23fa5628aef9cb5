"""DescribeUserScramCredentials (key 50): mechanisms and iterations of users, without salts or keys. KIP-554."""

from semel_protocol.declaration import Api, ApiKey
from semel_protocol.schema import Int8, Int16, Int32, Message


class DescribeUserScramCredentialsRequestUserName(Message, kw_only=True):
    name: str


class DescribeUserScramCredentialsRequest(Message, kw_only=True):
    """Null or no users: all users."""

    users: list[DescribeUserScramCredentialsRequestUserName] | None


class DescribeUserScramCredentialsResponseCredentialInfo(Message, kw_only=True):
    """`mechanism`: 1 is SCRAM-SHA-256, 2 is SCRAM-SHA-512."""

    mechanism: Int8 = 0
    iterations: Int32 = 0


class DescribeUserScramCredentialsResponseResult(Message, kw_only=True):
    user: str = ""
    error_code: Int16 = 0
    error_message: str | None = None
    credential_infos: list[DescribeUserScramCredentialsResponseCredentialInfo] = []


class DescribeUserScramCredentialsResponse(Message, kw_only=True):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    results: list[DescribeUserScramCredentialsResponseResult] = []


API = Api(
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    declared=(0, 0),
    flexible=0,
    advertised=(0, 0),
)
