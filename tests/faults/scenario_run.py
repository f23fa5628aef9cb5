"""Plays a scenario with real processes: `semel serve` behind a proxy, and one process for each client."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any

from broker.wire import Wire
from scenarios.language import Scenario, ScenarioLine, seconds, size_bytes
from sim.final import ReadRecord

from faults import files, small_disk
from faults.actor import ActorOptions, StepOutcome
from faults.broker import ProxiedBroker, StillAlive
from faults.client_process import ClientEnded, ClientProcess
from faults.observer import NotReadable, Observer
from faults.proxy import Direction, Proxy
from faults.small_disk import SmallDisk

EXPECT_S = 12.0
POLL_S = 0.05
STEP_S = 60.0
"""The timeout of a step. The timeouts of clients are shorter."""
FAST = {
    "group.min.session.timeout.ms": "100",
    "group.initial.rebalance.delay.ms": "0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "100",
}
"""Short intervals of the broker's periodic checks, so that scenarios do not wait. A scenario's settings override it."""
LOST = (ConnectionError, OSError, asyncio.IncompleteReadError, TimeoutError)


class Unsupported(Exception):  # noqa: N818 (it leads to a skip, not to a failure)
    """This machine cannot play the scenario. The message names the reason."""


class Unmet(AssertionError):  # noqa: N818 (an expectation of a scenario is unmet)
    """The outcome of a step is not the one in the scenario."""


class ScenarioRun:
    """`await ScenarioRun(directory).play(scenario)`. Raises Unmet, with the line, for a step with another outcome.

    Afterwards `directory` holds the broker's data and log, and the log of each client.
    """

    def __init__(self, directory: Path, say: Callable[[str], None] = lambda line: None) -> None:
        self._directory, self._say = directory, say
        self._proxy = Proxy(random.Random(0))
        self._disk: SmallDisk | None = None
        self._broker_process: ProxiedBroker | None = None
        self._clients: dict[str, ClientProcess] = {}
        self._outcomes: dict[str, str] = {}

    async def play(self, scenario: Scenario) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        await self._proxy.start()
        try:
            for step in scenario.steps:
                self._say(f"{scenario.name}:{step.line}: {step.text}")
                try:
                    async with asyncio.timeout(STEP_S):
                        await self._step(step)
                except TimeoutError:
                    raise Unmet(f"{scenario.name}:{step.line}: {step.text}: still nothing after {STEP_S:g} s") from None
                except (Unmet, ClientEnded, StillAlive) as error:
                    raise Unmet(f"{scenario.name}:{step.line}: {step.text}: {error}") from error
        finally:
            await self._end()

    async def _end(self) -> None:
        for client in self._clients.values():
            await client.end()
        if self._broker_process is not None:
            await self._broker_process.down(signal.SIGKILL)
            self._broker_process.keep(self._directory)
        await self._proxy.stop()
        if self._disk is not None:
            self._disk.close()

    async def _step(self, step: ScenarioLine) -> None:
        if not step.client:
            play: Callable[[ScenarioLine], Coroutine[Any, Any, None]] = getattr(self, f"on_{step.verb}")
            await play(step)
            return
        client = self._clients[step.client]
        if step.verb == "wait":
            assert client.running is not None
            outcome, client.running = await client.running, None
        elif step.background:
            client.running = asyncio.create_task(client.do(step.verb, self._words(step)))
            return
        else:
            outcome = await client.do(step.verb, self._words(step))
        self._check_outcome(step, outcome)

    def _words(self, step: ScenarioLine) -> tuple[str, ...]:
        if "size" not in step.options:
            return step.words
        topic, partition, *values = step.words
        return (topic, partition, *[value.ljust(size_bytes(step.options["size"])) for value in values])

    def _check_outcome(self, step: ScenarioLine, outcome: StepOutcome) -> None:
        self._say(f"    {outcome.outcome} {outcome.words}".rstrip())
        self._outcomes[step.client] = outcome.outcome
        if outcome.outcome not in step.outcomes:
            raise Unmet(f"{outcome.outcome} ({outcome.words})" if outcome.words else outcome.outcome)

    # --- the broker ---

    @property
    def _broker(self) -> ProxiedBroker:
        assert self._broker_process is not None
        return self._broker_process

    async def on_start(self, step: ScenarioLine) -> None:
        if self._broker_process is None:
            path = self._directory / "data" if self._disk is None else self._disk.path
            self._broker_process = ProxiedBroker(path, {**FAST, **step.options}, self._proxy.port, self._disk)
        await self._broker.up()
        self._proxy.target_port = self._broker.port

    async def on_kill(self, step: ScenarioLine) -> None:
        if (whom := step.words[0]) == "broker":
            await self._broker.down(signal.SIGKILL)
        else:
            await self._clients.pop(whom).end()

    async def on_terminate(self, step: ScenarioLine) -> None:
        status = await self._broker.down(signal.SIGTERM)
        if status != 0:
            raise Unmet(f"exit status {status}")

    async def on_pause(self, step: ScenarioLine) -> None:
        if (whom := step.words[0]) == "broker":
            self._broker.pause()
        else:
            self._clients[whom].signal(signal.SIGSTOP)

    async def on_resume(self, step: ScenarioLine) -> None:
        if (whom := step.words[0]) == "broker":
            self._broker.resume()
        else:
            self._clients[whom].signal(signal.SIGCONT)

    async def on_dies(self, step: ScenarioLine) -> None:
        status = await self._broker.died()
        if str(status) != step.options.get("status", str(status)):
            raise Unmet(f"exit status {status}")

    async def on_refuses(self, step: ScenarioLine) -> None:
        """The broker must not start, and its error must contain `says`."""
        try:
            await self._broker.up()
        except RuntimeError as error:
            if step.options.get("says", "") not in str(error):
                raise Unmet(str(error)) from None
            return
        raise Unmet("it has started")

    async def on_offline(self, step: ScenarioLine) -> None:
        """The broker must start without a partition, and its error must contain `says`."""
        await self._broker.up()
        self._proxy.target_port = self._broker.port
        lines = [line for line in self._broker.log if '"event":"partition_offline"' in line]
        if not any(step.options.get("says", "") in line for line in lines):
            raise Unmet("\n".join(lines) or "all partitions are served")

    # --- the disk ---

    async def on_disk(self, step: ScenarioLine) -> None:
        why = small_disk.why_not()
        if why is not None:
            raise Unsupported(why)
        self._disk = SmallDisk(self._directory / "small", size_bytes(step.words[0]))

    async def on_fill(self, step: ScenarioLine) -> None:
        assert self._disk is not None
        self._disk.fill()

    async def on_free(self, step: ScenarioLine) -> None:
        assert self._disk is not None
        self._disk.free()

    async def on_damage(self, step: ScenarioLine) -> None:
        topic, partition, how, kind, *number = step.words
        path = files.file_of(self._broker.files, topic, int(partition), kind)
        files.damage(path, how, int(number[0]) if number else 0)

    async def on_forge(self, step: ScenarioLine) -> None:
        files.forge_epoch(self._broker.files, step.words[0], int(step.options["epoch"]))

    # --- the network ---

    async def on_hold(self, step: ScenarioLine) -> None:
        client, api, what = step.words
        self._proxy.hold(client, api, Direction(what))

    async def on_lose(self, step: ScenarioLine) -> None:
        client, api, what = step.words
        self._proxy.lose(client, api, Direction(what))

    async def on_held(self, step: ScenarioLine) -> None:
        await self._proxy.met(step.words[0])

    async def on_release(self, step: ScenarioLine) -> None:
        self._proxy.release(step.words[0])

    async def on_reset(self, step: ScenarioLine) -> None:
        self._proxy.reset(step.words[0])

    async def on_part(self, step: ScenarioLine) -> None:
        self._proxy.part(step.words[0])

    async def on_join(self, step: ScenarioLine) -> None:
        self._proxy.join(step.words[0])

    # --- topics and clients ---

    async def on_topic(self, step: ScenarioLine) -> None:
        wire = await Wire.connect(self._broker.port)
        await wire.create_topic(step.words[0], int(step.words[1]), **step.options)
        await wire.close()

    async def on_drop(self, step: ScenarioLine) -> None:
        wire = await Wire.connect(self._broker.port)
        await wire.delete_topic(step.words[0])
        await wire.close()

    async def on_client(self, step: ScenarioLine) -> None:
        name, given = step.words[0], step.options
        settings = ActorOptions(
            name=name,
            bootstrap=f"127.0.0.1:{self._proxy.port}",
            library=given.get("library", "semel"),
            transactional_id=given.get("id"),
            timeout_ms=round(seconds(given.get("timeout", "60s")) * 1000),
            patience_s=seconds(given.get("patience", "10s")),
            group=given.get("group"),
            topic=given.get("topic"),
        )
        self._clients[name] = client = ClientProcess(settings, self._directory / f"{name}.log")
        self._check_outcome(step, await client.start())

    async def on_sleep(self, step: ScenarioLine) -> None:
        await asyncio.sleep(seconds(step.words[0]))  # the scenario lets time pass

    # --- expectations ---

    async def on_expect(self, step: ScenarioLine) -> None:
        if "after" in step.options:
            client, _, outcome = step.options["after"].partition(":")
            if self._outcomes[client] != outcome:
                return
        what, *words = step.words
        wanted = " ".join(words[2:]) if what in ("committed", "all", "markers") else words[-1]
        loop = asyncio.get_running_loop()
        deadline = loop.time() + EXPECT_S
        seen = ""
        while loop.time() < deadline:
            try:
                async with self._observer() as see:
                    seen = await self._seen(see, what, words)
            except (*LOST, NotReadable) as error:
                seen = f"{type(error).__name__}: {error}"
            if seen == wanted or (what == "stable" and seen == "stable"):
                return
            if what == "epoch" and seen.isdigit() and int(seen) >= int(wanted):
                return
            await asyncio.sleep(POLL_S)
        raise Unmet(f"{seen or 'nothing'} is there after {EXPECT_S:g} s")

    def _observer(self) -> Observer:
        return Observer(self._broker.port)

    async def _seen(self, see: Observer, what: str, words: list[str]) -> str:
        if what in ("state", "epoch"):
            found = await see.transaction(words[0])
            if found.error_code:
                return "none"
            return found.transaction_state if what == "state" else str(found.producer_epoch)
        if what == "offset":
            place = (words[1], int(words[2]))
            offset = (await see.offsets(words[0], [place]))[place]
            return "none" if offset is None else str(offset)
        end = await see.partition((words[0], int(words[1])))
        match what:
            case "stable":
                whole = end.last_stable_offset == end.high_watermark
                return "stable" if whole else f"LSO {end.last_stable_offset} below HW {end.high_watermark}"
            case "markers":
                return " ".join(batch.marker for batch in end.batches or () if batch.marker)
            case "committed":
                return _values(end.committed)
            case _:
                return _values(end.uncommitted)


def _values(rows: Iterable[ReadRecord]) -> str:
    """The values without the blanks that `size` has added."""
    return " ".join((row.value or "").rstrip() for row in rows)
