"""The syntax of setting values: semel accepts and refuses the same texts as Kafka's ConfigDef.

Each case was sent to Kafka 4.1.1, too (IncrementalAlterConfigs of a topic, described afterwards).
"""

from __future__ import annotations

import pytest
from semel_broker.config.settings import ConfigError
from semel_broker.config.topic_configs import TOPIC_SETTINGS

TAKEN = [
    ("retention.ms", "  5 ", "5"),
    ("retention.ms", "\t7\n", "7"),
    ("retention.ms", "\x007", "7"),
    ("retention.ms", "+5", "5"),
    ("retention.ms", "-0", "0"),
    ("retention.ms", "007", "7"),
    ("retention.ms", "٣", "3"),
    ("retention.ms", "１２", "12"),
    ("retention.ms", "9223372036854775807", "9223372036854775807"),
    ("segment.bytes", "+1048576", "1048576"),
    ("min.cleanable.dirty.ratio", " 0.25 ", "0.25"),
    ("min.cleanable.dirty.ratio", "1e-1", "0.1"),
    ("min.cleanable.dirty.ratio", "1E-3", "0.001"),
    ("min.cleanable.dirty.ratio", ".5", "0.5"),
    ("min.cleanable.dirty.ratio", "+.5", "0.5"),
    ("min.cleanable.dirty.ratio", "1.", "1.0"),
    ("min.cleanable.dirty.ratio", "0.5d", "0.5"),
    ("min.cleanable.dirty.ratio", "0.5F", "0.5"),
    ("min.cleanable.dirty.ratio", "0x1p-1", "0.5"),
    ("min.cleanable.dirty.ratio", "0x.8p0", "0.5"),
    ("min.cleanable.dirty.ratio", "0", "0.0"),
    ("min.cleanable.dirty.ratio", "-0.0", "-0.0"),
    ("min.cleanable.dirty.ratio", "1e-400", "0.0"),
    ("min.cleanable.dirty.ratio", "0.000001", "1.0E-6"),
    ("min.cleanable.dirty.ratio", "0.0001234", "1.234E-4"),
    ("min.cleanable.dirty.ratio", "0.001234", "0.001234"),
    ("min.cleanable.dirty.ratio", "0.12345678901234567890", "0.12345678901234568"),
    ("preallocate", " FALSE ", "false"),
    ("cleanup.policy", " compact , delete", "compact,delete"),
    ("cleanup.policy", "delete,delete", "delete,delete"),
    ("cleanup.policy", "", ""),
    ("cleanup.policy", " ", ""),
    ("compression.type", " zstd", "zstd"),
    ("message.timestamp.type", "CreateTime ", "CreateTime"),
]

NO_NUMBERS = [
    *("1e3", "5.0", "1.0", "0x10", "1_000", "5L", "--5", "- 5", "+", "-", "", "  ", "true", "null", "none", "²", "𝟓"),
    *("9223372036854775808", "-9223372036854775809", "1" * 5000, "-2", "\u00a05", "5\u00a0", "\u20035"),
]
NO_RATIOS = ["", ".", "0_1", "٠.٥", "0.1e", "0,5", "nan", "inf", "NaN", "Infinity", "1e400", "1.0000001", "5.", "0x1"]
REFUSED = [
    *(("retention.ms", text) for text in NO_NUMBERS),
    *(("min.cleanable.dirty.ratio", text) for text in NO_RATIOS),
    *(("preallocate", text) for text in ("yes", "on", "1", "0", "t", "", "\u00a0false")),
    ("segment.bytes", "1e6"),
    ("segment.bytes", "1048576.0"),
    ("segment.bytes", "2147483648"),
    *(("cleanup.policy", text) for text in ("delete,", ",", "delete,,compact", "DELETE", "delete;compact")),
    *(("compression.type", text) for text in ("GZIP", "none", "", "snappy,lz4")),
    ("message.timestamp.type", "createtime"),
]


@pytest.mark.parametrize(("name", "text", "value"), TAKEN)
def test_values_that_kafka_accepts_are_accepted_and_rendered_as_by_kafka(name: str, text: str, value: str) -> None:
    setting = TOPIC_SETTINGS[name]
    assert setting.render(setting.parse(text)) == value


@pytest.mark.parametrize(("name", "text"), REFUSED)
def test_text_that_kafka_refuses_is_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=f"^{name} = .*: must be "):
        TOPIC_SETTINGS[name].parse(text)
