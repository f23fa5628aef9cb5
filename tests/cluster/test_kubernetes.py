"""The manifests of deploy/kubernetes: Kubernetes accepts them, and the broker accepts their variables."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from semel_broker.config.loading import BrokerConfig, load

from tools.cluster import compose
from tools.cluster.programs import declared

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy/kubernetes"
VERSIONS = ["1.28", "1.37"]
"""The oldest one whose pods have the label `apps.kubernetes.io/pod-index`, and the newest one that was there."""
FIELDS = {
    "metadata.name": "semel-2",
    "metadata.namespace": "shop",
    "metadata.labels['apps.kubernetes.io/pod-index']": "2",
}
"""The values of a pod's fields."""


def objects(file: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FOLDER / file).read_text()))


def named(kind: str, name: str = "semel") -> dict[str, Any]:
    (found,) = [each for each in objects("semel.yaml") if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return found


POD = named("StatefulSet")["spec"]["template"]["spec"]
CONTAINER = POD["containers"][0]


def variables() -> dict[str, str]:
    """The environment of the third broker."""
    values: dict[str, str] = {}
    for each in CONTAINER["env"]:
        text = each.get("value") or FIELDS[each["valueFrom"]["fieldRef"]["fieldPath"]]
        values[each["name"]] = re.sub(r"\$\((\w+)\)", lambda found: values[found[1]], text)
    return values


def config() -> BrokerConfig:
    project = compose.load(ROOT / "docker-compose.yml", {})
    return load(environment={**declared(project, project.services["broker-1"]).variables, **variables()})


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("file", sorted(each.name for each in FOLDER.iterdir()))
def test_the_schema_of_kubernetes_accepts_each_object(file: str, version: str) -> None:
    for each in objects(file):
        kubernetes_validate.validate(each, version, strict=True)


def test_a_wrong_field_is_refused() -> None:
    wrong = named("Service")
    wrong["spec"]["clusterIPP"] = "None"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)


def test_a_broker_starts_with_the_variables_of_its_pod() -> None:
    found = config()
    assert found.warnings == []
    assert (found.node_id, found.default_replication_factor, found.min_insync_replicas) == (2, 3, 2)
    (clients,) = found.client_listeners
    assert (str(clients.address), str(clients.advertised)) == ("0.0.0.0:9092", "semel-2.semel.shop.svc:0")
    assert (found.peer_host_name, found.peer_port) == ("0.0.0.0", 9093)
    assert found.advertised_peer_host_name == "semel-2.semel.shop.svc"
    assert len(found.etcd_endpoints) == 3
    assert found.log_dir in {mount["mountPath"] for mount in CONTAINER["volumeMounts"]}


def test_each_port_is_one_that_the_broker_listens_on() -> None:
    found = config()
    listens = {"clients": 9092, "brokers": found.peer_port, "metrics": int(found.metrics_listener.rpartition(":")[2])}
    assert {each["name"]: each["containerPort"] for each in CONTAINER["ports"]} == listens
    assert {each["name"]: each["port"] for each in named("Service")["spec"]["ports"]} == listens
    assert {each["name"]: each["port"] for each in named("Service", "semel-bootstrap")["spec"]["ports"]} == {
        "clients": 9092
    }
    assert named("StatefulSet")["spec"]["serviceName"] == named("Service")["metadata"]["name"]
    assert found.advertised_peer_host_name.split(".")[1] == "semel"


def test_a_pod_gets_no_variables_of_services() -> None:
    assert POD["enableServiceLinks"] is False
