"""Acknowledged records survive SIGKILL of a real process."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

from storage.batches import make_batch, put, read_all

from storage import appender

TESTS = Path(__file__).parents[2]


def test_every_acknowledged_batch_survives_sigkill(tmp_path: Path) -> None:
    rng = random.Random(1)
    acknowledged = 0
    for _ in range(6):
        with subprocess.Popen(
            [sys.executable, "-m", "storage.appender", str(tmp_path)],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])},
        ) as child:
            assert child.stdout is not None
            assert child.stdout.readline(), "the child came to its first sync"
            time.sleep(rng.uniform(0.0, 0.15))  # a random moment of the child's work
            child.kill()
            lines = [line for line in child.stdout.read().splitlines(keepends=True) if line.endswith(b"\n")]
        if lines:
            assert int(lines[-1]) > acknowledged
            acknowledged = int(lines[-1])
        directory = appender.open_all(str(tmp_path))
        log = directory.logs["t", 0]
        assert not directory.was_clean
        assert log.end_offset >= acknowledged
        assert log.durability.recovery_point <= log.end_offset
        assert read_all(log) == [(offset, appender.value_of(offset)) for offset in range(log.end_offset)]
        for back in range(1, min(5, log.end_offset) + 1):
            offset = log.end_offset - back
            retry = make_batch(value=appender.value_of(offset), producer_id=appender.PRODUCER, sequence=offset)
            assert put(log, retry).base_offset == offset
        for file in log.segments:
            file.close()
        directory._unlock()
    assert acknowledged > 100
