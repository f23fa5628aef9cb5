"""EDGE: a stranger's application that counts records by key, killed with its brokers amid its work; then an audit.

The application writes, for each input {"number": n}, a record of the same key {"number": n, "seen": how many of that
key}. One without state leaves "seen" away.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections import Counter, defaultdict
from collections.abc import Callable

from strangers import script

ROUNDS = 5
PARTS = 3
"""Parts of the input of a round: after the second one a broker is killed, after the last one the application."""
AMID_S = 0.5
"""How long after a part was written a kill comes: the application is at work on it."""
LIFE_S = 14.0
"""How long an application works before it is killed."""
COMMAND_TIMEOUT_S = 300
READS_MAX = 6
"""How often the output is read, for ten seconds or more: what a killed application left open ends in a minute."""
LIVES_MAX = 100


class Application:
    """A process that is started again whenever it ends, as a container would be. `lives`: how often it was started."""

    def __init__(self, command: list[str]) -> None:
        self.lives = 0
        self._command = command
        self._is_over = False
        self._process = self._start()
        self._keeper = threading.Thread(target=self._keep, daemon=True)
        self._keeper.start()

    def _start(self) -> subprocess.Popen[bytes]:
        self.lives += 1
        with (script.scratch() / f"application-{self.lives}.log").open("wb") as log:
            return subprocess.Popen(self._command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)

    def _keep(self) -> None:
        while True:
            self._process.wait()
            if self._is_over or self.lives == LIVES_MAX:
                return
            threading.Event().wait(1)  # a program that cannot start must not use up the machine
            self._process = self._start()

    def kill(self) -> None:
        """SIGKILL for it and its children; it is started again."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return  # it has just ended by itself

    def close(self) -> None:
        self._is_over = True
        self.kill()
        self._keeper.join(timeout=30)


def run(fill: Callable[[int, int], list[str]], work: list[str], read: list[str], records: int) -> None:
    """Runs an application through kills, and reports three tests. Needs commands of the stranger's side:

    `fill(first, count)` writes inputs of these numbers; `work` is the application, and never ends; `read` prints all
    committed output as JSON lines [key, value], and ends when no more comes.
    """
    name = f"an application works through {ROUNDS} kills of it, and {(ROUNDS + 1) // 2} of a broker"
    application = None
    part = records // (ROUNDS * PARTS)
    assert part * ROUNDS * PARTS == records, "records that the parts of the rounds do not share equally"
    try:
        with script.test(name):
            for first in range(0, records, part):
                script.output(fill(first, part), COMMAND_TIMEOUT_S)
                application = application or Application(work)
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
            assert application.lives <= LIVES_MAX // 2, f"it was started {application.lives} times"
        output = read_all(read, records)
        with script.test("no input is lost"):
            audit_lost(output, records)
        with script.test("each input has one committed output, and the counts of a key have no gap"):
            audit(output, records)
    finally:
        if application is not None:
            print(f"the application had {application.lives} lives", flush=True)
            application.close()


def read_all(read: list[str], records: int) -> str:
    """What is committed, as soon as nothing is missing; at the last what there is."""
    for _ in range(READS_MAX - 1):
        output = script.output(read, COMMAND_TIMEOUT_S)
        if len({value["number"] for _, value in rows(output)}) == records:
            return output
    return script.output(read, COMMAND_TIMEOUT_S)


def rows(output: str) -> list[tuple[str, dict[str, int]]]:
    """The output's records among lines of logs."""
    return [json.loads(line) for line in output.splitlines() if line.startswith('["')]


def audit_lost(output: str, records: int) -> None:
    """Raises AssertionError unless each input is there."""
    found = {value["number"] for _, value in rows(output)}
    lost = [number for number in range(records) if number not in found]
    assert not lost, f"of {records}: {len(lost)} lost {lost[:5]}"


def audit(output: str, records: int) -> None:
    """Raises AssertionError unless each input is there once, and each key's counts, if there are any, go up by one."""
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
