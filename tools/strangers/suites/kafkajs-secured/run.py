"""EDGE: runs kafkajs' own tests of ACLs, TLS and SASL, from a checkout of its tag."""

from __future__ import annotations

from pathlib import Path

from tools.strangers import npm, script

FILES = "Acls.spec|connect.spec|connection.spec|reauthenticate|src/producer/index.spec"
NOT_RUN = "src/protocol|src/utils|src/loggers"


def port(protocol: str) -> str:
    return script.listener(protocol).rpartition(":")[2]


def prepare(source: Path) -> None:
    """Replace the brokers' addresses and the CA in the suite; the suite itself checks no certificate."""
    path = source / "testHelpers" / "index.js"
    text = path.read_text()
    plaintext = port("PLAINTEXT")
    for theirs, ours in (
        ("[`${host}:9092`, `${host}:9095`, `${host}:9098`]", f"[`${{host}}:{plaintext}`]"),
        ("[`${host}:9093`, `${host}:9096`, `${host}:9099`]", f"[`${{host}}:{port('SSL')}`]"),
        ("[`${host}:9094`, `${host}:9097`, `${host}:9100`]", f"[`${{host}}:{port('SASL_SSL')}`]"),
        ("const getHost = () => 'localhost'", "const getHost = () => '127.0.0.1'"),
        ("rejectUnauthorized: false", "rejectUnauthorized: true"),
        ("./testHelpers/certs/cert-signed", str(script.security() / "ca.pem")),
        ("port: 9092", f"port: {plaintext}"),
        ("port: 9093", f"port: {port('SSL')}"),
        ("${getHost()}:9092", f"${{getHost()}}:{plaintext}"),
    ):
        assert theirs in text, f"testHelpers/index.js has no {theirs}"
        text = text.replace(theirs, ours)
    path.write_text(text)
    for file in [path, *source.glob("src/**/*.spec.js")]:
        text = file.read_text().replace("port: 9094", f"port: {port('SASL_SSL')}")
        file.write_text(text.replace("replicationFactor: 2", f"replicationFactor: {script.replicas()}"))


def main() -> None:
    source = npm.install(npm.copy(script.checkout(tag=f"v{script.pin('kafkajs')}"), script.work() / "source"))
    prepare(source)
    variables = {"NODE_ENV": "test", "KAFKA_VERSION": "2.4", "KAFKAJS_DEBUG_PROTOCOL_BUFFERS": "1"}
    words = ["--ci", "--maxWorkers=2", "--no-watchman", "--forceExit", "--reporters=default"]
    words += [f"--testPathPattern={FILES}", f"--testPathIgnorePatterns={NOT_RUN}", "/node_modules/"]
    script.report_all(npm.jest(source, script.scratch() / "jest.log", words, variables))


script.run(main)
