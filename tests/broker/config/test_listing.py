"""All settings as a file and as a page."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner
from semel_broker.__main__ import serve
from semel_broker.config.kafka_names import NAMES, PREFIXES, instead
from semel_broker.config.listing import as_markdown, as_toml
from semel_broker.config.loading import BROKER_SETTINGS, ConfigError, load
from semel_broker.config.topic_configs import TOPIC_SETTINGS


def test_the_file_means_the_defaults_with_and_without_its_comment_signs() -> None:
    assert load(as_toml()).given == {}
    everything = "\n".join(re.findall(r"^#([a-z0-9.]+ = .+)$", as_toml(), re.MULTILINE))
    config = load(everything)
    for name, setting in BROKER_SETTINGS.items():
        assert getattr(config, setting.field) == setting.default, name
        assert (name in config.given) is (setting.default is not None), name


def test_every_setting_is_in_both() -> None:
    for name, setting in BROKER_SETTINGS.items():
        assert f"\n#{name} =" in f"\n{as_toml()}"
        assert f"| `{name}` |" in as_markdown()
        assert not setting.documentation.endswith("of ."), name
    for name in TOPIC_SETTINGS:
        assert f"| `{name}` | `" in as_markdown()


def test_the_command_prints_the_tables() -> None:
    printed = CliRunner().invoke(serve, ["--settings", "markdown"])
    assert printed.exit_code == 0
    assert printed.stdout == as_markdown()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("inter.broker.listener.name=PLAINTEXT", "peer.host.name and peer.port"),
        ("process.roles=broker,controller", "etcd.endpoints"),
    ],
)
def test_settings_that_have_another_name_in_kafka_are_refused_with_the_name_here(given: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load(overrides=[given])


def test_the_settings_named_in_place_of_kafkas_exist() -> None:
    for name, words in {**NAMES, **PREFIXES}.items():
        assert name not in BROKER_SETTINGS
        assert name not in TOPIC_SETTINGS
        named = set(re.findall(r"[a-z]+(?:\.[a-z]+)+", words)) - {"group.protocol"}
        assert named <= {*BROKER_SETTINGS, *TOPIC_SETTINGS}, name
        assert named or words.endswith("leave it out") or "leave it out" in words, name


def test_few_settings_have_the_prefix_of_refused_ones() -> None:
    """The prefixes are looked up first."""
    assert [name for name in {**BROKER_SETTINGS, **TOPIC_SETTINGS} if instead(name)] == [
        "metrics.listener",
        "metrics.series.max",
        "telemetry.max.bytes",
        "telemetry.otlp.endpoint",
        *[name for name in BROKER_SETTINGS if name.startswith("ssl.")],
        *[name for name in BROKER_SETTINGS if name.startswith("sasl.")],
        "socket.request.max.bytes",
        "authorizer.class.name",
        "security.inter.broker.protocol",
        *[name for name in BROKER_SETTINGS if name.startswith("group.consumer.")],
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
    ]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("num.io.threads", "one event loop"),
        ("ssl.keystore.password", "are PEM"),
        ("zookeeper.session.timeout.ms", "etcd.endpoints"),
        ("inter.broker.protocol.version", "negotiated"),
        ("fetch.purgatory.purge.interval.requests", "leave it out"),
        ("log.cleaner.io.max.bytes.per.second", "paces itself"),
        ("remote.log.storage.system.enable", "no tiered storage"),
    ],
)
def test_common_settings_of_kafka_are_refused_with_what_to_do(name: str, words: str) -> None:
    with pytest.raises(ConfigError, match=f"^{name}: there is no such setting here; .*{words}"):
        load(f'"{name}" = 1')
    with pytest.raises(ConfigError, match=words):
        load().alter(dynamic_default={name: "1"}, dynamic={})
