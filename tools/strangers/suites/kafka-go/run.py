"""EDGE: runs kafka-go's own tests, from its module, with the broker's address instead of localhost:9092."""

from __future__ import annotations

import re
from pathlib import Path

from tools.strangers import gomod, script

MODULE = "github.com/segmentio/kafka-go"
OF_NO_BROKER = ("address_test.go", "protocol_test.go")
"""Tests of the protocol and of addresses: their ports belong to no broker."""

CRASHES = (
    "verify_offset_committed",
    "verify_offset_committed_when_using_interval_committer",
    "consumer_group_commits_on_close",
)
"""Subtests of TestReaderConsumerGroup: their helper getOffsets calls an unset function, which ends the process."""


def with_address(text: str, address: str) -> str:
    """Return the test file with this broker address."""
    host, _, port = address.rpartition(":")
    text = re.sub(r"(localhost|127\.0\.0\.1):9093", script.listener("SASL_PLAINTEXT"), text)
    text = text.replace("localhost:9092", address).replace('"localhost", Port: 9092', f'"{host}", Port: {port}')
    text = text.replace('Host != "localhost"', f'Host != "{host}"').replace('TCP("localhost")', f'TCP("{address}")')
    return text.replace("9092", port)


def files(source: Path) -> list[Path]:
    found = [path for path in source.rglob("*_test.go") if "protocol" not in path.relative_to(source).parts]
    return [path for path in found if path.name not in OF_NO_BROKER]


def main() -> None:
    source = gomod.source(MODULE, script.pin(MODULE), script.work() / "source")
    for path in files(source):
        path.write_text(with_address(path.read_text(), script.bootstrap()))
    variables = {"KAFKA_VERSION": "3.7.0", "KAFKA_SKIP_NETTEST": "1"}  # as in its own CI
    words = ["-skip", f"^TestReaderConsumerGroup$/^({'|'.join(CRASHES)})$", "./..."]
    script.report_all(gomod.test(source, script.scratch() / "go.json", words, variables, timeout_s=1800))
    for name in CRASHES:
        script.report(
            f"kafka-go.TestReaderConsumerGroup/{name}",
            "skipped",
            "its own helper getOffsets panics, whatever the broker",
        )


script.run(main)
