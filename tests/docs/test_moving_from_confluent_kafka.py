"""docs/moving-from-confluent-kafka.md: the two programs do the same, and the table has the defaults of librdkafka."""

from __future__ import annotations

import ctypes
import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

import pytest
from semel_broker.testing.in_process import EphemeralBroker

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "moving-from-confluent-kafka.md").read_text()
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE[PAGE.index("## Settings") :].splitlines()
    if line.startswith("| `")
]
VALUE_BYTES = 512


@pytest.mark.parametrize("index", [0, 1])
def test_each_program_sends_and_reads_every_record(semel_broker: EphemeralBroker, index: int) -> None:
    code = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[index]
    assert "localhost:9092" in code
    code = code.replace("localhost:9092", semel_broker.bootstrap_servers)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(list(range(10)))


def test_librdkafkas_defaults_are_its_own() -> None:
    assert len(ROWS) > 30
    for name, default, *_ in ROWS:
        found = default_of(name.strip("`"))
        assert found == default.strip("`").replace("–", ""), name


def default_of(name: str) -> str:
    """Ask the library inside confluent-kafka: settings of clients first, then those of topics."""
    (path,) = (
        file.locate() for file in importlib.metadata.files("confluent-kafka") or () if "/librdkafka-" in str(file)
    )
    library = ctypes.CDLL(str(path))
    for kind in ("rd_kafka_conf", "rd_kafka_topic_conf"):
        new, get = getattr(library, f"{kind}_new"), getattr(library, f"{kind}_get")
        new.restype = ctypes.c_void_p
        value, size = ctypes.create_string_buffer(VALUE_BYTES), ctypes.c_size_t(VALUE_BYTES)
        if get(ctypes.c_void_p(new()), name.encode(), value, ctypes.byref(size)) == 0:
            return value.value.decode()
    return ""
