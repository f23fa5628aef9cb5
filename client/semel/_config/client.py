"""Settings that all clients have in common, and those of admin and transaction group, checked together.

Each client takes its settings as keyword arguments. `takes_settings` gives its `__init__` the signature of the struct:
a setting is declared once, and editors and type checkers know it.
"""

import functools
import inspect
import ssl
import textwrap
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Concatenate, Literal, ParamSpec, Protocol, TypedDict, TypeVar

import msgspec
from semel_protocol.visible import shown

from semel._config.settings import (
    INT64_MAX,
    SECRET,
    DeclaredSetting,
    Long,
    Meaning,
    Positive,
    PositiveLong,
    Rule,
    SaslMechanism,
    check_settings,
    instance_of,
    made,
    settings_of,
    whole,
)
from semel._edge import Edge
from semel.errors import KafkaConfigurationError

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
HELP_COLUMNS = 100
SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
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


ADDRESSES = Rule(
    "host:port as a str, several with commas, or a list of them",
    lambda value: not isinstance(value, bytes | bytearray | Mapping) and hasattr(value, "__iter__"),
)
TOKENS = Rule(
    "an object with `async def token(self) -> str`, or None",
    lambda value: value is None or (not isinstance(value, type) and callable(getattr(value, "token", None))),
    is_secret=True,
    is_object=True,
)


class ClientConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings that all clients have in common."""

    bootstrap_servers: Annotated[
        str | Iterable[str],
        ADDRESSES,
        Meaning("One or several addresses, `host[:port]`, comma-separated or as a list. One that answers is enough."),
    ] = "localhost:9092"
    client_id: Annotated[
        str, Meaning("The name of this client in the broker's log, in quotas and in the ledger of fences.")
    ] = "semel"
    request_timeout_ms: Annotated[
        Positive, Meaning("The longest wait for an answer. A request without an answer closes its connection.")
    ] = 30_000
    bootstrap_timeout_ms: Annotated[Long, Meaning("How long `start` tries the bootstrap servers.")] = 10_000
    metadata_max_age_ms: Annotated[
        PositiveLong,
        Meaning(
            "How long topics, partitions and leaders are used before the client asks for them again. An error that "
            "shows that they are stale makes it ask at once."
        ),
    ] = 300_000
    retry_backoff_ms: Annotated[
        Long,
        Meaning("The pause before a request is sent again. It doubles with each attempt, up to retry_backoff_max_ms."),
    ] = 100
    retry_backoff_max_ms: Annotated[Long, Meaning("The longest pause before a request is sent again.")] = 1_000
    reconnect_backoff_ms: Annotated[
        Long,
        Meaning("The pause before the next attempt to connect to a broker. It doubles up to reconnect_backoff_max_ms."),
    ] = 50
    reconnect_backoff_max_ms: Annotated[
        Long, Meaning("The longest pause before the next attempt to connect to a broker.")
    ] = 1_000
    connections_max_idle_ms: Annotated[
        int | None,
        whole(1, INT64_MAX, none="never"),
        Meaning("A connection without traffic for longer is closed. None: never."),
    ] = 540_000
    max_block_ms: Annotated[
        Long, Meaning("How long a call may wait for metadata, for a coordinator or for memory.")
    ] = 60_000
    receive_frame_bytes_max: Annotated[Positive, Meaning("The largest response accepted from a broker, in bytes.")] = (
        104_857_600
    )
    security_protocol: Annotated[
        SecurityProtocol,
        Meaning(
            "'SSL' and 'SASL_SSL' are TLS. 'SASL_PLAINTEXT' and 'SASL_SSL' authenticate the client by `sasl_mechanism`."
        ),
    ] = "PLAINTEXT"
    ssl_context: Annotated[
        ssl.SSLContext | None,
        instance_of("an ssl.SSLContext", ssl.SSLContext),
        Meaning(
            "The certificates to trust, and the client's own, in place of the files below: "
            "`ssl.create_default_context(cafile=...)`. Needs security_protocol='SSL'."
        ),
    ] = None
    ssl_cafile: Annotated[
        str | None,
        Meaning(
            "The file in PEM with the CAs that sign the brokers' certificates. None: those of the system. Needs "
            "security_protocol='SSL'."
        ),
    ] = None
    ssl_certfile: Annotated[
        str | None, Meaning("The file in PEM with the client's own certificate chain, for brokers that require one.")
    ] = None
    ssl_keyfile: Annotated[
        str | None, Meaning("The file in PEM with the private key of the certificate. None: it is in ssl_certfile.")
    ] = None
    ssl_password: Annotated[str | None, SECRET, Meaning("The password of the private key. None: it has none.")] = None
    ssl_check_hostname: Annotated[
        bool,
        Meaning(
            "Whether the certificate must have the host name of the broker. Without this check, any certificate of the "
            "CA can pretend to be the broker."
        ),
    ] = True
    sasl_mechanism: Annotated[
        SaslMechanism,
        Meaning(
            "How the client authenticates, for 'SASL_PLAINTEXT' and 'SASL_SSL'. SCRAM does not send the password. "
            "PLAIN sends it as it is: use it with TLS. OAUTHBEARER sends a token. GSSAPI (Kerberos) is not supported."
        ),
    ] = "PLAIN"
    sasl_plain_username: Annotated[str | None, Meaning("The user, for PLAIN and SCRAM.")] = None
    sasl_plain_password: Annotated[str | None, SECRET, Meaning("The password of the user, for PLAIN and SCRAM.")] = None
    sasl_oauth_token_provider: Annotated[
        TokenProvider | None,
        TOKENS,
        Meaning("The source of tokens, for OAUTHBEARER: an object with `async def token(self) -> str`."),
    ] = None
    edge: Annotated[
        Edge | None,
        instance_of("an Edge", Edge),
        Meaning("Clocks, random numbers and TCP. None is the real ones; simulators pass their own."),
    ] = None

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

    @property
    def principal(self) -> str | None:
        """The principal that brokers take this client for, unless they map names. None: they take it from a certificate
        or a token. semel's brokers say it in their metadata."""
        if self.security_protocol == "PLAINTEXT":
            return "User:ANONYMOUS"
        return None if self.sasl_plain_username is None else f"User:{self.sasl_plain_username}"

    def servers(self) -> list[tuple[str, int]]:
        """The bootstrap addresses. Raises KafkaConfigurationError for an invalid one."""
        given = self.bootstrap_servers
        listed = given.split(",") if isinstance(given, str) else list(given)
        servers = [parse_address(address) for address in listed if not isinstance(address, str) or address.strip()]
        if not servers:
            raise KafkaConfigurationError("bootstrap_servers is empty: give at least one host:port")
        return servers


class ClientKeywords(TypedDict, total=False):
    """The keyword arguments that all clients have in common, for editors and type checkers."""

    bootstrap_servers: str | Iterable[str]
    client_id: str
    request_timeout_ms: int
    bootstrap_timeout_ms: int
    metadata_max_age_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    connections_max_idle_ms: int | None
    max_block_ms: int
    receive_frame_bytes_max: int
    security_protocol: SecurityProtocol
    ssl_context: ssl.SSLContext | None
    ssl_cafile: str | None
    ssl_certfile: str | None
    ssl_keyfile: str | None
    ssl_password: str | None
    ssl_check_hostname: bool
    sasl_mechanism: SaslMechanism
    sasl_plain_username: str | None
    sasl_plain_password: str | None
    sasl_oauth_token_provider: TokenProvider | None
    edge: Edge | None


class AdminConfig(ClientConfig, frozen=True, kw_only=True):
    """Settings of `Admin`."""


class DriverConfig(ClientConfig, frozen=True, kw_only=True):
    """Settings of `TransactionGroup`, without its name."""

    owner: Annotated[
        str, Meaning("A text that names the driver. Members of a step that is over get it in their errors.")
    ] = ""
    timeout_ms: Annotated[
        Positive,
        Meaning(
            "A step is aborted when its first transaction is open for longer. At most the broker's "
            "transaction.max.timeout.ms."
        ),
    ] = 60_000


class TransactionGroupConfig(DriverConfig, frozen=True):
    """Settings of `TransactionGroup`."""

    name: Annotated[str, Meaning("The name of the group. Its members are the transactional ids `<name>/<member>`.")]

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.name:
            raise KafkaConfigurationError("a transaction group needs a name that is not empty")


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
    declared = settings_of(config)
    signature = inspect.signature(config).parameters.values()
    settings = [each.replace(annotation=declared[each.name].type) for each in signature]
    init.__signature__ = inspect.Signature([myself, *before, *settings])  # type: ignore[attr-defined]
    words = "".join(map(_in_words, declared.values()))
    init.__doc__ = f"{inspect.cleandoc(init.__doc__ or RAISES)}\n\nSettings:\n\n{words}"


@functools.cache
def _filled(text: str) -> str:
    return textwrap.fill(text, HELP_COLUMNS, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False)


def _in_words(setting: DeclaredSetting) -> str:
    default = "" if setting.default is msgspec.NODEFAULT else f" (default: {setting.default!r})"
    return f"{setting.name}{default}\n{_filled(setting.explanation)}\n"


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
