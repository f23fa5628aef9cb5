"""aiokafka's `errors`: all of its names, as the classes that semel raises in their place.

A class below that semel never raises is there for `except` clauses and imports of programs written for aiokafka.
"""

# ruff: noqa: N818  (names that users catch already)

from __future__ import annotations

from semel_protocol.errors import error_code

from semel.errors import *  # noqa: F403
from semel.errors import answers, base, client
from semel.errors.base import ERROR_OF, BrokerResponseError, RetriableError
from semel.errors.base import KafkaError as KafkaError
from semel.errors.client import ConsumerStoppedError as ConsumerStoppedError
from semel.errors.client import IllegalOperation as IllegalOperation

CoordinatorLoadInProgressError = answers.GroupLoadInProgressError
CoordinatorNotAvailableError = answers.GroupCoordinatorNotAvailableError
NotCoordinatorError = answers.NotCoordinatorForGroupError
InvalidMessageError = answers.CorruptRecordException
StaleLeaderEpochCodeError = answers.NetworkExceptionError
KafkaUnavailableError = client.KafkaConnectionError
NoBrokersAvailable = client.KafkaConnectionError
NodeNotReadyError = client.KafkaConnectionError
AuthenticationFailedError = answers.SaslAuthenticationFailed
AuthenticationMethodNotSupported = answers.UnsupportedSaslMechanismError
StaleMetadata = base.RefreshRetriableError
IncompatibleBrokerVersion = client.UnsupportedVersionError
UnrecognizedBrokerVersion = client.UnsupportedVersionError


class NoError(BrokerResponseError):
    """Never raised: the code of a success."""


class IllegalArgumentError(KafkaError):
    """Never raised: wrong arguments raise TypeError or ValueError."""


class Cancelled(RetriableError):
    """Never raised: a call that is cancelled raises asyncio.CancelledError."""


class MetadataEmptyBrokerList(KafkaError):
    """Never raised: an answer without brokers counts as no answer."""


class QuotaViolationError(KafkaError):
    """Never raised: a throttled client waits."""


class TooManyInFlightRequests(RetriableError):
    """Never raised: requests wait for their turn."""


class UnsupportedCodecError(KafkaError):
    """Never raised: gzip, snappy, lz4 and zstd come with semel."""


def for_code(code: int) -> type[BrokerResponseError]:
    """The class of a broker's error code; UnknownError for one that has no class."""
    return ERROR_OF.get(error_code(code), answers.UnknownError)
