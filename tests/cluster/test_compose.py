"""A compose file is read strictly: an unknown part is refused with its position, never skipped."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.cluster import compose
from tools.cluster.compose import ComposeError, Mount, Port, order, parse, seconds

FULL = """
name: tiny
x-common: &common
  image: python:3.13
  restart: on-failure:3
services:
  store:
    <<: *common
    command: [python3, -m, http.server, "${PORT:-8000}"]
    environment: {A: one, B: 2, UNSET: }
    healthcheck: {test: curl -f http://store, interval: 1m30s, retries: "${TRIES:-2}", start_period: 500ms}
    volumes: ["data:/var/lib/store", "./here:/srv:ro"]
    networks: {back: {ipv4_address: 10.9.0.7, aliases: [kv]}}
    stop_grace_period: 1m
  app:
    <<: *common
    entrypoint: python3 -c
    command: "'print(1)'"
    environment: [A=one, B=x=y, UNSET]
    ports: ["127.0.0.1:8080:80", "90:91/tcp"]
    depends_on:
      store: {condition: service_healthy}
  probe:
    <<: *common
    profiles: [tools]
    network_mode: host
    depends_on: [app]
    user: "1000"
    cap_drop: [ALL]
volumes:
  data:
networks:
  back:
    ipam: {config: [{subnet: 10.9.0.0/24}]}
"""


def test_a_file_with_everything_in_it_is_read() -> None:
    project = parse(FULL, {"PORT": "9000"})
    store, app, probe = project.services.values()
    assert compose.words(store.command) == ["python3", "-m", "http.server", "9000"]
    assert store.variables == {"A": "one", "B": "2"}
    assert app.variables == {"A": "one", "B": "x=y"}
    assert store.healthcheck is not None
    assert store.healthcheck.command == ["/bin/sh", "-c", "curl -f http://store"]
    assert (seconds(store.healthcheck.interval), store.healthcheck.retries) == (90, 2)
    assert compose.mounts(store) == [Mount("data", "/var/lib/store", True), Mount("./here", "/srv", False)]
    assert (store.fixed_address, store.names, store.restart) == ("10.9.0.7", ["kv"], "on-failure:3")
    assert compose.words(app.entrypoint) + compose.words(app.command) == ["python3", "-c", "print(1)"]
    assert compose.ports(app) == [Port("127.0.0.1", 8080, 80), Port("0.0.0.0", 90, 91)]
    assert app.dependencies["store"].condition == "service_healthy"
    assert probe.dependencies["app"].condition == "service_started"
    assert probe.container_only == ["cap_drop", "user"]
    assert project.enabled() == ["store", "app"]
    assert project.enabled(["tools"]) == ["store", "app", "probe"]


def service(lines: str, rest: str = "") -> str:
    return f"services:\n  one: {{image: python, {lines}}}\n  two: {{image: python}}\n{rest}"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("services: [", "not valid YAML"),
        ("just text", "must hold a mapping"),
        ("services: {one: {comand: x, image: python}}", r"unknown field `comand` - at `\$\.services"),
        ("serviced: {}", "missing required field `services`|unknown field `serviced`"),
        ("services: {one: {command: x}}", r"services\.one: it has no image"),
        (service("ports: [80]"), "Expected `str`"),
        (service('ports: ["80"]'), "one port in each entry"),
        (service('ports: ["8000-8010:9000-9010"]'), "one port in each entry"),
        (service('volumes: ["data:/x"]'), "'data' is not declared; add it"),
        (service('volumes: ["/only"]'), "SOURCE:/path"),
        (service("networks: [back]"), "'back' is not declared; add it"),
        (service("networks: [a, b]", "networks: {a: , b: }"), "more than one network"),
        (service("network_mode: host, ports: ['80:80']"), "neither networks nor ports"),
        (service("network_mode: bridge2"), "Invalid enum value"),
        (service("restart: sometimes"), "restart"),
        (service("depends_on: [three]"), "'three', which is not a service"),
        (service("depends_on: {two: {condition: service_healthy}}"), "has no healthcheck"),
        (service("depends_on: {two: {condition: service_ready}}"), "condition"),
        (service("healthcheck: {test: [CMD, x], interval: 5}"), "Expected `str`"),
        (service("healthcheck: {test: [CMD, x], interval: 5 s}"), "is not a duration"),
        (service("healthcheck: {test: [RUN, x]}"), "must be a list that begins with CMD"),
        (service("stop_signal: SIGFOO"), "is not a signal"),
        (service("stop_grace_period: soon"), "is not a duration"),
        (service("networks: {n: {ipv4_address: 10.0.0.256}}", "networks: {n: }"), "is not an IPv4 address"),
        (service("command: [x, '${GONE:?say}']"), "GONE must be set: say"),
        ("services: {../x: {image: python}}", "services"),
    ],
)
def test_keys_that_are_not_supported_are_refused(text: str, words: str) -> None:
    with pytest.raises(ComposeError, match=words):
        parse(text, {})


def test_services_that_wait_for_each_other_are_refused_with_the_circle() -> None:
    text = "services:\n" + "".join(
        f"  {a}: {{image: python, depends_on: [{b}]}}\n" for a, b in [("a", "b"), ("b", "c"), ("c", "a")]
    )
    with pytest.raises(ComposeError, match="a -> b -> c -> a"):
        parse(text, {})


def test_dependencies_come_first_and_bring_theirs() -> None:
    text = """
services:
  demo: {image: python, depends_on: [b1, b2]}
  b1: {image: python, depends_on: [store]}
  b2: {image: python, depends_on: [store]}
  other: {image: python}
  store: {image: python}
"""
    project = parse(text, {})
    assert order(project, ["demo"]) == ["store", "b1", "b2", "demo"]
    assert order(project, ["b2", "other"]) == ["store", "b2", "other"]
    assert order(project, list(project.services)) == ["store", "b1", "b2", "demo", "other"]


@pytest.mark.parametrize(("text", "expected"), [("90s", 90), ("1m30s", 90), ("500ms", 0.5), ("1h", 3600), ("0s", 0)])
def test_durations_are_compose_s(text: str, expected: float) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize("text", ["", "5", "s", "1m 30s", "-1s", "5d"])
def test_text_that_is_not_a_duration_is_refused(text: str) -> None:
    with pytest.raises(ComposeError, match="is not a duration"):
        seconds(text)


def test_the_env_file_beside_counts_below_the_environment(tmp_path: Path) -> None:
    (tmp_path / "docker-compose.yml").write_text("services: {one: {image: 'python:${A}-${B}'}}")
    (tmp_path / ".env").write_text("A=file\nB=file\n")
    project = compose.load(tmp_path / "docker-compose.yml", {"B": "shell"})
    assert project.services["one"].image == "python:file-shell"
    assert project.folder == str(tmp_path)
