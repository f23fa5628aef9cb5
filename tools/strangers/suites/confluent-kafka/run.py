"""EDGE: runs confluent-kafka's own integration tests, from a checkout of its tag, with the released package.

They run twice: with groups of the classic protocol, and with groups of the consumer protocol (KIP-848). Not run: tests
without a broker, tests that need a schema registry, and tests of share groups (KIP-932), each of which waits minutes.
"""

from __future__ import annotations

import shutil

from tools.strangers import pip, script

PACKAGES = ["pytest==8.4.2", "pytest-timeout==2.4.0", "pytest-asyncio==0.26.0", "urllib3<3", "requests-mock==1.12.1"]
PACKAGES += ["respx==0.22.0", "async-timeout==5.0.1"]
EXTRAS = "avro,json,protobuf,rules,schemaregistry"
NOT_RUN = [
    "tests/integration/schema_registry",
    "tests/integration/share_consumer",
    "tests/integration/share_consumer_oauth",
    "tests/integration/share_consumer_sasl",
]
PROTOCOLS = {"classic": "", "consumer": "consumer protocol: "}
"""The suite's names of the group protocols, and the prefix of the names of the tests that run with it."""
DELAY = 'topic_config["file.delete.delay.ms"] = 12345'


def main() -> None:
    version = script.pin("confluent-kafka")
    checkout = script.checkout("confluent-kafka-python", f"v{version}")
    (trivup,) = (checkout / "tests" / "trivup").glob("trivup-*.tar.gz")  # imported, but starts no broker
    packages = [f"confluent-kafka[{EXTRAS}]=={version}", *PACKAGES, str(trivup)]
    python = pip.venv(packages, script.work() / "venv")
    source = script.work() / "source"
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(checkout / "tests", source / "tests")
    conftest = source / "tests" / "integration" / "conftest.py"
    conftest.write_text(conftest.read_text() + (script.folder() / "fixtures.py.txt").read_text())
    operations = source / "tests" / "integration" / "admin" / "test_basic_operations.py"
    text = operations.read_text()
    assert DELAY in text, f"{operations.name} has no {DELAY}"
    if script.against() == "semel":  # takes 0 only, because it removes files at once; the rest of the test shall run
        operations.write_text(text.replace(DELAY, DELAY.replace("12345", "0")))
    words = ["tests/integration", *(f"--ignore={path}" for path in NOT_RUN), "--timeout=300"]
    for protocol, prefix in PROTOCOLS.items():
        variables = {"BROKERS": script.bootstrap(), "TEST_CONSUMER_GROUP_PROTOCOL": protocol}
        log = script.scratch() / f"pytest-{protocol}.log"
        script.report_all(pip.pytest(python, source, log, words, variables, without="tests."), prefix)


script.run(main)
