"""EDGE: runs an application that counts records by key, kills it and its brokers meanwhile, and audits its output.

For each input {"number": n} the application writes a record with the same key: {"number": n, "seen": count of that
key}. An application without state omits "seen".
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections import Counter, defaultdict
from collections.abc import Callable

from tools.strangers import script

ROUNDS = 5
PARTS = 3
"""The parts of the input of a round: a broker is killed after the second part, the application after the last one."""
AMID_S = 0.5
"""The delay of a kill after a part was written, so that the application is processing it."""
LIFE_S = 14.0
"""The time that an application works before it is killed."""
COMMAND_TIMEOUT_S = 300
READS_MAX = 6
"""How often the output is read, each time for ten seconds or more: open transactions of a killed application time out
in a minute.
"""
STARTS_MAX = 100


class Application:
    """A process that is restarted when it ends, like a container. `starts`: the number of starts."""

    def __init__(self, command: list[str], log_name: str) -> None:
        self.starts = 0
        self._command, self._log_name = command, log_name
        self._is_over = False
        self._process = self._start()
        self._keeper = threading.Thread(target=self._keep, daemon=True)
        self._keeper.start()

    def _start(self) -> subprocess.Popen[bytes]:
        self.starts += 1
        with (script.scratch() / f"{self._log_name}-{self.starts}.log").open("wb") as log:
            return subprocess.Popen(self._command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)

    def _keep(self) -> None:
        while True:
            self._process.wait()
            if self._is_over or self.starts == STARTS_MAX:
                return
            threading.Event().wait(1)  # a program that cannot start must not use all CPU time
            self._process = self._start()

    def kill(self) -> None:
        """Kill the process and its children with SIGKILL; it is restarted."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return  # the process has just ended by itself

    def close(self) -> None:
        self._is_over = True
        self.kill()
        self._keeper.join(timeout=30)


def run(
    fill: Callable[[int, int], list[str]],
    work: list[str],
    read: list[str],
    records: int,
    *,
    prefix: str = "",
    log_name: str = "application",
) -> None:
    """Run an application through kills, and report three tests. The commands run the third-party client:

    `fill(first, count)` writes inputs with these numbers; `work` is the application, which never ends; `read` prints
    all committed output as JSON lines [key, value], and ends when no more records arrive. `prefix`: of the tests'
    names; `log_name`: of the files with the application's output.
    """
    name = f"{prefix}an application works through {ROUNDS} kills of it, and {(ROUNDS + 1) // 2} of a broker"
    application = None
    part = records // (ROUNDS * PARTS)
    assert part * ROUNDS * PARTS == records, "the record count is not divisible by the parts of the rounds"
    try:
        with script.test(name):
            for first in range(0, records, part):
                script.output(fill(first, part), COMMAND_TIMEOUT_S)
                application = application or Application(work, log_name)
                number, step = divmod(first // part, PARTS)
                threading.Event().wait(AMID_S)
                if step == 1 and number % 2 == 0:
                    script.kill_and_start(number % script.brokers())
                if step == PARTS - 1:
                    application.kill()
                else:
                    threading.Event().wait(LIFE_S / 2)
            threading.Event().wait(LIFE_S)
            assert application is not None
            assert application.starts <= STARTS_MAX // 2, f"it was started {application.starts} times"
        output = read_all(read, records)
        with script.test(f"{prefix}no input is lost"):
            audit_lost(output, records)
        with script.test(f"{prefix}each input has one committed output, and the counts of a key have no gap"):
            audit(output, records)
    finally:
        if application is not None:
            print(f"the application was started {application.starts} times", flush=True)
            application.close()


def read_all(read: list[str], records: int) -> str:
    """Return the committed output when nothing is missing, or the last output."""
    for _ in range(READS_MAX - 1):
        output = script.output(read, COMMAND_TIMEOUT_S)
        if len({value["number"] for _, value in rows(output)}) == records:
            return output
    return script.output(read, COMMAND_TIMEOUT_S)


def rows(output: str) -> list[tuple[str, dict[str, int]]]:
    """Parse the records of the output, ignoring log lines."""
    return [json.loads(line) for line in output.splitlines() if line.startswith('["')]


def audit_lost(output: str, records: int) -> None:
    """Raise AssertionError if an input is missing."""
    found = {value["number"] for _, value in rows(output)}
    lost = [number for number in range(records) if number not in found]
    assert not lost, f"of {records}: {len(lost)} lost {lost[:5]}"


def audit(output: str, records: int) -> None:
    """Raise AssertionError unless each input appears once, and the counts of each key, if any, increase by one."""
    times = Counter(value["number"] for _, value in rows(output))
    lost = [number for number in range(records) if number not in times]
    doubled = [number for number, found in times.items() if found > 1]
    wrong = f"of {records}: {len(lost)} lost {lost[:5]}, {len(doubled)} more than once {doubled[:5]}"
    assert not [*lost, *doubled], wrong
    seen: dict[str, list[int]] = defaultdict(list)
    for key, value in rows(output):
        if "seen" in value:
            seen[key].append(value["seen"])
    for key, counts in seen.items():
        assert counts == list(range(1, len(counts) + 1)), f"the counts of {key} are not 1, 2, 3 and so on"
