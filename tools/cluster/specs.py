"""EDGE: makes the process of a service from the compose file, the network and the state folder."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

from tools.cluster import compose
from tools.cluster.compose import Project
from tools.cluster.places import ServiceNetwork
from tools.cluster.programs import Program
from tools.cluster.service import ServiceCheck, Spec, bound_to_parent
from tools.cluster.state import StateFolder


def spec(name: str, found: Program, project: Project, place: ServiceNetwork, state: StateFolder) -> Spec:
    """The process of a service with this program. Creates the directories of its volumes. Raises ComposeError."""
    service = project.services[name]
    volumes: dict[str, str] = {}
    for mount in compose.mounts(service):
        directory = state.volume(mount, Path(project.folder))
        directory.mkdir(parents=True, exist_ok=True)
        volumes[mount.target] = str(directory)

    def here(words: list[str]) -> list[str]:
        first, *rest = words
        put = [place.text(name, moved(word, volumes)) for word in rest]
        return place.command(name, bound_to_parent([moved(first, volumes), *put]))

    given = {**found.variables, **service.variables}
    variables = {key: place.text(name, moved(value, volumes)) for key, value in given.items()}
    return Spec(
        command=here(found.command),
        environment={**base_environment(found, state), **variables},
        folder=working_folder(service.working_dir, project, volumes),
        log=state.log(name),
        check=None if service.healthcheck is None else check(service.healthcheck, here),
        restart=service.restart,
        stop_signal=signal.Signals[service.stop_signal],
        stop_grace_s=compose.seconds(service.stop_grace_period),
    )


def check(written: compose.HealthCheck, here: Callable[[list[str]], list[str]]) -> ServiceCheck | None:
    """The health check; None if the file has none or disables it."""
    if not written.command:
        return None
    return ServiceCheck(
        command=here(written.command),
        interval_s=compose.seconds(written.interval),
        timeout_s=compose.seconds(written.timeout),
        retries=written.retries,
        start_period_s=compose.seconds(written.start_period),
        start_interval_s=compose.seconds(written.start_interval),
    )


def base_environment(found: Program, state: StateFolder) -> dict[str, str]:
    """The variables that each service has. Of the caller's environment only language and time zone are kept."""
    kept = {key: os.environ[key] for key in ("LANG", "LC_ALL", "TZ") if key in os.environ}
    return {"PATH": found.search_path, "HOME": str(state.path), **kept}


def working_folder(written: str | None, project: Project, volumes: dict[str, str]) -> Path:
    """The working directory: in a volume if `working_dir` is in one, else the project's folder (images hold a copy)."""
    if written is not None:
        inside = moved(written, volumes)
        if inside != written:
            return Path(inside)
    return Path(project.folder)


def moved(word: str, volumes: dict[str, str]) -> str:
    """`word` with paths inside volumes replaced by the paths of their directories here."""
    for target in sorted(volumes, key=len, reverse=True):
        path = re.compile(rf"(?:^|(?<=[=:,\s])){re.escape(target)}(?=$|[/:,\s])")
        word = volumes[target].join(path.split(word))
    return word
