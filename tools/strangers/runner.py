"""EDGE: runs one suite: starts fresh brokers, runs its script, judges the results, and stores the record."""

from __future__ import annotations

import asyncio
import datetime
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec

from tools.strangers import maven
from tools.strangers.brokers import SuiteBrokers, brokers
from tools.strangers.control import Control
from tools.strangers.judge import RunEnding, RunJudgement, judge
from tools.strangers.record import RecordedRun, decoded, encoded, record
from tools.strangers.suite import KAFKA_RELEASE, Against, Suite, parse

ROOT = Path(__file__).parents[2]
SUITES = ROOT / "tools/strangers" / "suites"
RESULTS = ROOT / "tools/strangers" / "results"
KAFKA_NEEDS = ("java", "mvn")
GRACE_S = 10


def work_folder() -> Path:
    return Path(os.environ.get("STRANGERS_WORK", ROOT / ".strangers")).absolute()


def suites() -> list[Suite]:
    """Return all suites by name. Raises SuiteError."""
    return [parse(path.parent.name, path.read_text()) for path in sorted(SUITES.glob("*/suite.toml"))]


def missing_tools(suite: Suite, against: Against) -> list[str]:
    """Return the programs that the suite or the comparison broker needs and that are not on the path."""
    return lacking(dict.fromkeys([*suite.needs, *(KAFKA_NEEDS if against == "kafka" else ())]))


def lacking(programs: Iterable[str]) -> list[str]:
    """Return those of these programs that are not on the path."""
    return [name for name in programs if shutil.which(name) is None]


class SuiteRun:
    """One run of a suite against one kind of broker. `log`: its script's output.

    `keep`: keeps the brokers' data. `release`: Apache Kafka's version.
    """

    def __init__(
        self, suite: Suite, against: Against, count: int, *, keep: bool = False, release: str = KAFKA_RELEASE
    ) -> None:
        self.suite, self.against, self.count, self.keep = suite, against, count, keep
        self.release = release
        self.work = work_folder() / suite.name
        self.folder = self.work / f"run-{against if against == 'semel' else f'{against}-{release}'}-{count}"
        self.log = self.folder / "output.log"
        self._results = self.folder / "results.jsonl"

    async def run(self) -> RunJudgement:
        """Run and judge the suite; write a file into strangers/results unless nothing ran."""
        if reason := self.suite.lacks(self.against, self.count):
            return RunJudgement(not_run=reason)
        if missing := missing_tools(self.suite, self.against):
            hint = (
                "; Apache Kafka needs Java 17 or newer, and Maven fetches it" if set(missing) & set(KAFKA_NEEDS) else ""
            )
            return RunJudgement(
                not_run=f"not on this machine: {', '.join(missing)}{hint if self.against == 'kafka' else ''}"
            )
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        self._results.touch()
        settings = self.suite.settings(self.against)
        cache = work_folder() / "kafka"
        security = self.suite.security
        served = brokers(self.against, self.count, self.folder, settings, cache, self.release, security)
        started = time.monotonic()
        try:
            await served.open()
            ending = await self._script(served)
        except maven.MavenUnreachableError as error:
            return RunJudgement(not_run=f"Maven's registry is not reachable: {error}")
        finally:
            await served.close()
        ending = msgspec.structs.replace(ending, problems=served.problems())
        with self._results.open() as lines:
            verdict = judge(self.suite, self.against, self.count, lines, ending)
        if not verdict.not_run:
            self._write(verdict, served.version, round(time.monotonic() - started))
        if not self.keep:
            for name in ("data", "volumes"):
                shutil.rmtree(self.folder / name, ignore_errors=True)
        return verdict

    async def _script(self, served: SuiteBrokers) -> RunEnding:
        """Run run.py in a process group of its own, which is killed as a whole."""
        control = Control(served)
        environment = {
            **os.environ,
            **served.variables(),
            "STRANGERS_BOOTSTRAP": served.address,
            "STRANGERS_CONTROL": await control.open(),
            "STRANGERS_RESULTS": str(self._results),
            "STRANGERS_WORK": str(self.work),
            "STRANGERS_BROKERS": str(self.count),
            "STRANGERS_AGAINST": self.against,
            "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")])),
            "PYTHONUNBUFFERED": "1",
        }
        script = SUITES / self.suite.name / "run.py"
        with self.log.open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                str(script),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=asyncio.subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
            try:
                status: int | None = await asyncio.wait_for(process.wait(), self.suite.timeout_s)
            except TimeoutError:
                status = None
            finally:
                await end_group(process)
                await control.close()
        return RunEnding(status=status, timeout_s=self.suite.timeout_s, last_line=last_line(self.log))

    def _write(self, verdict: RunJudgement, broker: str, seconds: int) -> None:
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        kept = record(
            self.suite, verdict, against=self.against, broker=broker, brokers=self.count, date=today, seconds=seconds
        )
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / kept.file_name).write_bytes(encoded(kept))


async def end_group(process: asyncio.subprocess.Process) -> None:
    """Kill the script if it still runs, and the processes that it left."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break  # no process is left
        try:
            await asyncio.wait_for(process.wait(), GRACE_S)
        except TimeoutError:
            continue
    await process.wait()


def last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][:400] if lines else ""


def records() -> list[RecordedRun]:
    """Return all runs with a stored file."""
    return [decoded(path.read_bytes()) for path in sorted(RESULTS.glob("*.json"))]
