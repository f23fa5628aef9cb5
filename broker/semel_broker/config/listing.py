"""PURE: the list of all settings: as a configuration file to start from, and as the tables of docs/settings.md."""

import json
from collections.abc import Iterable, Iterator

from semel_broker.config.client_metrics_configs import CLIENT_METRICS_SETTINGS
from semel_broker.config.group_configs import GROUP_SETTINGS
from semel_broker.config.loading import BROKER_SETTINGS
from semel_broker.config.settings import Setting
from semel_broker.config.topic_configs import TOPIC_SETTINGS

WIDTH = 100

TABLES_OF_BROKERS = {
    "Identity, disk and addresses": "node.id",
    "Metrics of the broker": "metrics.listener",
    "TLS": "ssl.keystore.type",
    "SASL and users": "sasl.enabled.mechanisms",
    "Connections and requests": "broker.rack",
    "Authorization and audit log": "authorizer.class.name",
    "The cluster and its store": "etcd.endpoints",
    "Replication and leaders": "broker.session.timeout.ms",
    "Windows of quotas": "quota.window.num",
    "Durability and new topics": "durability",
    "Logs: size, retention, timestamps": "log.segment.bytes",
    "Compaction": "log.cleaner.enable",
    "Producers": "producer.id.expiration.ms",
    "Consumer groups and offsets": "group.min.session.timeout.ms",
    "Transactions": "transaction.version",
}
"""Title of a table -> its first setting. The others follow in the order of `BrokerSettings`."""

TOPICS = """
## Topics

Given when a topic is made (`semel topic create NAME --config retention.ms=3600000`), or later (`semel topic alter`).
One that a topic was not given follows the broker's.

"""


GROUPS = """
## Groups

Given to a group of the consumer protocol, before or while it has members (resource type 32, GROUP, of
IncrementalAlterConfigs). In force from the next heartbeat of each member on. A value has to lie within the broker's
`group.consumer.min` and `group.consumer.max` settings. One that a group was not given follows the broker's.

"""


CLIENT_METRICS = """
## Metrics of clients

Given to a subscription (resource type 16, CLIENT_METRICS, of IncrementalAlterConfigs), under a name of your choice. A
subscription without settings does not exist. Clients get the union of all subscriptions that select them.

"""


def as_toml() -> str:
    """A file for `--config` in which every setting of a broker is explained, and commented out with its default."""
    return "\n".join(_explained(setting) for setting in BROKER_SETTINGS.values())


def _explained(setting: Setting) -> str:
    dynamic = " Dynamic." if setting.doc.dynamic else ""
    lines = [f"# {line}" for line in _wrapped(setting.documentation + dynamic)]
    value = "" if setting.default is None else f" {_toml(setting.default)}"
    return "\n".join([*lines, f"#{setting.name} ={value}", ""])


def _toml(value: object) -> str:
    """A default as TOML has it; texts and lists are JSON's there."""
    return json.dumps(list(value) if isinstance(value, tuple) else value)


def _wrapped(text: str) -> Iterator[str]:
    line = ""
    for word in text.split():
        if line and len(line) + 1 + len(word) > WIDTH:
            yield line
            line = ""
        line = f"{line} {word}".lstrip()
    yield line


def as_markdown() -> str:
    """All settings as Markdown tables."""
    brokers = "\n".join(
        f"### {title}\n\n{_table('default', map(_broker_row, settings))}" for title, settings in by_topic().items()
    )
    topics = _table("the broker's", map(_topic_row, TOPIC_SETTINGS.values()))
    groups = _table("the broker's", map(_topic_row, GROUP_SETTINGS.values()))
    pushes = _table("default", map(_broker_row, CLIENT_METRICS_SETTINGS.values()))
    return "## Brokers\n\n" + brokers + TOPICS + topics + GROUPS + groups + CLIENT_METRICS + pushes


def by_topic() -> dict[str, list[Setting]]:
    """Return the settings of brokers under the title of their table."""
    title, first = "", {name: title for title, name in TABLES_OF_BROKERS.items()}
    found: dict[str, list[Setting]] = {}
    for name, setting in BROKER_SETTINGS.items():
        title = first.get(name, title)
        found.setdefault(title, []).append(setting)
    return found


def _table(column: str, rows: Iterable[str]) -> str:
    return "\n".join([f"| setting | {column} | what it does, and what it may be |", "|---|---|---|", *rows, ""])


def _broker_row(setting: Setting) -> str:
    default = setting.render(setting.default)
    shown = f"`{default}`" if default else "none"
    dynamic = " *Dynamic.*" if setting.doc.dynamic else ""
    return f"| `{setting.name}` | {shown} | {setting.documentation}{dynamic} |"


def _topic_row(setting: Setting) -> str:
    if setting.doc.fixed:
        follows = f"`{setting.render(setting.default)}`, always"
    else:
        follows = f"`{setting.doc.synonyms[0]}`" if setting.doc.synonyms else "`none`"
    return f"| `{setting.name}` | {follows} | {setting.documentation} |"
