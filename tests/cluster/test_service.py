"""One service: its states, its health, its restarts, and a clean end."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import psutil
import pytest

from tools.cluster.service import ServiceCheck, ServiceError, ServiceHealth, ServiceRun, ServiceState, Spec

SLEEPS = "import time; print('here', flush=True); time.sleep(60)"
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"

Services = list[ServiceRun]


@pytest.fixture
async def services() -> AsyncIterator[Services]:
    """A list of services that are killed after the test."""
    made: Services = []
    yield made
    for each in made:
        await each.stop()


def service(services: Services, folder: Path, code: str, **settings: object) -> ServiceRun:
    spec = Spec(
        command=[sys.executable, "-c", code],
        environment={"PATH": os.environ["PATH"]},
        folder=folder,
        log=folder / "log",
        **settings,  # type: ignore[arg-type]
    )
    services.append(ServiceRun("one", spec))
    return services[-1]


async def says(service: ServiceRun, words: str) -> None:
    """Wait until the log has these words."""
    async with asyncio.timeout(20):
        while words not in (service.spec.log.read_text() if service.spec.log.exists() else ""):
            await asyncio.sleep(0.01)


async def test_a_service_starts_stops_and_starts_again(services: Services, tmp_path: Path) -> None:
    one = service(services, tmp_path, SLEEPS)
    assert (one.state, one.pid) == (ServiceState.CREATED, None)
    await one.start()
    assert one.state is ServiceState.RUNNING
    pid = one.pid
    assert pid is not None
    assert psutil.pid_exists(pid)
    await one.start()
    assert (one.starts, one.pid) == (1, pid), "it ran already"
    await one.stop()
    assert (one.state, one.exit_status, one.pid) == (ServiceState.EXITED, -signal.SIGTERM, None)
    assert not psutil.pid_exists(pid)
    await one.start()
    assert (one.state, one.starts, one.exit_status) == (ServiceState.RUNNING, 2, None)


async def test_a_service_that_ignores_the_stop_signal_is_killed_after_the_grace_period(
    services: Services, tmp_path: Path
) -> None:
    one = service(services, tmp_path, DEAF, stop_grace_s=0.2)
    await one.start()
    await says(one, "deaf")
    await one.stop()
    assert (one.state, one.exit_status) == (ServiceState.EXITED, -signal.SIGKILL)


async def test_another_stop_signal_may_be_asked_for(services: Services, tmp_path: Path) -> None:
    one = service(services, tmp_path, DEAF, stop_signal=signal.SIGUSR1)
    await one.start()
    await says(one, "deaf")
    await one.stop()
    assert one.exit_status == -signal.SIGUSR1


async def test_processes_that_a_service_leaves_behind_end_with_it(services: Services, tmp_path: Path) -> None:
    code = "import subprocess, sys, time; print(subprocess.Popen(['sleep', '60']).pid, flush=True); time.sleep(60)"
    one = service(services, tmp_path, code)
    await one.start()
    await says(one, "\n")
    child = psutil.Process(int(one.spec.log.read_text()))
    await one.kill()
    gone, _ = await asyncio.to_thread(psutil.wait_procs, [child], 10)
    assert gone == [child]


async def test_a_paused_service_stands_still_keeps_its_process_and_can_be_stopped(
    services: Services, tmp_path: Path
) -> None:
    one = service(services, tmp_path, SLEEPS)
    await one.start()
    await says(one, "here")
    assert one.pid is not None
    process = psutil.Process(one.pid)
    await one.pause()
    assert (one.state, process.status()) == (ServiceState.PAUSED, psutil.STATUS_STOPPED)
    with pytest.raises(ServiceError, match="only a running service"):
        await one.pause()
    await one.unpause()
    assert one.state is ServiceState.RUNNING
    with pytest.raises(ServiceError, match="not paused"):
        await one.unpause()
    await one.pause()
    await one.stop()
    assert (one.state, one.exit_status) == (ServiceState.EXITED, -signal.SIGTERM)
    with pytest.raises(ServiceError, match="nothing to kill"):
        await one.kill()


async def test_a_service_that_waits_for_a_starting_child_can_be_paused(services: Services, tmp_path: Path) -> None:
    """In vfork a parent cannot stop before its child has begun, and a child that was stopped does not begin."""
    code = "import subprocess; print('here', flush=True)\nwhile True: subprocess.run(['true'])"
    one = service(services, tmp_path, code)
    await one.start()
    await says(one, "here")
    for _ in range(60):
        async with asyncio.timeout(20):
            await one.pause()
        await one.unpause()


@pytest.mark.parametrize(
    ("policy", "status", "starts"),
    [("no", 1, 1), ("on-failure:2", 1, 3), ("on-failure", 0, 1), ("on-failure:2", 0, 1)],
)
async def test_restart_policies_are_docker_s(
    policy: str, status: int, starts: int, services: Services, tmp_path: Path
) -> None:
    one = service(services, tmp_path, f"raise SystemExit({status})", restart=policy)
    await one.start()
    async with asyncio.timeout(20):
        await one.until(lambda: one.over)
    assert (one.starts, one.exit_status) == (starts, status)


@pytest.mark.parametrize("policy", ["always", "unless-stopped", "on-failure"])
async def test_a_service_that_dies_is_restarted_and_one_that_was_killed_stays_down(
    policy: str, services: Services, tmp_path: Path
) -> None:
    one = service(services, tmp_path, SLEEPS, restart=policy)
    await one.start()
    assert one.pid is not None
    os.kill(one.pid, signal.SIGKILL)  # no request for it
    async with asyncio.timeout(20):
        await one.until(lambda: one.starts == 2)
    await one.kill()
    assert (one.state, one.starts) == (ServiceState.EXITED, 2)
    await one.start()
    assert (one.state, one.starts) == (ServiceState.RUNNING, 3)


async def test_a_service_that_waits_for_its_restart_can_be_stopped(services: Services, tmp_path: Path) -> None:
    one = service(services, tmp_path, "raise SystemExit(1)", restart="always")
    await one.start()
    async with asyncio.timeout(20):
        await one.until(lambda: one.state is ServiceState.RESTARTING and one.starts == 3)
    await one.stop()
    assert (one.state, one.starts) == (ServiceState.EXITED, 3)


async def test_a_service_that_cannot_be_restarted_has_failed_and_its_log_says_why(
    services: Services, tmp_path: Path
) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\nrm $0; exit 1\n")
    program.chmod(0o755)
    one = service(services, tmp_path, "", restart="always")
    one.spec = msgspec.structs.replace(one.spec, command=[str(program)])
    await one.start()
    async with asyncio.timeout(20):
        await one.until(lambda: one.over)
    assert (one.starts, one.exit_status) == (1, 127)
    assert "cannot be started again: [Errno 2]" in one.spec.log.read_text()


async def test_a_check_that_cannot_be_run_has_failed(services: Services, tmp_path: Path) -> None:
    quick = ServiceCheck(command=["no-such-program"], interval_s=0.02, retries=1)
    one = service(services, tmp_path, SLEEPS, check=quick)
    await one.start()
    async with asyncio.timeout(20):
        await one.until(lambda: one.health is ServiceHealth.UNHEALTHY)
    assert "the check cannot be run" in one.last_check


def check(code: str, **settings: object) -> ServiceCheck:
    quick = {"interval_s": 0.02, "start_interval_s": 0.02, "timeout_s": 10.0, "retries": 2, **settings}
    return ServiceCheck(command=[sys.executable, "-c", code], **quick)  # type: ignore[arg-type]


async def test_health_follows_the_check(services: Services, tmp_path: Path) -> None:
    flag = tmp_path / "well"
    one = service(services, tmp_path, SLEEPS, check=check(f"open({str(flag)!r})"))
    await one.start()
    assert one.health is ServiceHealth.STARTING
    async with asyncio.timeout(20):
        await one.until(lambda: one.health is ServiceHealth.UNHEALTHY)
        assert "FileNotFoundError" in one.last_check
        flag.touch()
        await one.until(lambda: one.health is ServiceHealth.HEALTHY)
        assert one.last_check == ""
        flag.unlink()
        await one.until(lambda: one.health is ServiceHealth.UNHEALTHY)
    await one.stop()
    assert one.health is ServiceHealth.NONE


async def test_failures_within_the_start_period_do_not_count(services: Services, tmp_path: Path) -> None:
    tries = tmp_path / "tries"
    code = f"f = open({str(tries)!r}, 'a+'); f.write('x'); f.seek(0); raise SystemExit(len(f.read()) < 5)"
    one = service(services, tmp_path, SLEEPS, check=check(code, retries=1, start_period_s=60.0))
    seen = []
    await one.start()
    async with asyncio.timeout(20):
        await one.until(lambda: seen.append(one.health) or one.health is not ServiceHealth.STARTING)  # type: ignore[func-returns-value]
    assert seen[-1] is ServiceHealth.HEALTHY
    assert ServiceHealth.UNHEALTHY not in seen
    assert len(tries.read_text()) == 5


async def test_a_check_that_hangs_has_failed_and_is_killed(services: Services, tmp_path: Path) -> None:
    one = service(services, tmp_path, SLEEPS, check=check("import time; time.sleep(60)", timeout_s=0.1, retries=1))
    await one.start()
    async with asyncio.timeout(20):
        await one.until(lambda: one.health is ServiceHealth.UNHEALTHY)
    assert one.last_check == "no answer within 0.1 s"


async def test_a_paused_service_is_not_asked_for_its_health(services: Services, tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    one = service(services, tmp_path, SLEEPS, check=check(f"open({str(asked)!r}, 'a').write('x')"))
    await one.start()
    async with asyncio.timeout(20):
        await one.until(lambda: one.health is ServiceHealth.HEALTHY)
    await one.pause()
    before = len(asked.read_text())
    await asyncio.sleep(0.5)  # twenty-five intervals
    assert len(asked.read_text()) - before <= 1, "more than the check that was under way"
    assert one.health is ServiceHealth.HEALTHY
