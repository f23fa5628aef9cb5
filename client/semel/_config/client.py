"""Settings of producer, admin and transaction group: Kafka's names in snake_case with Kafka's defaults, checked
together.

Each client takes its settings as keyword arguments. `takes_settings` gives its `__init__` the signature of the struct:
a setting is declared once, and editors and type checkers know it.
"""

import inspect
import ssl
from collections.abc import Callable, Iterable
from typing import Any, Concatenate, Literal, ParamSpec, Protocol, TypeVar

import msgspec
from semel_protocol.visible import shown

from semel._config.reference import SETTINGS
from semel._config.settings import check_settings, made
from semel._edge import Edge
from semel.errors import KafkaConfigurationError
from semel.structs import GroupStep

P = ParamSpec("P")
C = TypeVar("C")
T = TypeVar("T")

Serializer = Callable[[Any], bytes | None]
Deserializer = Callable[[bytes | None], Any]
Partitioner = Callable[[bytes | None, list[int], list[int]], int]
"""(serialized key or None, all partitions, partitions with a leader) -> one of them."""
CompressionType = Literal["none", "gzip", "snappy", "lz4", "zstd"]
CODEC_OF: dict[str | None, int] = {None: 0, "none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
DEFAULT_PORT = 9092
RAISES = "Raises KafkaConfigurationError for wrong or contradicting settings, TypeError for unknown ones."
PORT_DIGITS_MAX = 5
SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
SaslMechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
TLS_FILES = ("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_password")

WITH_TLS: dict[str, str] = {"PLAINTEXT": "SSL", "SASL_PLAINTEXT": "SASL_SSL"}
"""The protocol with TLS in place of one without."""
SASL_NAMES = ("sasl_plain_username", "sasl_plain_password", "sasl_oauth_token_provider")


class TokenProvider(Protocol):
    """A source of OAuth tokens, as aiokafka's AbstractTokenProvider.

    `extensions() -> dict[str, str]` is optional: pairs that are sent with the token (KIP-342).
    """

    async def token(self) -> str:
        """A valid token. It is called for each connection, and again before its session ends."""


class ClientConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings that all clients have in common."""

    bootstrap_servers: str | Iterable[str] = "localhost:9092"
    """One or several addresses, `host[:port]`, comma-separated or as a list. One that answers is enough."""
    client_id: str = "semel"
    """The name of this client in the broker's log, in quotas and in the ledger of fences."""
    request_timeout_ms: int = 30_000
    """The longest wait for an answer. A request without an answer closes its connection."""
    bootstrap_timeout_ms: int = 10_000
    """How long `start` tries the bootstrap servers."""
    metadata_max_age_ms: int = 300_000
    """How long topics, partitions and leaders are used before the client asks for them again. An error that shows that
    they are stale makes it ask at once.
    """
    retry_backoff_ms: int = 100
    """The pause before a request is sent again. It doubles with each attempt, up to retry_backoff_max_ms."""
    retry_backoff_max_ms: int = 1_000
    """The longest pause before a request is sent again."""
    reconnect_backoff_ms: int = 50
    """The pause before the next attempt to connect to a broker. It doubles up to reconnect_backoff_max_ms."""
    reconnect_backoff_max_ms: int = 1_000
    """The longest pause before the next attempt to connect to a broker."""
    connections_max_idle_ms: int | None = 540_000
    """A connection without traffic for longer is closed. None: never."""
    max_block_ms: int = 60_000
    """How long a call may wait for metadata, for a coordinator or for memory."""
    receive_frame_bytes_max: int = 104_857_600
    """The largest response accepted from a broker, in bytes."""
    security_protocol: SecurityProtocol = "PLAINTEXT"
    """'SSL' and 'SASL_SSL' are TLS. 'SASL_PLAINTEXT' and 'SASL_SSL' authenticate the client by `sasl_mechanism`."""
    ssl_context: ssl.SSLContext | None = None
    """The certificates to trust, and the client's own, in place of the files below:
    `ssl.create_default_context(cafile=...)`. Needs security_protocol='SSL'.
    """
    ssl_cafile: str | None = None
    """The file in PEM with the CAs that sign the brokers' certificates. None: those of the system. Needs
    security_protocol='SSL'.
    """
    ssl_certfile: str | None = None
    """The file in PEM with the client's own certificate chain, for brokers that require one."""
    ssl_keyfile: str | None = None
    """The file in PEM with the private key of the certificate. None: it is in ssl_certfile."""
    ssl_password: str | None = None
    """The password of the private key. None: it has none."""
    ssl_check_hostname: bool = True
    """Whether the certificate must have the host name of the broker. Without this check, any certificate of the CA can
    pretend to be the broker.
    """
    sasl_mechanism: SaslMechanism = "PLAIN"
    """How the client authenticates, for 'SASL_PLAINTEXT' and 'SASL_SSL'. SCRAM does not send the password. PLAIN sends
    it as it is: use it with TLS. OAUTHBEARER sends a token. GSSAPI (Kerberos) is not supported.
    """
    sasl_plain_username: str | None = None
    """The user, for PLAIN and SCRAM."""
    sasl_plain_password: str | None = None
    """The password of the user, for PLAIN and SCRAM."""
    sasl_oauth_token_provider: TokenProvider | None = None
    """The source of tokens, for OAUTHBEARER: an object with `async def token(self) -> str`."""
    edge: Edge | None = None
    """Clocks, random numbers and TCP. None is the real ones; simulators pass their own."""

    def __post_init__(self) -> None:
        check_settings(self)
        if not isinstance(self.bootstrap_servers, str):  # it may be a generator, which can be read only once
            msgspec.structs.force_setattr(self, "bootstrap_servers", tuple(self.bootstrap_servers))
        self.servers()
        not_below(self, "retry_backoff_max_ms", "retry_backoff_ms")
        not_below(self, "reconnect_backoff_max_ms", "reconnect_backoff_ms")
        self._check_tls()
        self._check_sasl()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.client_id!r}>"  # passwords stay out of logs

    def _check_tls(self) -> None:
        """Raise KafkaConfigurationError for settings of TLS that contradict each other."""
        files = [name for name in TLS_FILES if getattr(self, name) is not None]
        protocol = self.security_protocol
        if self.ssl_context is not None:
            files.insert(0, "ssl_context")
        if not self.ssl_check_hostname:
            files.append("ssl_check_hostname")
        if protocol in WITH_TLS and files:
            raise KafkaConfigurationError(
                f"{files[0]} is given but security_protocol is {protocol!r}: set it to {WITH_TLS[protocol]!r}"
            )
        if self.ssl_context is not None and len(files) > 1:
            raise KafkaConfigurationError(f"{files[1]} and ssl_context are both given: put {files[1]} into the context")
        if self.ssl_certfile is None and (self.ssl_keyfile is not None or self.ssl_password is not None):
            raise KafkaConfigurationError("ssl_keyfile or ssl_password is given without ssl_certfile: give it too")

    def _check_sasl(self) -> None:
        """Raise KafkaConfigurationError for settings of SASL that are missing or contradict each other."""
        given = [name for name in SASL_NAMES if getattr(self, name) is not None]
        if not self.security_protocol.startswith("SASL_"):
            if given:
                raise KafkaConfigurationError(
                    f"{given[0]} is given but security_protocol is {self.security_protocol!r}: set it to 'SASL_SSL', "
                    "or to 'SASL_PLAINTEXT' without TLS"
                )
            return
        needed = SASL_NAMES[2:] if self.sasl_mechanism == "OAUTHBEARER" else SASL_NAMES[:2]
        for name in SASL_NAMES:
            if name in needed and not getattr(self, name):
                raise KafkaConfigurationError(f"sasl_mechanism={self.sasl_mechanism!r} needs {name}: give it")
            if name not in needed and name in given:
                raise KafkaConfigurationError(
                    f"{name} is given but sasl_mechanism={self.sasl_mechanism!r} does not use it: leave it out, or "
                    "correct sasl_mechanism"
                )
        for name in SASL_NAMES[:2]:
            if "\0" in (getattr(self, name) or ""):
                raise KafkaConfigurationError(f"{name} has a zero byte in it, which PLAIN cannot carry: correct it")

    def servers(self) -> list[tuple[str, int]]:
        """The bootstrap addresses. Raises KafkaConfigurationError for an invalid one."""
        given = self.bootstrap_servers
        listed = given.split(",") if isinstance(given, str) else list(given)
        servers = [parse_address(address) for address in listed if not isinstance(address, str) or address.strip()]
        if not servers:
            raise KafkaConfigurationError("bootstrap_servers is empty: give at least one host:port")
        return servers


class AdminConfig(ClientConfig, frozen=True, kw_only=True):
    """Settings of `Admin`."""


class DriverConfig(ClientConfig, frozen=True, kw_only=True):
    """Settings of `TransactionGroup`, without its name."""

    owner: str = ""
    """A text that names the driver. Members of a step that is over get it in their errors."""
    timeout_ms: int = 60_000
    """A step is aborted when its first transaction is open for longer. At most the broker's
    transaction.max.timeout.ms.
    """


class TransactionGroupConfig(DriverConfig, frozen=True):
    """Settings of `TransactionGroup`."""

    name: str
    """The name of the group. Its members are the transactional ids `<name>/<member>`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.name:
            raise KafkaConfigurationError("a transaction group needs a name that is not empty")


class ProducerConfig(ClientConfig, frozen=True, kw_only=True):
    """Settings of `Producer`."""

    acks: Literal[0, 1, -1, "all"] = "all"
    """When a record counts as stored: at all in-sync replicas ('all'), at the leader (1), or once sent (0)."""
    enable_idempotence: bool = True
    """Retries store each record once and in order (KIP-98). Needs acks='all'."""
    transactional_id: str | None = None
    """Makes the producer transactional. One id for each worker, the same after a restart: a new producer fences the
    older one.
    """
    transaction_timeout_ms: int = 60_000
    """The coordinator aborts a transaction that is open for longer. At most the broker's transaction.max.timeout.ms."""
    transaction_group_step: GroupStep | None = None
    """Makes this producer a member of a transaction group in this step. The `transactional_id` must be
    `<group>/<member>`.
    """
    key_serializer: Serializer | None = None
    """Makes the key's bytes, or None for a record without key. None: keys are bytes already."""
    value_serializer: Serializer | None = None
    """Makes the value's bytes, or None for a record without value. None: values are bytes already."""
    compression_type: CompressionType | None = None
    """The codec of batches. None: no compression."""
    max_batch_size: int = 16_384
    """A batch of one partition is sent when it reaches this size, in bytes. Larger records get a batch of their own
    (Kafka: batch.size).
    """
    linger_ms: float = 0
    """How long a batch may wait for more records. With 0 it is sent as soon as the event loop runs and a request is
    free.
    """
    partitioner: Partitioner | None = None
    """None: murmur2 of the key, as Kafka; without a key one partition until its batch is full (KIP-480)."""
    max_request_size: int = 1_048_576
    """The largest record, and the largest request made of several batches, in bytes."""
    buffer_memory: int = 33_554_432
    """The bytes of all records that are not sent or not acknowledged. `send` waits (max_block_ms) while they are
    used up.
    """
    delivery_timeout_ms: int = 120_000
    """The time from `send` to success or failure, retries included."""
    max_in_flight_requests_per_connection: int = 5
    """Produce requests to one broker that are sent and not answered. At most 5 with enable_idempotence, since brokers
    remember the last 5 batches of a producer.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.delivery_timeout_ms < self.linger_ms + self.request_timeout_ms:
            raise KafkaConfigurationError(
                f"delivery_timeout_ms={self.delivery_timeout_ms} is shorter than linger_ms={self.linger_ms} + "
                f"request_timeout_ms={self.request_timeout_ms}: raise it, or lower request_timeout_ms"
            )
        not_below(self, "buffer_memory", "max_batch_size")
        if self.transactional_id is not None and (not self.transactional_id or not self.enable_idempotence):
            raise KafkaConfigurationError(
                f"transactional_id={self.transactional_id!r} with enable_idempotence={self.enable_idempotence}: "
                "a transactional producer needs an id that is not empty, and enable_idempotence=True"
            )
        step = self.transaction_group_step
        group, _, member = (self.transactional_id or "").rpartition("/")
        if step is not None and (group != step.group or not member):
            raise KafkaConfigurationError(
                f"transactional_id={self.transactional_id!r} does not belong to transaction group {step.group!r}: "
                f"name it '{step.group}/<member>', without a slash in the member"
            )
        if self.enable_idempotence and self.acks not in ("all", -1):
            raise KafkaConfigurationError(
                f"acks={self.acks!r} contradicts enable_idempotence=True: set acks='all' or enable_idempotence=False"
            )
        if self.enable_idempotence and self.max_in_flight_requests_per_connection > 5:
            raise KafkaConfigurationError(
                f"max_in_flight_requests_per_connection={self.max_in_flight_requests_per_connection} contradicts "
                "enable_idempotence=True: brokers remember the last 5 batches of a producer, so use at most 5"
            )

    @property
    def required_acks(self) -> int:
        """acks as a number, as in Produce requests."""
        return -1 if self.acks == "all" else self.acks


def takes_settings(
    config: Callable[P, C],
) -> Callable[[Callable[[T, C], None]], Callable[Concatenate[T, P], None]]:
    """Make `__init__(self, config)` take the fields of `config` as keyword arguments.

    Raises TypeError for a setting that is unknown or has no name, KafkaConfigurationError for invalid or contradicting
    values.
    """

    def wrap(init: Callable[[T, C], None]) -> Callable[Concatenate[T, P], None]:
        def __init__(self: T, /, *args: P.args, **settings: P.kwargs) -> None:  # noqa: N807
            init(self, made(config, settings, args))

        __init__.__doc__ = init.__doc__
        describe_settings(__init__, config)
        return __init__

    return wrap


def describe_settings(init: Callable[..., None], config: Any, *before: inspect.Parameter) -> None:
    """Give `init` the signature and the words of its settings, for help() and for tools that read signatures.

    config: the struct of the settings. before: the parameters in front of them.
    """
    myself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    settings = inspect.signature(config).parameters.values()
    init.__signature__ = inspect.Signature([myself, *before, *settings])  # type: ignore[attr-defined]
    words = "".join(SETTINGS.get(each.__name__, "") for each in reversed(config.__mro__))
    init.__doc__ = f"{inspect.cleandoc(init.__doc__ or RAISES)}\n\nSettings:\n\n{words}"


def parse_address(address: str) -> tuple[str, int]:
    """`host`, `host:port` or `[v6]:port` -> (host, port). Raises KafkaConfigurationError."""
    if not isinstance(address, str):
        raise KafkaConfigurationError(f"bootstrap_servers has {shown(address)}: write host:port as a str")
    text = address.strip()
    if "://" in text:
        raise KafkaConfigurationError(
            f"bootstrap_servers has {shown(address)}: write host:port without a protocol; security_protocol names that"
        )
    host, colon, port = text.rpartition(":")
    if not colon or (host and "]" not in host and ":" in host) or text.endswith("]"):
        host, port = text, str(DEFAULT_PORT)
    is_port = port.isascii() and port.isdigit() and len(port) <= PORT_DIGITS_MAX and 0 < int(port) < 65_536
    if not is_port or not host.strip("[]") or any(c.isspace() or not c.isprintable() for c in host):
        raise KafkaConfigurationError(f"bootstrap_servers has {shown(address)}: write host:port")
    return host.strip("[]"), int(port)


def not_below(config: msgspec.Struct, name: str, other: str) -> None:
    """Raise KafkaConfigurationError when setting `name` is less than setting `other`."""
    value, bound = getattr(config, name), getattr(config, other)
    if value < bound:
        raise KafkaConfigurationError(f"{name}={value} is less than {other}={bound}: raise it, or lower {other}")
