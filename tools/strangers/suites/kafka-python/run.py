"""EDGE: runs kafka-python's own tests, from a checkout of its tag, with the released package."""

from __future__ import annotations

import shutil
from pathlib import Path

from tools.strangers import pip, script

PACKAGES = ["pytest==9.0.2", "pytest-mock==3.15.1", "pytest-timeout==2.4.0", "py==1.11.0"]
CODECS = ["python-snappy==0.7.3", "zstandard==0.25.0", "lz4==4.4.4", "botocore==1.40.0", "xxhash==3.6.0", "crc32c==2.8"]


def prepare(tests: Path) -> None:
    """Replace the brokers that the suite would start for TLS and SASL by listeners of the one that is there."""
    fixtures = (script.folder() / "fixtures.py.txt").read_text()
    for name, theirs, ours in (
        ("conftest.py", "KafkaFixture.instance(0, host=host, port=port, external=True)", "outside(**broker_params)"),
        ("test_sasl_integration.py", '"KAFKA_URI" in os.environ', '"NO_SASL" in os.environ'),
        ("test_ssl_integration.py", "KafkaFixture.instance(0, tmp_dir=tmp, transport='SSL')", "outside_ssl(tmp)"),
        ("test_ssl_integration.py", "import logging\n", "import logging\nfrom .conftest import outside_ssl\n"),
    ):
        path = tests / "integration" / name
        text = path.read_text()
        assert theirs in text, f"{name} has no {theirs}"
        path.write_text(text.replace(theirs, ours))
    conftest = tests / "integration" / "conftest.py"
    conftest.write_text(conftest.read_text() + fixtures)


def main() -> None:
    version = script.pin("kafka-python")
    checkout = script.checkout("kafka-python", version)
    python = pip.venv([f"kafka-python=={version}", *PACKAGES, *CODECS], script.work() / "venv")
    source = script.work() / "source"
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(checkout / "test", source / "test")
    shutil.copy(checkout / "pyproject.toml", source)
    prepare(source / "test")
    variables = {
        "KAFKA_VERSION": "4.1.1",
        "KAFKA_URI": f"kafka://{script.bootstrap()}",
        "KAFKA_ROOT": str(source),  # must exist, but no broker is started from it
    }
    words = ["test", "--timeout=300", "-W", "ignore"]
    script.report_all(pip.pytest(python, source, script.scratch() / "pytest.log", words, variables, without="test."))


script.run(main)
