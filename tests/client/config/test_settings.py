"""Settings are checked when the object is created: type and bounds. Unsupported settings are refused by name."""

from __future__ import annotations

import asyncio
import inspect
import re
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import aiokafka
import aiokafka.admin
import msgspec
import pytest
from client.fake_broker import FakeBroker
from semel import Admin, BatchReader, Consumer, Producer, TransactionGroup
from semel._config.client import AdminConfig, ClientConfig, TransactionGroupConfig
from semel._config.consumer import ConsumerConfig, ConsumerKeywords
from semel._config.producer import ProducerConfig, ProducerKeywords
from semel._config.settings import FOREIGN, Meaning, Rule, made, settings_of
from semel._net.cluster import Cluster
from semel.aiokafka import AIOKafkaAdminClient, AIOKafkaConsumer, AIOKafkaProducer
from semel.batch_reader import BatchReaderConfig
from semel.errors import KafkaConfigurationError, KafkaConnectionError, KafkaError

DOCS = Path(__file__).parents[3] / "docs" / "moving-from-aiokafka.md"
TLS = Path(__file__).parents[2] / "data" / "tls"


def group_of(**settings: Any) -> TransactionGroup:
    return TransactionGroup("group", **settings)


CLIENTS: list[Callable[..., object]] = [
    Producer, Consumer, Admin, BatchReader, group_of, AIOKafkaProducer, AIOKafkaConsumer, AIOKafkaAdminClient,
]  # fmt: skip
THEIRS = [
    (aiokafka.AIOKafkaProducer, ProducerConfig),
    (aiokafka.AIOKafkaConsumer, ConsumerConfig),
    (aiokafka.admin.AIOKafkaAdminClient, AdminConfig),
]
CONFIGS: list[type[ClientConfig]] = [
    ProducerConfig, ConsumerConfig, AdminConfig, BatchReaderConfig, TransactionGroupConfig,
]  # fmt: skip


def refusal(make: Callable[..., object], **settings: Any) -> str:
    with pytest.raises(KafkaConfigurationError) as caught:
        make(**settings)
    return str(caught.value)


@pytest.mark.parametrize("make", CLIENTS)
@pytest.mark.parametrize("protocol", ["SASL", "sasl_ssl", "ssl", "nonsense", "", None, True, 1])
def test_a_security_protocol_that_is_not_spoken_is_refused(make: Callable[..., object], protocol: Any) -> None:
    said = refusal(make, security_protocol=protocol)
    assert f"security_protocol={protocol!r}" in said
    assert "'PLAINTEXT'" in said
    assert "'SSL'" in said


USER = {"sasl_plain_username": "me", "sasl_plain_password": "hush"}


class FakeTokens:
    async def token(self) -> str:
        return "hush"


@pytest.mark.parametrize("make", CLIENTS)
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_user_and_password_are_accepted_with_their_mechanisms(make: Callable[..., object], mechanism: str) -> None:
    make(security_protocol="SASL_PLAINTEXT", sasl_mechanism=mechanism, **USER)
    make(security_protocol="SASL_SSL", ssl_context=ssl.create_default_context(), sasl_mechanism=mechanism, **USER)


@pytest.mark.parametrize("make", CLIENTS)
def test_a_provider_of_tokens_is_accepted_with_oauthbearer(make: Callable[..., object]) -> None:
    make(security_protocol="SASL_PLAINTEXT", sasl_mechanism="OAUTHBEARER", sasl_oauth_token_provider=FakeTokens())


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "sasl_mechanism='PLAIN' needs sasl_plain_username"),
        ({"sasl_plain_username": "me"}, "sasl_mechanism='PLAIN' needs sasl_plain_password"),
        ({"sasl_plain_username": "", "sasl_plain_password": "hush"}, "needs sasl_plain_username"),
        ({"sasl_plain_username": "me", "sasl_plain_password": ""}, "needs sasl_plain_password"),
        ({"sasl_plain_username": "me", "sasl_plain_password": "hu\0sh"}, "sasl_plain_password has a zero byte"),
        ({"sasl_plain_username": "me", "sasl_plain_password": b"hush"}, "sasl_plain_password: give a str, or None"),
        ({"sasl_mechanism": "OAUTHBEARER"}, "sasl_mechanism='OAUTHBEARER' needs sasl_oauth_token_provider"),
        ({"sasl_mechanism": "OAUTHBEARER", **USER}, "sasl_plain_username is given but sasl_mechanism='OAUTHBEARER'"),
        ({"sasl_oauth_token_provider": FakeTokens(), **USER}, "sasl_oauth_token_provider is given but sasl_mechanism"),
        ({"sasl_oauth_token_provider": FakeTokens}, "sasl_oauth_token_provider: give an object with `async def token"),
        ({"sasl_mechanism": "GSSAPI"}, "GSSAPI (Kerberos) is not supported: use one of PLAIN, SCRAM-SHA-256"),
        ({"sasl_mechanism": "scram", **USER}, "sasl_mechanism='scram': give one of"),
        ({"ssl_cafile": "ca.pem", **USER}, "security_protocol is 'SASL_PLAINTEXT': set it to 'SASL_SSL'"),
        (
            {"security_protocol": "PLAINTEXT", **USER},
            "sasl_plain_username is given but security_protocol is 'PLAINTEXT'",
        ),
    ],
)
def test_settings_of_sasl_that_do_not_fit_are_refused(settings: dict[str, Any], said: str) -> None:
    words = refusal(Producer, **{"security_protocol": "SASL_PLAINTEXT", "ssl_context": None, **settings})
    assert said in words
    assert "hush" not in words.replace("\0", "")


@pytest.mark.proves("secrets-shown")
def test_secrets_are_neither_in_a_repr_nor_in_help() -> None:
    config = ProducerConfig(security_protocol="SASL_PLAINTEXT", sasl_plain_username="me", sasl_plain_password="hush")
    for text in (repr(config), str(config), f"{Producer.__init__.__doc__}", f"{inspect.signature(Producer.__init__)}"):
        assert "hush" not in text


@pytest.mark.parametrize("make", CLIENTS)
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sasl_mechanism", "GSSAPI"),
        ("sasl_plain_username", "me"),
        ("sasl_plain_password", "secret"),
        ("sasl_kerberos_service_name", "broker"),
        ("sasl_kerberos_domain_name", "example.org"),
        ("sasl_oauth_token_provider", object()),
        ("ssl_context", "ctx"),
        ("ssl_context", ssl.create_default_context()),
        ("ssl_cafile", "ca.pem"),
        ("ssl_certfile", "client.pem"),
        ("ssl_keyfile", "client.key"),
        ("ssl_password", ["secret"]),
        ("ssl_check_hostname", False),
        ("api_version", (0, 9)),
        ("api_version", "0.9"),
        ("loop", "loop"),
    ],
)
def test_unsupported_settings_are_refused_by_name(make: Callable[..., object], name: str, value: Any) -> None:
    said = refusal(make, **{name: value})
    assert name in said
    assert "secret" not in said


@pytest.mark.filterwarnings("ignore:the setting `loop`:DeprecationWarning")
@pytest.mark.parametrize("make", CLIENTS)
def test_the_defaults_of_aiokafka_are_accepted(make: Callable[..., object]) -> None:
    async def made() -> None:
        make(
            client_id=None, loop=asyncio.get_running_loop(), api_version="auto", security_protocol="PLAINTEXT",
            ssl_context=None, sasl_mechanism="PLAIN", sasl_plain_username=None, sasl_plain_password=None,
            sasl_kerberos_service_name="kafka", sasl_kerberos_domain_name=None, sasl_oauth_token_provider=None,
            connections_max_idle_ms=None,
        )  # fmt: skip

    asyncio.run(made())


def test_a_loop_that_does_not_run_is_refused() -> None:
    other = asyncio.new_event_loop()
    try:
        assert "loop" in refusal(Producer, loop=other)
    finally:
        other.close()


@pytest.mark.parametrize(("theirs", "ours"), THEIRS)
def test_every_setting_of_aiokafka_is_supported_or_refused(theirs: type, ours: type[ClientConfig]) -> None:
    parameters = inspect.signature(theirs.__init__).parameters  # type: ignore[misc]
    names = {name for name, each in parameters.items() if each.kind is not each.VAR_POSITIONAL} - {"self"}
    assert names <= set(ours.__struct_fields__) | set(FOREIGN)


def test_the_defaults_of_aiokafka_make_a_client_of_ours() -> None:
    """All defaults except aiokafka's own classes, and timeouts shorter than the steps that they contain."""
    for theirs, make in ((aiokafka.AIOKafkaConsumer, Consumer), (aiokafka.admin.AIOKafkaAdminClient, Admin)):
        parameters = inspect.signature(theirs.__init__).parameters
        given = {n: p.default for n, p in parameters.items() if p.default is not p.empty}
        given.pop("partition_assignment_strategy", None)
        make(**given)
    given = {n: p.default for n, p in inspect.signature(aiokafka.AIOKafkaProducer.__init__).parameters.items()}
    Producer(**{name: value for name, value in given.items() if name not in ("self", "acks")})


def test_the_page_about_moving_names_what_has_no_effect() -> None:
    page = DOCS.read_text()
    for name in FOREIGN:
        assert f"`{name}" in page or f"{name.partition('_')[0]}_*" in page, name


@pytest.mark.parametrize("config", CONFIGS)
def test_every_default_keeps_its_rule(config: type[ClientConfig]) -> None:
    for setting in settings_of(config).values():
        if setting.default is not msgspec.NODEFAULT:
            setting.rule.check(setting.name, setting.default)


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        (int, "<class 'int'> does not say which values are allowed: add a Rule"),
        (Annotated[bool, "a text"], "'a text' is neither a Rule nor a Meaning"),
        (bool, "say what it does, with a Meaning"),
        (Annotated[bool, Rule("a flag", lambda value: True)], "say what it does, with a Meaning"),
    ],
)
def test_a_setting_that_is_not_declared_whole_is_refused(declared: Any, words: str) -> None:
    config = msgspec.defstruct("TryConfig", [("tries", declared)])
    with pytest.raises(TypeError, match=re.escape(f"TryConfig.tries: {words}")):
        settings_of(config)


def test_a_type_that_names_its_values_needs_no_rule() -> None:
    fields = [
        ("flag", Annotated[bool, Meaning("A flag.")]),
        ("text", Annotated[str, Meaning("A text.")]),
        ("text_or_none", Annotated[str | None, Meaning("A text.")]),
        ("codec", Annotated[Literal["zstd", "gzip"] | None, Meaning("A codec.")]),
        ("function", Annotated[Callable[[], int] | None, Meaning("A function.")]),
    ]
    kinds = {each.name: each.rule.kind for each in settings_of(msgspec.defstruct("TypedConfig", fields)).values()}
    assert kinds == {
        "flag": "one of True, False",
        "text": "a str of at most 32767 bytes",
        "text_or_none": "a str of at most 32767 bytes, or None",
        "codec": "one of None, 'zstd', 'gzip'",
        "function": "a function, or None",
    }


NO_VALUES: dict[str, list[Any]] = {
    "whole": ["5", 5.5, None, True, b"5", [5], float("nan"), -5, 1 << 70],
    "flag": ["true", 1, None, 0],
    "text": [b"x", 5, True, "\ud800", "x" * 40_000],
    "call": ["str", 5, True, object()],
}

ALLOWED = [("connections_max_idle_ms", None), ("max_poll_records", None), ("linger_ms", 5.5)]


def kind_of(name: str) -> str | None:
    default = {f.name: f.default for config in CONFIGS for f in msgspec.structs.fields(config)}[name]
    if isinstance(default, bool):
        return "flag"
    if isinstance(default, int):
        return "whole"
    if name.endswith(("serializer", "partitioner")):
        return "call"
    return "text" if name in ("client_id", "client_rack", "group_id", "group_instance_id", "transactional_id") else None


@pytest.mark.parametrize("config", CONFIGS)
def test_values_of_a_wrong_type_are_refused(config: type[ClientConfig]) -> None:
    given = {"name": "g"} if config is TransactionGroupConfig else {}
    for name in config.__struct_fields__:
        for value in NO_VALUES.get(kind_of(name) or "", []):
            if (name, value) in ALLOWED:
                continue
            said = refusal(config, **given, **{name: value})
            assert said.startswith(f"{name}="), (name, value, said)
            assert len(said) < 400


@pytest.mark.parametrize(
    ("make", "settings", "words"),
    [
        (Producer, {"linger_ms": float("nan")}, "linger_ms=nan"),
        (Producer, {"linger_ms": float("inf")}, "linger_ms=inf"),
        (Producer, {"linger_ms": "5"}, "linger_ms='5'"),
        (Producer, {"acks": True}, "acks=True"),
        (Producer, {"acks": 1.0, "enable_idempotence": False}, "acks=1.0"),
        (Producer, {"acks": "1"}, "acks='1'"),
        (Producer, {"compression_type": ["gzip"]}, "compression_type=['gzip']"),
        (Producer, {"transaction_timeout_ms": 1 << 31}, "transaction_timeout_ms=2147483648"),
        (Producer, {"transaction_group_step": "step"}, "transaction_group_step='step'"),
        (Producer, {"edge": "edge"}, "edge='edge'"),
        (Consumer, {"partition_assignment_strategy": 5}, "partition_assignment_strategy=5"),
        (Consumer, {"partition_assignment_strategy": [5]}, "partition_assignment_strategy"),
        (Consumer, {"partition_assignment_strategy": [dict]}, "partition_assignment_strategy"),
        (Consumer, {"session_timeout_ms": 1 << 31}, "session_timeout_ms=2147483648"),
        (Consumer, {"consumer_timeout_ms": "soon"}, "consumer_timeout_ms='soon'"),
        (Consumer, {"max_poll_records": 2.5}, "max_poll_records=2.5"),
        (Consumer, {"isolation_level": 1}, "isolation_level=1"),
        (Admin, {"bootstrap_servers": 9092}, "bootstrap_servers=9092"),
        (Admin, {"bootstrap_servers": None}, "bootstrap_servers=None"),
        (Admin, {"bootstrap_servers": [("h", 1)]}, "bootstrap_servers has ('h', 1)"),
        (Admin, {"bootstrap_servers": b"h:1"}, "bootstrap_servers=b'h:1'"),
        (Admin, {"bootstrap_servers": "SSL://h:1"}, "bootstrap_servers has 'SSL://h:1'"),
        (Admin, {"bootstrap_servers": "h:" + "9" * 5000}, "bootstrap_servers has"),
        (Admin, {"bootstrap_servers": "a b:1"}, "bootstrap_servers has 'a b:1'"),
        (BatchReader, {"isolation_level": "committed"}, "isolation_level='committed'"),
        (group_of, {"owner": 5}, "owner=5"),
        (group_of, {"timeout_ms": 0}, "timeout_ms=0"),
    ],
)
def test_values_that_are_none_are_named(make: Callable[..., object], settings: dict[str, Any], words: str) -> None:
    assert words in refusal(make, **settings)


@pytest.mark.parametrize("make", [Producer, Admin, BatchReader, AIOKafkaProducer, AIOKafkaAdminClient])
def test_a_setting_without_a_name_is_explained(make: Callable[..., object]) -> None:
    with pytest.raises(TypeError, match=r"'host:1' is given without a name.*bootstrap_servers="):
        make("host:1")


@pytest.mark.parametrize("make", CLIENTS)
def test_a_mistyped_setting_gets_a_proposal(make: Callable[..., object]) -> None:
    with pytest.raises(TypeError, match=r"has no setting 'clientid': did you mean 'client_id'\?"):
        make(clientid="me")
    with pytest.raises(TypeError, match=r"has no setting 'zzz': .*client-settings"):
        make(zzz=1)


@pytest.mark.parametrize(
    ("config", "keywords", "typed_apart"),
    [
        (ProducerConfig, ProducerKeywords, {"key_serializer", "value_serializer"}),
        (ConsumerConfig, ConsumerKeywords, {"key_deserializer", "value_deserializer"}),
    ],
)
def test_the_keywords_that_type_checkers_know_are_the_settings(
    config: type[ClientConfig], keywords: type, typed_apart: set[str]
) -> None:
    assert set(get_type_hints(keywords)) == set(config.__struct_fields__) - typed_apart
    hints, own = get_type_hints(keywords), get_type_hints(config)
    assert hints == {name: own[name] for name in hints}


def test_bootstrap_servers_from_a_generator_are_looked_at_once() -> None:
    config = ClientConfig(bootstrap_servers=(f"h{n}:1" for n in range(2)))
    assert config.servers() == config.servers() == [("h0", 1), ("h1", 1)]


@pytest.mark.real_time
async def test_ssl_speaks_tls_and_checks_the_brokers_name() -> None:
    broker = FakeBroker()
    broker.tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    broker.tls.load_cert_chain(TLS / "localhost.pem", TLS / "localhost.key")
    trusting = ssl.create_default_context(cafile=TLS / "localhost.pem")
    async with broker:
        given: dict[str, Any] = {"bootstrap_servers": broker.address, "security_protocol": "SSL"}
        async with Producer(**given, ssl_context=trusting) as producer:
            await producer.send_and_wait("t", b"in secret")
        assert broker.logs["t", 0].values == [b"in secret"]
        with pytest.raises(KafkaConnectionError, match="CERTIFICATE_VERIFY_FAILED"):
            await Producer(**given, ssl_context=ssl.create_default_context(), bootstrap_timeout_ms=1_000).start()


@pytest.mark.real_time
async def test_tls_and_plaintext_mismatches_are_explained() -> None:
    async def answer_as_tls(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(bytes.fromhex("15030300020246"))  # a fatal alert: protocol version
        writer.close()

    server = await asyncio.start_server(answer_as_tls, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(KafkaError, match="looks like a TLS alert"):
        await Producer(bootstrap_servers=f"127.0.0.1:{port}", bootstrap_timeout_ms=1_000).start()
    given = {"security_protocol": "SSL", "ssl_context": ssl.create_default_context(), "bootstrap_timeout_ms": 1_000}
    with pytest.raises(KafkaConnectionError, match="no version of TLS in common"):
        await Producer(bootstrap_servers=f"127.0.0.1:{port}", **given).start()
    server.close()


async def test_connections_that_never_are_idle_for_too_long_stay(fake_broker: FakeBroker) -> None:
    cluster = Cluster(ClientConfig(bootstrap_servers=fake_broker.address, connections_max_idle_ms=None))
    await cluster.start()
    cluster.pool.close_idle()
    assert fake_broker.connections
    await cluster.stop()


@pytest.mark.parametrize("make", [Consumer, AIOKafkaConsumer])
@pytest.mark.parametrize(
    ("name", "value"),
    [("session_timeout_ms", 45_000), ("heartbeat_interval_ms", 3_000), ("partition_assignment_strategy", ("range",))],
)
def test_kip848_settings_of_the_broker_are_refused_by_name_with_the_brokers_setting(
    make: Callable[..., object], name: str, value: Any
) -> None:
    with pytest.raises(KafkaConfigurationError, match=rf"^{name} .*the broker's setting is group\.consumer\."):
        make("t", group_id="g", group_protocol="consumer", **{name: value})
    make("t", group_id="g", group_protocol="classic", **{name: value})
    make("t", group_id="g", group_protocol="consumer")


def test_an_assignor_of_the_broker_needs_the_consumer_protocol() -> None:
    with pytest.raises(KafkaConfigurationError, match="set it to 'consumer'"):
        Consumer("t", group_id="g", group_remote_assignor="range")


def test_the_signature_of_a_config_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """msgspec builds the signature of a struct anew at each access and does not free all of it."""
    made(ConsumerConfig, {"bootstrap_servers": "localhost"})

    def refuse(config: object) -> inspect.Signature:
        raise AssertionError(f"the signature of {config} is read again")

    monkeypatch.setattr(inspect, "signature", refuse)
    made(ConsumerConfig, {"bootstrap_servers": "localhost"})
