"""The Kubernetes manifests: they parse and agree with each other and with Ottla's configuration."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import Any

import pytest
import yaml
from tests.deploy.files import DEPLOY
from tests.deploy.test_container import of, stages
from tests.deploy.test_systemd import STOP_S

from ottla.base.config.broker import BrokerConfig
from ottla.base.config.broker_table import BROKER
from ottla.base.config.properties import load_properties, parse_override

FOLDER = DEPLOY / "kubernetes"
Object = dict[str, Any]
VERSIONS = {
    "Namespace": "v1", "Service": "v1", "PodDisruptionBudget": "policy/v1",
    "StatefulSet": "apps/v1",
}  # fmt: skip
KUSTOMIZATION = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
NAMESPACE = KUSTOMIZATION["namespace"]


def objects() -> list[Object]:
    found: list[Object] = []
    for name in KUSTOMIZATION["resources"]:
        found += yaml.safe_load_all((FOLDER / name).read_text())
    return found


def kind(wanted: str) -> dict[str, Object]:
    return {each["metadata"]["name"]: each for each in objects() if each["kind"] == wanted}


def pod(name: str) -> Object:
    spec: Object = kind("StatefulSet")[name]["spec"]["template"]["spec"]
    return spec


def ordinals(name: str) -> list[int]:
    spec = kind("StatefulSet")[name]["spec"]
    start = spec["ordinals"]["start"]
    return list(range(start, start + spec["replicas"]))


SETS = sorted(kind("StatefulSet"))


def environment(name: str, ordinal: int) -> dict[str, str]:
    """Return the environment of a pod, as the downward API fills it."""
    fields = {
        "metadata.name": f"{name}-{ordinal}",
        "metadata.namespace": NAMESPACE,
        "metadata.labels['apps.kubernetes.io/pod-index']": str(ordinal),
    }
    (container,) = pod(name)["containers"]
    return {
        each["name"]: each["value"]
        if "value" in each
        else fields[each["valueFrom"]["fieldRef"]["fieldPath"]]
        for each in container["env"]
    }


def expanded(text: str, variables: dict[str, str]) -> str:
    """Return the text with $(NAME) replaced as by kubelet, which keeps unknown names."""
    return re.sub(r"\$\((\w+)\)", lambda found: variables[found[1]], text)


def test_every_object_is_of_a_known_kind_and_version() -> None:
    assert [each["apiVersion"] for each in objects()] == [
        VERSIONS[each["kind"]] for each in objects()
    ]
    names = [(each["kind"], each["metadata"]["name"]) for each in objects()]
    assert len(set(names)) == len(names)
    assert kind("Namespace").keys() == {NAMESPACE}


@pytest.mark.parametrize("name", SETS)
def test_selectors_find_the_pods(name: str) -> None:
    spec = kind("StatefulSet")[name]["spec"]
    labels = spec["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"] == labels
    budget = kind("PodDisruptionBudget")[name]["spec"]
    assert budget["selector"]["matchLabels"] == labels
    services = [each for each in kind("Service").values() if each["spec"]["selector"] == labels]
    assert spec["serviceName"] in [each["metadata"]["name"] for each in services]
    headless = kind("Service")[spec["serviceName"]]["spec"]
    assert headless["clusterIP"] == "None"
    assert headless["publishNotReadyAddresses"] is True
    (affinity,) = spec["template"]["spec"]["affinity"]["podAntiAffinity"].values()
    assert affinity[0]["podAffinityTerm"]["labelSelector"]["matchLabels"] == labels


@pytest.mark.parametrize("name", SETS)
def test_ports_of_services_and_probes_are_ports_of_the_container(name: str) -> None:
    (container,) = pod(name)["containers"]
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    labels = kind("StatefulSet")[name]["spec"]["selector"]["matchLabels"]
    for service in kind("Service").values():
        if service["spec"]["selector"] != labels:
            continue
        for port in service["spec"]["ports"]:
            assert ports[port.get("targetPort", port["name"])] == port["port"]
    probes = [container[each] for each in container if each.endswith("Probe")]
    assert len(probes) >= 2
    for probe in probes:
        assert "exec" in probe or probe["tcpSocket"]["port"] in ports


@pytest.mark.parametrize("name", SETS)
def test_every_mount_has_a_volume_and_every_volume_a_mount(name: str) -> None:
    spec = kind("StatefulSet")[name]["spec"]
    claims = {each["metadata"]["name"] for each in spec["volumeClaimTemplates"]}
    volumes = {each["name"] for each in pod(name).get("volumes", [])}
    (container,) = pod(name)["containers"]
    assert {each["name"] for each in container["volumeMounts"]} == claims | volumes
    assert not claims & volumes


@pytest.mark.parametrize("name", SETS)
def test_pods_satisfy_the_restricted_standard_of_their_namespace(name: str) -> None:
    labels = kind("Namespace")[NAMESPACE]["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    spec = pod(name)
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] > 0
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = spec["containers"]
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_the_config_map_is_mounted_where_brokers_look_for_it() -> None:
    (generated,) = KUSTOMIZATION["configMapGenerator"]
    volumes = {each["name"]: each for each in pod("ottla")["volumes"]}
    assert volumes["config"]["configMap"]["name"] == generated["name"]
    (container,) = pod("ottla")["containers"]
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    path = container["args"][container["args"].index("--config") + 1]
    assert path == f"{mounts['config']}/{generated['files'][0]}"
    given = load_properties(str(FOLDER / generated["files"][0]))
    assert given["log.dirs"].startswith(f"{mounts['data']}/")


def test_the_image_is_the_one_that_the_container_file_builds() -> None:
    (container,) = pod("ottla")["containers"]
    (image,) = KUSTOMIZATION["images"]
    assert container["image"] == image["name"]
    (user,) = of(stages()[1], "USER")
    context = pod("ottla")["securityContext"]
    assert user == f"{context['runAsUser']}:{context['runAsGroup']}"
    assert of(stages()[1], "EXPOSE") == [str(each["containerPort"]) for each in container["ports"]]


def test_each_broker_has_an_id_and_advertises_its_own_name() -> None:
    (container,) = pod("ottla")["containers"]
    addresses = []
    for ordinal in ordinals("ottla"):
        args = [expanded(each, environment("ottla", ordinal)) for each in container["args"]]
        assert args[0] == "broker"
        overrides = [args[i + 1] for i, each in enumerate(args) if each == "--override"]
        given = load_properties(str(FOLDER / "server.properties"))
        config = BrokerConfig.from_properties(given | dict(map(parse_override, overrides)))
        assert config.notices() == []
        assert config.node_id == ordinal
        (listener,), (advertised,) = config.listeners, config.advertised_listeners
        assert (listener.host, listener.port) == ("0.0.0.0", 9092)
        addresses.append(f"{advertised.host}:{advertised.port}")
    service = kind("StatefulSet")["ottla"]["spec"]["serviceName"]
    assert addresses == [f"ottla-{i}.{service}.{NAMESPACE}.svc:9092" for i in ordinals("ottla")]


def test_brokers_connect_to_the_members_of_zookeeper() -> None:
    service = kind("StatefulSet")["zookeeper"]["spec"]["serviceName"]
    members = [f"zookeeper-{i}.{service}" for i in ordinals("zookeeper")]
    given = load_properties(str(FOLDER / "server.properties"))
    connect, _, root = given["zookeeper.connect"].partition("/")
    assert root
    assert connect.split(",") == [f"{each}:2181" for each in members]
    for ordinal in ordinals("zookeeper"):
        variables = environment("zookeeper", ordinal)
        assert variables["ZOO_MY_ID"] == str(ordinal)
        assert variables["ZOO_SERVERS"].split() == [
            f"server.{i}={member}:2888:3888;2181"
            for i, member in zip(ordinals("zookeeper"), members, strict=True)
        ]


def test_a_broker_may_be_away_without_refusing_writes() -> None:
    given = load_properties(str(FOLDER / "server.properties"))
    away = kind("PodDisruptionBudget")["ottla"]["spec"]["maxUnavailable"]
    assert int(given["default.replication.factor"]) <= len(ordinals("ottla"))
    for factor, least in (
        ("default.replication.factor", "min.insync.replicas"),
        ("transaction.state.log.replication.factor", "transaction.state.log.min.isr"),
    ):
        assert int(given[factor]) - int(given[least]) >= away


def test_kubernetes_waits_longer_for_a_stop_than_a_broker_takes() -> None:
    known = BROKER.get("controlled.shutdown.timeout.ms")
    hand_over_s = 30 if known is None else known.default / 1000
    assert pod("ottla")["terminationGracePeriodSeconds"] >= 2 * (hand_over_s + STOP_S)


def test_kustomize_builds_all_of_it() -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    built = subprocess.run(
        ["kubectl", "kustomize", FOLDER], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    found = list(yaml.safe_load_all(built))
    assert len(found) == len(objects()) + 1  # plus the config map
    (broker,) = (
        each
        for each in found
        if each["kind"] == "StatefulSet" and each["metadata"]["name"] == "ottla"
    )
    volumes = {each["name"]: each for each in broker["spec"]["template"]["spec"]["volumes"]}
    (config,) = (each for each in found if each["kind"] == "ConfigMap")
    assert volumes["config"]["configMap"]["name"] == config["metadata"]["name"]
    assert all(
        each["metadata"].get("namespace") == NAMESPACE
        for each in found
        if each["kind"] != "Namespace"
    )
