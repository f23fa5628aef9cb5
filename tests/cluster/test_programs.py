"""The replacement of an image here: the same command, or an error; nothing is dropped silently."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from support import etcd

from tools.cluster import programs
from tools.cluster.compose import ComposeError, Project, parse
from tools.cluster.programs import declared, etcd_flags, program

DOCKERFILE = """
FROM base AS first
ENV PATH=/x \\
    SEMEL_LOG_DIR=/data SEMEL_PORT="1 2"
ENTRYPOINT ["python3", "-m"]
CMD ["http.server", \\
     "80"]
FROM first AS second
ENV SEMEL_PORT=3
CMD ["http.server"]
FROM first AS third
ENTRYPOINT ["python3"]
FROM second
"""


def project(lines: str, folder: Path | None = None) -> Project:
    return parse(f"services: {{one: {{{lines}}}}}", {}, str(folder or "."))


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("build: ., image: semel", ["python3", "-m", "http.server"]),
        ("build: {target: first}, image: semel", ["python3", "-m", "http.server", "80"]),
        ("build: {target: third}, image: 'semel-x:1', command: a b", ["python3", "a", "b"]),
        ("build: ., image: 'me/semel:local', command: [x]", ["python3", "-m", "x"]),
        ("build: ., image: semel, entrypoint: python3 -V", ["python3", "-V"]),
        ("image: 'python:3.13', command: [python3, -V]", ["python3", "-V"]),
        ("image: python", ["python3"]),
    ],
)
def test_entrypoint_and_command_are_the_image_s_unless_the_file_says_others(
    lines: str, expected: list[str], tmp_path: Path
) -> None:
    (tmp_path / "Dockerfile").write_text(DOCKERFILE)
    found = program("one", project(lines, tmp_path))
    assert found.command == expected
    assert found.search_path.startswith(f"{Path(sys.executable).parent}:")


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("image: postgres", "there is no program here for the image 'postgres'"),
        ("image: python, command: [no-such-program]", "no program 'no-such-program'"),
        ("image: semel, build: {target: gone}", "no stage 'gone'"),
    ],
)
def test_an_image_that_cannot_run_here_is_refused(lines: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(DOCKERFILE)
    with pytest.raises(ComposeError, match=words):
        program("one", project(lines, tmp_path))


def test_an_entrypoint_forgets_the_command_below_it(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(DOCKERFILE)
    found = project("image: semel, build: {target: third}", tmp_path)
    image = declared(found, found.services["one"])
    assert (image.entrypoint, image.command) == (["python3"], [])


@pytest.mark.parametrize(("target", "port"), [("first", "1 2"), ("second", "3"), ("third", "1 2")])
def test_the_settings_of_the_image_are_those_of_the_service(target: str, port: str, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(DOCKERFILE)
    found = program("one", project(f"image: semel, build: {{target: {target}}}", tmp_path))
    assert found.variables == {"SEMEL_LOG_DIR": "/data", "SEMEL_PORT": port}


def test_services_of_one_image_share_its_entrypoint(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(DOCKERFILE)
    text = "services: {a: {image: semel, build: {target: third}}, b: {image: semel, command: [x]}}"
    assert program("b", parse(text, {}, str(tmp_path))).command == ["python3", "x"]


def test_flags_that_an_older_etcd_calls_otherwise_are_renamed_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "etcd_words", lambda _: ("3.5.1", " --data-dir\n --experimental-watch-x '5s'\n"))
    line, told = etcd_flags("kv", ["etcd", "--data-dir=/d", "--watch-x=5s"], "etcd")
    assert line == ["etcd", "--data-dir=/d", "--experimental-watch-x=5s"]
    assert told == ["kv: etcd 3.5.1 calls --watch-x --experimental-watch-x"]
    with pytest.raises(ComposeError, match=r"etcd 3\.5\.1 \(etcd\) has no flag --brand-new"):
        etcd_flags("kv", ["etcd", "--brand-new=1"], "etcd")


@pytest.mark.skipif(etcd.binary() is None, reason=etcd.WHY_NOT)
def test_etcd_and_its_tool_are_those_of_this_machine() -> None:
    found = program("one", project("image: 'quay.io/coreos/etcd:v3.6.16', command: [etcdctl, version]"))
    assert found.command == ["etcdctl", "version"]
    assert (programs.etcd_folder() / "etcd").is_file()
