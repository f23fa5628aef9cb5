"""EDGE: runs kafkajs' own tests that need brokers, from a checkout of its tag."""

from __future__ import annotations

from pathlib import Path

from tools.strangers import npm, script

NOT_RUN = (
    "Acls.spec|connect.spec|connection.spec|reauthenticate|saslAuthenticator|oauth|src/protocol|src/utils|src/loggers"
)
"""Files about ACLs, TLS and SASL, whose tests wait long for missing listeners; unit tests without a broker."""


def prepare(source: Path) -> None:
    """Replace the brokers' addresses in the suite."""
    host, _, port = script.bootstrap().split(",")[0].rpartition(":")
    path = source / "testHelpers" / "index.js"
    text = path.read_text()
    for theirs, ours in (
        ("[`${host}:9092`, `${host}:9095`, `${host}:9098`]", "process.env.STRANGERS_BOOTSTRAP.split(',')"),
        ("const getHost = () => 'localhost'", f"const getHost = () => '{host}'"),
        ("port: 9092", f"port: {port}"),
        ("${getHost()}:9092", f"${{getHost()}}:{port}"),
    ):
        assert theirs in text, f"testHelpers/index.js has no {theirs}"
        text = text.replace(theirs, ours)
    path.write_text(text)
    partitions = source / "scripts" / "addPartitions.sh"
    partitions.write_text(f'#!/bin/sh\nexec node "{script.folder() / "partitions.js"}"\n')


def main() -> None:
    source = npm.install(npm.copy(script.checkout(tag=f"v{script.pin('kafkajs')}"), script.work() / "source"))
    prepare(source)
    variables = {"NODE_ENV": "test", "KAFKA_VERSION": "2.4", "KAFKAJS_DEBUG_PROTOCOL_BUFFERS": "1"}
    words = ["--ci", "--maxWorkers=2", "--no-watchman", "--forceExit", "--reporters=default"]
    words += [f"--testPathIgnorePatterns={NOT_RUN}", "/node_modules/"]
    script.report_all(npm.jest(source, script.scratch() / "jest.log", words, variables))


script.run(main)
