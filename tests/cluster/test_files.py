"""docker-compose.yml and Dockerfile: accepted by Docker, startable by the runner, and without contents that must not
ship.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from semel_broker.config.loading import load

from tools.cluster import compose
from tools.cluster.compose import Project, Service
from tools.cluster.programs import declared

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docker-compose.yml"
BROKERS = ("broker-1", "broker-2", "broker-3")


@pytest.fixture(scope="module")
def project() -> Project:
    return compose.load(FILE, {})


def options(service: Service) -> dict[str, str]:
    """--name=value words of a command, settings by their own names."""
    pairs = (word.removeprefix("--set=").removeprefix("--").partition("=") for word in compose.words(service.command))
    return {name: value for name, equals, value in pairs if equals}


def test_there_are_an_etcd_three_brokers_and_a_demo_that_is_asked_for(project: Project) -> None:
    assert project.enabled() == ["etcd", *BROKERS]
    assert project.enabled(["demo"]) == ["etcd", *BROKERS, "demo"]
    assert compose.order(project, ["demo"]) == ["etcd", *BROKERS, "demo"]


def test_the_profile_spark_adds_a_master_and_two_workers_that_share_a_place_for_checkpoints(project: Project) -> None:
    spark = ["spark-master", "spark-worker-1", "spark-worker-2"]
    assert project.enabled(["spark"]) == ["etcd", *BROKERS, *spark]
    assert len({tuple(project.services[name].volumes) for name in spark}) == 1
    master = project.services["spark-master"]
    assert master.healthcheck is not None
    address = master.healthcheck.command[-1]
    for name in spark[1:]:
        worker = project.services[name]
        assert worker.dependencies["spark-master"].condition == "service_healthy"
        assert compose.words(worker.command)[-1] == f"spark://{address}"
        assert worker.network_mode == "host", (
            "clients outside of the network of the host cannot reach what brokers tell"
        )


def test_the_profile_flights_brings_the_spark_that_its_pipeline_runs_on(project: Project) -> None:
    assert set(project.enabled(["flights"])) == {*project.enabled(["spark"]), "flights"}
    pipeline, master = project.services["flights"], project.services["spark-master"]
    assert master.healthcheck is not None
    assert pipeline.environment["MASTER"] == f"spark://{master.healthcheck.command[-1]}"
    assert pipeline.volumes == master.volumes
    place = compose.mounts(pipeline)[0].target
    assert pipeline.environment["CHECKPOINTS"].startswith(f"{place}/")


def test_every_service_has_a_health_check_a_restart_policy_and_a_volume(project: Project) -> None:
    for name in project.enabled():
        service = project.services[name]
        assert service.healthcheck is not None, name
        assert service.healthcheck.command, name
        assert service.restart == "unless-stopped", name
        assert [mount for mount in compose.mounts(service) if mount.is_named], f"{name} keeps nothing"
    for name in BROKERS:
        assert project.services[name].dependencies["etcd"].condition == "service_healthy"
        assert project.services["demo"].dependencies[name].condition == "service_healthy"


def test_every_image_has_a_tag_that_stays(project: Project) -> None:
    for name, service in project.services.items():
        tag = service.image.rpartition(":")[2]
        assert tag != service.image, f"{name}: no tag"
        assert tag != "latest", name
    version = re.fullmatch(r"v(\d+)\.(\d+)\.(\d+)", project.services["etcd"].image.rpartition(":")[2])
    assert version is not None
    assert tuple(map(int, version.groups())) >= (3, 5, 16), "older ones can lose data"


def test_an_image_is_built_by_one_service_and_pulled_by_none(project: Project) -> None:
    """Builders that make one tag at the same time fail on a machine that has not built it before."""
    built = [service.image for service in project.services.values() if service.build]
    assert len(built) == len(set(built))
    for name, service in project.services.items():
        if service.image in built:
            assert service.pull_policy == ("build" if service.build else "never"), name


def test_brokers_differ_in_nothing_but_their_names_and_ports(project: Project) -> None:
    def plain(text: str, number: int) -> str:
        return text.replace(f"broker-{number}", "broker-N").replace(str(19091 + number), "PORT")

    commands = [
        [plain(word, i).replace(f"--broker-id={i}", "--broker-id=N") for word in compose.words(service.command)]
        for i, service in enumerate((project.services[name] for name in BROKERS), 1)
    ]
    assert commands[0] == commands[1] == commands[2]
    checks = [project.services[name].healthcheck for name in BROKERS]
    assert len({plain(" ".join(check.command), i) for i, check in enumerate(checks, 1) if check is not None}) == 1


def test_a_broker_advertises_the_port_that_the_host_publishes() -> None:
    for host, ports in [(None, (19092, 19093, 19094)), ("192.0.2.7", (1, 2, 3))]:
        given = {f"BROKER_{i}_PORT": str(port) for i, port in enumerate(ports, 1)}
        project = compose.load(FILE, {**given, **({"CLUSTER_HOST": host} if host else {})})
        for name, port in zip(BROKERS, ports, strict=True):
            told = options(project.services[name])
            (published,) = compose.ports(project.services[name])
            assert (told["advertised-host"], int(told["advertised-port"])) == (published.host, published.published)
            assert int(told["port"]) == published.target == port
            assert told["advertised-peer-host"] == name
        asked = compose.words(project.services["demo"].entrypoint)[-1]
        assert asked == ",".join(f"{host or '127.0.0.1'}:{port}" for port in ports)


def test_a_published_port_is_open_to_this_machine_alone_unless_told_otherwise(project: Project) -> None:
    hosts = {port.host for service in project.services.values() for port in compose.ports(service)}
    assert hosts == {"127.0.0.1"}


def test_data_lies_in_the_volumes(project: Project) -> None:
    for name in project.enabled():
        (mount,) = compose.mounts(project.services[name])
        assert options(project.services[name])["data-dir"] == mount.target


def test_brokers_have_bounds_for_memory_processors_and_logs(project: Project) -> None:
    for name in BROKERS:
        service = project.services[name]
        assert service.mem_limit
        assert service.cpus
        assert service.logging is not None
        assert {"max-size", "max-file"} <= service.logging.options.keys()


@pytest.mark.parametrize("port", ["9092", "9192"])
def test_a_single_broker_advertises_to_each_kind_of_clients_what_they_reach(port: str) -> None:
    single = compose.load(ROOT / "deploy/docker-compose.single.yml", {"PORT": port})
    broker, app = single.services["broker"], single.services["app"]
    config = load(environment={**declared(single, broker).variables, **broker.variables})
    addresses = {each.name: (str(each.address), str(each.advertised)) for each in config.client_listeners}
    assert addresses == {
        "HOST": ("0.0.0.0:9092", f"localhost:{port}"),
        "CONTAINERS": ("0.0.0.0:29092", "broker:29092"),
    }
    clients, metrics = compose.ports(broker)
    assert (clients.host, clients.published, clients.target) == ("127.0.0.1", int(port), 9092)
    assert (metrics.host, str(metrics.target)) == ("127.0.0.1", config.metrics_listener.rpartition(":")[2])
    assert app.variables["SEMEL_BOOTSTRAP_SERVER"] == "broker:29092"
    assert single.enabled() == ["broker"]
    (mount,) = compose.mounts(broker)
    assert mount.target == config.log_dir
    assert config.warnings == []


# The Dockerfile


def stages(text: str) -> dict[str, list[tuple[str, str]]]:
    """Stage -> its instructions."""
    found: dict[str, list[tuple[str, str]]] = {}
    current: list[tuple[str, str]] = []
    for line in re.sub(r"\\\n", " ", re.sub(r"(?m)^#.*\n", "", text)).splitlines():
        instruction, _, rest = line.strip().partition(" ")
        if instruction == "FROM":
            base, _, name = rest.partition(" AS ")
            current = found.setdefault(name, [(instruction, base)])
        elif instruction:
            current.append((instruction, rest.strip()))
    return found


def lineage(text: str, stage: str) -> list[tuple[str, str]]:
    """The instructions that make a stage, those of the stages below it first."""
    found = stages(text)
    own = found[stage]
    base = own[0][1]
    return (lineage(text, base) if base in found else [own[0]]) + own[1:]


INSTRUCTIONS = {
    "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "LABEL", "RUN", "STOPSIGNAL", "USER",
    "VOLUME", "WORKDIR",
}  # fmt: skip


def complaints(text: str, stage: str) -> list[str]:
    """The faults of an image that is shipped."""
    found = []
    lines = lineage(text, stage)
    last = dict(lines)
    found += [f"{i} is no instruction for here" for i, _ in lines if i not in INSTRUCTIONS]
    base = last["FROM"]
    if ":" not in base or base.endswith(":latest"):
        found.append(f"{base}: a tag that stays")
    if not re.fullmatch(r"[1-9]\d*(:[1-9]\d*)?", last.get("USER", "")):
        found.append("USER is a number that is not root's, which Kubernetes can check")
    copied = [rest for instruction, rest in lines if instruction == "COPY"]
    found += [f"COPY {rest}: the whole folder" for rest in copied if re.fullmatch(r"\.\s+\S+", rest)]
    for _, rest in (each for each in lines if each[0] == "RUN"):
        if "apt-get" in rest or "gcc" in rest or re.search(r"\bpip\b", rest):
            found.append(f"RUN {rest}: built in a stage of its own")
    found += [
        f"{i} as a list, so that signals arrive" for i in ("ENTRYPOINT", "CMD") if i in last and last[i][0] != "["
    ]
    return found


@pytest.mark.parametrize("stage", ["broker", "demo", "spark"])
def test_the_image_is_small_and_does_not_run_as_root(stage: str) -> None:
    assert complaints((ROOT / "Dockerfile").read_text(), stage) == []


GOOD = 'FROM python:3.13-slim AS x\nUSER 10:10\nENTRYPOINT ["a"]\n'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (GOOD.replace(":3.13-slim", ""), "a tag that stays"),
        (GOOD.replace("3.13-slim", "latest"), "a tag that stays"),
        (GOOD.replace("10:10", "semel"), "USER"),
        (GOOD.replace("10:10", "0"), "USER"),
        (GOOD.replace('["a"]', "a"), "as a list"),
        (GOOD + "COPY . /src\n", "the whole folder"),
        (GOOD + "RUN apt-get install gcc\n", "stage of its own"),
        (GOOD + "RUNN true\n", "no instruction"),
    ],
)
def test_a_dockerfile_with_a_flaw_is_found(text: str, words: str) -> None:
    assert complaints(GOOD, "x") == []
    assert any(words in each for each in complaints(text, "x"))


def test_the_image_is_a_broker_to_try_and_the_file_s_commands_are_its_own(project: Project) -> None:
    image = declared(project, project.services["broker-1"])
    assert image.entrypoint == ["semel"]
    assert image.command[0] == compose.words(project.services["broker-1"].command)[0] == "serve"
    last = dict(lineage((ROOT / "Dockerfile").read_text(), "broker"))
    assert last["STOPSIGNAL"] == "SIGTERM"
    assert last["EXPOSE"] == "9092 9093 9404"
    assert last["VOLUME"] == "/var/lib/semel"
    assert "semel_broker.health" in last["HEALTHCHECK"]
    assert list(stages((ROOT / "Dockerfile").read_text()))[-1] == "broker", "what `docker build .` makes"


def test_the_build_context_has_only_files_that_are_copied() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    kept = {line[1:] for line in lines if line.startswith("!")}
    assert "*" in lines
    copied = {
        word
        for each in stages((ROOT / "Dockerfile").read_text()).values()
        for instruction, rest in each
        if instruction == "COPY" and "--from" not in rest
        for word in (path.partition("/")[0] for path in rest.split()[:-1])
    }
    assert copied == kept
    assert all((ROOT / each).exists() for each in kept)


def test_the_image_has_every_package_of_the_wheel() -> None:
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"][
        "packages"
    ]
    copied = {
        rest.split()[0]
        for instruction, rest in stages((ROOT / "Dockerfile").read_text())["wheels"]
        if instruction == "COPY"
    }
    assert {package.partition("/")[0] for package in packages} <= copied
