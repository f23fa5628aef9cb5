"""The example in the docstring of each client class runs against a broker."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import semel
from support.processes import BrokerProcess

CLASSES = [semel.Producer, semel.Admin, semel.Consumer, semel.TransactionGroup, semel.BatchReader]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("broker"), **{"group.initial.rebalance.delay.ms": "0"}).start()
    yield process
    assert process.stop() == 0


def example(cls: type) -> str:
    """The first `async with` of the docstring, up to the next paragraph."""
    text = textwrap.dedent("    " + (cls.__doc__ or "").lstrip())
    start = text.index("async with ")
    return text[start:].split("\n\n")[0]


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_the_example_of_the_class_runs(broker: BrokerProcess, tmp_path: Path, cls: type) -> None:
    code = example(cls).replace("localhost:9092", broker.address)
    code = code.replace("Producer(trans", f"Producer(bootstrap_servers={broker.address!r}, trans")
    if cls is semel.Consumer:  # the iteration would wait for more records: start at the first one and end after it
        code = code.replace('group_id="delays"', 'group_id="delays", auto_offset_reset="earliest"')
        code += "\n        break"
    if cls is semel.BatchReader:  # there is one record yet
        code = code.replace("end=1_000", "end=1")
    program = (
        "import asyncio\nfrom semel import *\nfrom semel import NewTopic\n\n\nasync def main():\n"
        f"    async with Producer(bootstrap_servers={broker.address!r}) as first:\n"
        f"        await first.send_and_wait('flights', b'UA 1545', partition=0)\n{textwrap.indent(code, '    ')}\n\n\n"
        "asyncio.run(main())\n"
    )
    if cls is semel.Admin:  # which makes the topic itself
        program = program.replace("'flights', b'UA", "'others', b'UA").replace('"flights"', '"new-flights"')
    (tmp_path / "program.py").write_text(program)
    command = [sys.executable, str(tmp_path / "program.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"{program}\n{done.stderr}"
    assert bool(done.stdout) == ("print(" in code), "an example that prints has something to print"
