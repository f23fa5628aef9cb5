"""The exceptions of the client. Names are aiokafka's (kafka-python's) where it has one.

Base classes say what to do next (KIP-1050): `RetriableError`, `RefreshRetriableError`, `AbortableError`,
`ApplicationRecoverableError`, `MisconfiguredError`. `error_for(code, context)` maps a broker's error code to its
exception. `semel._net.retry` holds the table of the client's own reaction to each code.
"""

from semel_protocol.errors import ErrorCode, error_code

from semel.errors.answers import *  # noqa: F403
from semel.errors.answers import UnknownError as UnknownError  # "as": exported, also for pyright
from semel.errors.base import *  # noqa: F403
from semel.errors.base import ERROR_OF
from semel.errors.base import KafkaError as KafkaError
from semel.errors.client import *  # noqa: F403
from semel.errors.record import RecordDeserializationError as RecordDeserializationError
from semel.errors.rights import NeededRight


def error_for(code: int, context: str = "", right: NeededRight | None = None) -> KafkaError:
    """The exception of a broker's error code. context: what was attempted, such as "produce to flights-3".

    right: the right that it needs. Then the error of a missing right names it, with the command that gives it.
    """
    known = error_code(code)
    if right is not None:
        context = right.explained(known, context)
    if known is ErrorCode.UNKNOWN_SERVER_ERROR and code != known:
        return UnknownError(f"{context}: error code {code}, which this client does not know")
    if known in ERROR_OF:
        return ERROR_OF[known](context)
    return UnknownError(f"{context}: {known.name}")
