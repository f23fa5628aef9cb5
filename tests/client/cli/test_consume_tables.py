"""`semel consume --output arrow|parquet`: a readable file of the records, however the command ends."""

from __future__ import annotations

import asyncio
import io
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from client.shell import Shell
from semel import ConsumerRecord, KafkaError, Producer, TopicPartition
from semel._arrow.decode import SCHEMA
from semel.cli.consume.table_file import TableOutput, opened
from semel.cli.main import main
from semel_broker.testing.in_process import EphemeralBroker
from support.processes import BrokerProcess


def run(broker: EphemeralBroker, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["consume", "t", "-b", broker.bootstrap_servers, *arguments])


def consume(broker: EphemeralBroker, *arguments: str) -> Result:
    done = run(broker, *arguments)
    assert done.exit_code == 0, (done.output, done.exception)
    return done


async def fill(broker: EphemeralBroker) -> None:
    """t-0: ten records with key and header, and one of an aborted transaction. t-1: a record without a value."""
    servers = broker.bootstrap_servers
    async with Producer(bootstrap_servers=servers) as producer:
        for number in range(10):
            await producer.send("t", b"\xff%d" % number, key=b"k", partition=0, headers=[("h", b"1")])
        await producer.send("t", None, partition=1)
    async with Producer(bootstrap_servers=servers, transactional_id="x") as producer:
        await producer.begin_transaction()
        await producer.send("t", b"aborted", partition=0)
        await producer.flush()
        await producer.abort_transaction()


@pytest.fixture
def filled(semel_broker: EphemeralBroker) -> EphemeralBroker:
    semel_broker.create_topic("t", 2)
    asyncio.run(fill(semel_broker))
    return semel_broker


def values(table: pa.Table) -> list[bytes | None]:
    found: list[bytes | None] = table.sort_by([("partition", "ascending"), ("offset", "ascending")])[
        "value"
    ].to_pylist()
    return found


ALL = [*(b"\xff%d" % number for number in range(10)), None]
WHOLE = ("--from-beginning", "-e")


def test_arrow_goes_to_standard_output_as_a_stream(filled: EphemeralBroker) -> None:
    done = consume(filled, *WHOLE, "--output", "arrow")
    table = pa.ipc.open_stream(io.BytesIO(done.stdout_bytes)).read_all()
    assert table.schema == SCHEMA
    assert values(table) == ALL
    assert table.filter(pc.field("partition") == 0)["headers"][0].as_py() == [{"key": "h", "value": b"1"}]


def test_parquet_goes_to_a_new_file_with_the_options_of_other_outputs(filled: EphemeralBroker, tmp_path: Path) -> None:
    def written(*arguments: str) -> list[bytes | None]:
        file = tmp_path / f"{len(list(tmp_path.iterdir()))}.parquet"
        done = consume(filled, "--output", "parquet", "--file", str(file), *arguments)
        found = values(pq.read_table(file))
        assert done.stdout == ""
        assert done.stderr.endswith(f"{len(found)} record{'' if len(found) == 1 else 's'} in {file}\n")
        return found

    assert written(*WHOLE) == ALL
    assert written(*WHOLE, "-p", "1") == [None]
    assert written("-o", "-2", "-e", "-p", "0") == ALL[8:10]
    assert written("-o", "5", "-n", "3", "-p", "0") == ALL[5:8]
    assert written("-o", "99", "-e", "-p", "1") == []
    assert len(written(*WHOLE, "--isolation", "read_uncommitted")) == 12


def test_parquet_may_go_to_a_pipe(filled: EphemeralBroker) -> None:
    done = consume(filled, *WHOLE, "--output", "parquet")
    assert values(pq.read_table(io.BytesIO(done.stdout_bytes))) == ALL


def test_a_group_has_committed_what_is_in_the_complete_file(filled: EphemeralBroker, tmp_path: Path) -> None:
    group = ("-g", "g", "-e", "--from-beginning", "--output", "parquet", "--file")
    consume(filled, *group, str(tmp_path / "1"))
    consume(filled, *group, str(tmp_path / "2"))
    assert values(pq.read_table(tmp_path / "1")) == ALL
    assert pq.read_table(tmp_path / "2").num_rows == 0


def test_a_file_is_not_overwritten_unless_asked_for(filled: EphemeralBroker, tmp_path: Path) -> None:
    file = tmp_path / "t.parquet"
    file.write_text("mine")
    given = (*WHOLE, "--output", "parquet", "--file", str(file))
    refused = run(filled, *given)
    assert refused.exit_code == 2
    assert f"--file {file}: the file exists: give another name, or --overwrite" in refused.stderr
    assert file.read_text() == "mine"
    consume(filled, *given, "--overwrite")
    assert pq.read_table(file).num_rows == 11


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--file", "f"), "goes with --output arrow or parquet: redirect text with > f"),
        (("--output", "arrow", "--overwrite"), "--overwrite goes with --file"),
        (("--output", "arrow", "--json"), "give either --json or --output arrow"),
        (("--output", "parquet", "-f", "%v"), "--format with --output parquet: a table has the bytes"),
        (("--output", "arrow", "--encoding", "hex"), "--encoding with --output arrow"),
        (("--output", "arrow", "-Z"), "--null with --output arrow"),
    ],
)
def test_options_that_do_not_go_together_are_named(arguments: tuple[str, ...], words: str) -> None:
    refused = CliRunner().invoke(main, ["consume", "t", *arguments])
    assert refused.exit_code == 2
    assert words in " ".join(refused.stderr.split())


def test_a_folder_that_is_not_there_is_named(filled: EphemeralBroker, tmp_path: Path) -> None:
    refused = run(filled, *WHOLE, "--output", "arrow", "--file", str(tmp_path / "no" / "f"))
    assert refused.exit_code == 1
    assert refused.stderr == f"Error: cannot write {tmp_path / 'no' / 'f'}: No such file or directory\n"


def test_without_pyarrow_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr("semel._arrow.import_module", missing)
    refused = CliRunner().invoke(main, ["consume", "t", "--output", "arrow"])
    assert refused.exit_code == 1
    assert "--output arrow` needs the package 'pyarrow'" in refused.stderr
    assert "which is not installed. Install it: pip install" in refused.stderr
    assert "[arrow]" in refused.stderr


@pytest.mark.real_time
def test_binary_is_not_written_on_a_terminal() -> None:
    outside, inside = pty.openpty()
    line = [sys.executable, "-m", "semel", "consume", "t", "--output", "arrow"]
    done = subprocess.run(line, stdout=inside, stderr=subprocess.PIPE, text=True, check=False)
    os.close(inside)
    os.close(outside)
    assert done.returncode == 2
    words = "--output arrow is binary, and standard output is a terminal: add --file FILE"
    assert words in " ".join(done.stderr.split())


# Ends in the middle


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    started = BrokerProcess(tmp_path_factory.mktemp("broker")).start()
    yield started
    assert started.stop() == 0


@pytest.mark.real_time
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_signal_leaves_a_readable_file_and_its_records_committed(
    process: BrokerProcess, tmp_path: Path, number: signal.Signals
) -> None:
    semel, topic, file = Shell(process), f"t-{number.name}", tmp_path / "t.parquet"
    semel("topic", "create", topic, "-p", "1")
    semel("produce", topic, text="a\nb\n")
    line = [sys.executable, "-m", "semel", "consume", topic, "-b", process.address, "-g", topic, "--from-beginning"]
    line += ["--output", "parquet", "--file", str(file), "-X", "client_id=reader"]
    with subprocess.Popen(line, stderr=subprocess.PIPE) as running:
        assert running.stderr is not None
        while not file.exists() or file.stat().st_size < len(b"PAR1"):
            assert running.poll() is None, running.stderr.read()
            time.sleep(0.05)
        running.send_signal(number)
        assert running.wait(60) == 0
        assert running.stderr.read().decode().strip() == f"2 records in {file}"
    assert pq.read_table(file)["value"].to_pylist() == [b"a", b"b"]
    assert semel("consume", topic, "-g", topic, "-e") == "", "its offsets are committed"


@pytest.mark.real_time
def test_a_file_is_readable_if_the_command_fails_before_the_first_record(
    filled: EphemeralBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(*_: object) -> None:
        raise KafkaError("refused")

    monkeypatch.setattr("semel.cli.consume.commands.starts", refused)
    file = tmp_path / "t.parquet"
    failed = run(filled, *WHOLE, "--output", "parquet", "--file", str(file))
    assert (failed.exit_code, pq.read_table(file).num_rows) == (1, 0)
    assert "refused" in failed.stderr


@pytest.mark.real_time
def test_a_closed_pipe_ends_the_command_without_an_error(process: BrokerProcess) -> None:
    semel = Shell(process)
    semel("topic", "create", "wide", "-p", "1")
    semel("produce", "wide", text="".join(f"{'x' * 1000}{n}\n" for n in range(3000)))
    line = f"{sys.executable} -m semel consume wide -o 0 -b {process.address} --output arrow | head -c 10"
    done = subprocess.run(["bash", "-c", f"set -o pipefail; {line}"], capture_output=True, check=False, timeout=100)
    assert (done.returncode, len(done.stdout), done.stderr) == (0, 10, b"")


@pytest.mark.real_time
async def test_row_groups_are_bounded_and_a_full_disk_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("semel.cli.consume.table_file.ROW_GROUP_ROWS", 4)
    file = tmp_path / "t"
    output = TableOutput("parquet", opened(str(file), overwrite=False))
    rows = [ConsumerRecord("t", 0, n, 0, 0, None, b"v", None, -1, 1, ()) for n in range(10)]
    for row in rows:
        output.take({TopicPartition("t", 0): [row]})
    await output.end()
    output.printer.end()
    assert [pq.ParquetFile(file).metadata.row_group(n).num_rows for n in range(3)] == [4, 4, 2]
    with Path("/dev/full").open("wb") as full:
        failing = TableOutput("arrow", full)
        failing.take({TopicPartition("t", 0): rows})
        with pytest.raises(OSError, match="No space left"):
            await failing.end()
        failing.printer.end()
