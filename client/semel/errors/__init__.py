"""What the client raises. Names are aiokafka's (kafka-python's) where those have one; each says what to do next.

What to do next is a base class as well (KIP-1050): `RetriableError`, `RefreshRetriableError`, `AbortableError`,
`ApplicationRecoverableError`, `MisconfiguredError`. `error_for(code, context)` turns a broker's error code into its
exception; how the client itself reacts to a code is the action table in `_retry`.
"""

from semel_protocol.errors import ErrorCode, error_code

from semel.errors.answers import *  # noqa: F403
from semel.errors.answers import UnknownError
from semel.errors.base import *  # noqa: F403
from semel.errors.base import ERROR_OF, KafkaError
from semel.errors.client import *  # noqa: F403


def error_for(code: int, context: str = "") -> KafkaError:
    """The exception of a broker's error code; `context` says what was attempted ("produce to flights-3")."""
    known = error_code(code)
    if known is ErrorCode.UNKNOWN_SERVER_ERROR and code != known:
        return UnknownError(f"{context}: error code {code}, which this client does not know")
    if known in ERROR_OF:
        return ERROR_OF[known](context)
    return UnknownError(f"{context}: {known.name}")
