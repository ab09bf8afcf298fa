"""The Kubernetes manifests: every reference resolves, every option and path is the server's own."""

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # its stubs are a package of their own

from infinity_v3.server.app import all_routes, metrics_routes
from infinity_v3.server.config import Configuration, all_options
from infinity_v3.server.config_merge import load_configuration

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "operations" / "kubernetes.md"
FOLDER = ROOT / "docs" / "operations" / "kubernetes"
COMPONENTS = sorted(path.name for path in (FOLDER / "components").iterdir())
NAME = "infinity-v3"
ANSWERING_REST_S = 5
KEY_VARIABLE = "INFINITY_API_KEY"

Thing = Mapping[str, Any]


def documents(path: Path) -> list[Thing]:
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


@pytest.fixture(scope="module")
def kustomization() -> Thing:
    (document,) = documents(FOLDER / "kustomization.yaml")
    return document


@pytest.fixture(scope="module")
def things(kustomization: Thing) -> Mapping[str, Thing]:
    """Every object by its kind, as written, without the components."""
    found = [one for name in kustomization["resources"] for one in documents(FOLDER / name)]
    by_kind = {one["kind"]: one for one in found}
    assert len(by_kind) == len(found)
    return by_kind


@pytest.fixture(scope="module")
def pod(things: Mapping[str, Thing]) -> Thing:
    spec: Thing = things["Deployment"]["spec"]["template"]["spec"]
    return spec


@pytest.fixture(scope="module")
def server(pod: Thing) -> Thing:
    (container,) = pod["containers"]
    found: Thing = container
    return found


@pytest.fixture(scope="module")
def configuration(kustomization: Thing) -> Configuration:
    """What the server makes of the ConfigMap's file."""
    (generator,) = kustomization["configMapGenerator"]
    (name,) = generator["files"]
    return load_configuration({"config": [str(FOLDER / name)]}, {KEY_VARIABLE: "key"})


def nodes(thing: object) -> Iterator[Mapping[str, Any]]:
    """Every mapping inside a document."""
    if isinstance(thing, Mapping):
        yield thing
        thing = list(thing.values())
    if isinstance(thing, list):
        for part in thing:
            yield from nodes(part)


def test_every_file_belongs_to_a_kustomization() -> None:
    for path in [FOLDER / "kustomization.yaml", *FOLDER.glob("components/*/kustomization.yaml")]:
        (document,) = documents(path)
        generated = [
            name for one in document.get("configMapGenerator", ()) for name in one["files"]
        ]
        named = {*document.get("resources", ()), *generated}
        present = {one.name for one in path.parent.iterdir() if one.is_file() and one != path}
        assert named == present, path.parent


def test_what_is_there(things: Mapping[str, Thing]) -> None:
    assert set(things) == {
        *("Namespace", "ServiceAccount", "Deployment", "Service"),
        *("PodDisruptionBudget", "HorizontalPodAutoscaler", "NetworkPolicy"),
    }
    assert {one["metadata"]["name"] for one in things.values()} == {NAME}


def test_selectors_find_the_pods(things: Mapping[str, Thing]) -> None:
    labels = things["Deployment"]["spec"]["template"]["metadata"]["labels"]
    spread = things["Deployment"]["spec"]["template"]["spec"]["topologySpreadConstraints"]
    selectors = [
        things["Deployment"]["spec"]["selector"]["matchLabels"],
        things["Service"]["spec"]["selector"],
        things["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
        things["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"],
        *(one["labelSelector"]["matchLabels"] for one in spread),
    ]
    for selector in selectors:
        assert selector
        assert selector.items() <= labels.items()


def test_ports_have_one_name_and_number(
    things: Mapping[str, Thing], server: Thing, configuration: Configuration
) -> None:
    ports = {port["name"]: port["containerPort"] for port in server["ports"]}
    serve = configuration.serve
    assert ports == {"http": serve.port, "metrics": serve.prometheus_port}
    assert {port["targetPort"] for port in things["Service"]["spec"]["ports"]} == set(ports)
    allowed = {
        port["port"]
        for rule in things["NetworkPolicy"]["spec"]["ingress"]
        for port in rule["ports"]
    }
    assert allowed == set(ports)
    (monitor,) = documents(FOLDER / "components/prometheus-operator/servicemonitor.yaml")
    names = {port["name"] for port in things["Service"]["spec"]["ports"]}
    labels = things["Service"]["metadata"]["labels"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()
    for endpoint in monitor["spec"]["endpoints"]:
        assert endpoint["port"] in names
        assert endpoint["path"] in {route.path for route in metrics_routes()}


def test_probes_ask_open_routes(server: Thing) -> None:
    open_paths = {r.path for r in all_routes() if r.method == "GET" and r.is_open}
    probes = {name: server[name]["httpGet"] for name in server if name.endswith("Probe")}
    assert set(probes) == {"startupProbe", "livenessProbe", "readinessProbe"}
    assert {probe["port"] for probe in probes.values()} == {"http"}
    assert {probe["path"] for probe in probes.values()} <= open_paths
    assert probes["livenessProbe"]["path"] == "/health"
    assert probes["readinessProbe"]["path"] == "/ready"


def test_volumes_and_the_configuration_file(
    pod: Thing, server: Thing, kustomization: Thing
) -> None:
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    mounts = {one["name"]: one["mountPath"] for one in server["volumeMounts"]}
    (init,) = pod["initContainers"]
    assert set(mounts) | {one["name"] for one in init["volumeMounts"]} == set(volumes)
    (generator,) = kustomization["configMapGenerator"]
    assert volumes["config"]["configMap"]["name"] == generator["name"]
    flag, path = server["args"]
    assert flag == "--config"
    assert path == f"{mounts['config']}/{generator['files'][0]}"


def test_artifact_is_copied_to_where_the_server_looks(
    pod: Thing, server: Thing, configuration: Configuration
) -> None:
    (init,) = pod["initContainers"]
    (target,) = init["volumeMounts"]
    (models,) = (one for one in server["volumeMounts"] if one["name"] == target["name"])
    program, option, source, copy = init["command"]
    assert (program, option) == ("cp", "-rT")
    baked = (ROOT / "docs/operations/container/Containerfile.baked").read_text()
    assert f" . {source}\n" in baked
    seen = copy.replace(target["mountPath"], models["mountPath"], 1)
    assert [model.model_id for model in configuration.serve.models] == [seen]


def test_images_are_those_of_the_kustomization(pod: Thing, kustomization: Thing) -> None:
    used = {one["image"] for one in [*pod["containers"], *pod["initContainers"]]}
    assert used == {image["name"] for image in kustomization["images"]}


def test_environment_holds_known_options_and_the_key_of_a_secret(server: Thing) -> None:
    known = {option.env_name for option in all_options()}
    names = {one["name"] for one in server["env"]}
    assert names <= known
    (secret,) = (one["valueFrom"]["secretKeyRef"] for one in server["env"])
    assert names == {KEY_VARIABLE}
    command = rf"create secret generic {secret['name']}\s.*--from-\w+={secret['key']}="
    assert re.search(command, PAGE.read_text().replace("\\\n", ""))


def test_configuration_is_taken_without_a_warning(configuration: Configuration) -> None:
    assert configuration.warnings == ()
    assert configuration.serve.api_key == "key"


def test_engine_threads_are_the_cpus_of_the_container(
    server: Thing, configuration: Configuration
) -> None:
    resources = server["resources"]
    assert resources["requests"] == resources["limits"]
    (model,) = configuration.serve.models
    assert str(model.cpu_threads_per_replica) == resources["limits"]["cpu"]
    assert model.tokenization_workers is not None


def test_grace_period_covers_the_pause_and_the_drain(
    pod: Thing, server: Thing, configuration: Configuration
) -> None:
    command, seconds = server["lifecycle"]["preStop"]["exec"]["command"]
    assert command == "sleep"
    needed_s = int(seconds) + configuration.serve.drain_timeout_s + ANSWERING_REST_S
    assert pod["terminationGracePeriodSeconds"] >= needed_s


def test_pods_meet_the_restricted_standard(pod: Thing, things: Mapping[str, Thing]) -> None:
    labels = things["Namespace"]["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    context = pod["securityContext"]
    assert context["runAsNonRoot"] is True
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    image = (ROOT / "docs/operations/container/Containerfile.serve").read_text()
    assert f"USER {context['runAsUser']}:{context['runAsGroup']}\n" in image
    assert "fsGroup" not in context
    for container in [*pod["containers"], *pod["initContainers"]]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


def test_pods_get_neither_a_token_nor_service_variables(
    pod: Thing, things: Mapping[str, Thing]
) -> None:
    assert pod["enableServiceLinks"] is False
    assert pod["automountServiceAccountToken"] is False
    account = things["ServiceAccount"]
    assert pod["serviceAccountName"] == account["metadata"]["name"]
    assert account["automountServiceAccountToken"] is False


def test_autoscaler_owns_the_number_of_pods(things: Mapping[str, Thing]) -> None:
    target = things["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]
    deployment = things["Deployment"]
    assert (target["kind"], target["name"]) == ("Deployment", deployment["metadata"]["name"])
    assert target["apiVersion"] == deployment["apiVersion"]
    assert "replicas" not in deployment["spec"]
    minimum = things["HorizontalPodAutoscaler"]["spec"]["minReplicas"]
    assert minimum > things["PodDisruptionBudget"]["spec"]["maxUnavailable"]


class TestRendered:
    """What `kubectl kustomize` makes of the files."""

    @staticmethod
    def render(folder: Path) -> dict[str, Thing]:
        program = shutil.which("kubectl")
        if program is None:
            pytest.skip("kubectl is not on PATH: the manifests were not rendered")
        done = subprocess.run(
            [program, "kustomize", folder], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        return {one["kind"]: one for one in yaml.safe_load_all(done.stdout)}

    @classmethod
    def render_with(cls, folder: Path, components: Sequence[str]) -> dict[str, Thing]:
        shutil.copytree(FOLDER, folder / "kubernetes")
        listed = [f"kubernetes/components/{name}" for name in components]
        overlay = {"resources": ["kubernetes"], "components": listed}
        (folder / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
        return cls.render(folder)

    def test_alone(self) -> None:
        rendered = self.render(FOLDER)
        config = rendered["ConfigMap"]
        assert config["data"]["config.toml"] == (FOLDER / "config.toml").read_text()
        assert config["metadata"]["name"].startswith(f"{NAME}-")
        for kind, one in rendered.items():
            assert one["metadata"]["labels"]["app.kubernetes.io/name"] == NAME
            assert one["metadata"].get("namespace") == (None if kind == "Namespace" else NAME)
        pod = rendered["Deployment"]["spec"]["template"]["spec"]
        used = [volume["configMap"]["name"] for volume in pod["volumes"] if "configMap" in volume]
        assert used == [config["metadata"]["name"]]
        images = [one["image"] for one in [*pod["containers"], *pod["initContainers"]]]
        assert all(image.startswith("registry.example/") for image in images)

    def test_with_every_component(self, tmp_path: Path) -> None:
        rendered = self.render_with(tmp_path, COMPONENTS)
        assert rendered["ServiceMonitor"]["metadata"]["namespace"] == NAME
        pod = rendered["Deployment"]["spec"]["template"]["spec"]
        assert "initContainers" not in pod
        (models,) = (one for one in pod["volumes"] if one["name"] == "models")
        assert set(models) == {"name", "image"}
        (server,) = pod["containers"]
        (mount,) = (one for one in server["volumeMounts"] if one["name"] == "models")
        assert (mount["mountPath"], mount["subPath"]) == ("/models", "models")
        metrics = rendered["HorizontalPodAutoscaler"]["spec"]["metrics"]
        assert [metric["type"] for metric in metrics] == ["Resource", "Pods"]

    def test_components_are_on_the_page(self) -> None:
        assert COMPONENTS == ["image-volume", "prometheus-operator", "queue-scaling"]
        assert [name for name in COMPONENTS if f"components/{name}" not in PAGE.read_text()] == []


def test_scaling_metric_is_one_of_the_server(kustomization: Thing) -> None:
    (component,) = documents(FOLDER / "components/queue-scaling/kustomization.yaml")
    patches = [yaml.safe_load(patch["patch"]) for patch in component["patches"]]
    names = [one["metric"]["name"] for one in nodes(patches) if "metric" in one]
    assert names == ["infinity_queue_tokens"]
    table = (ROOT / "docs" / "http-api.md").read_text()
    assert all(f"`{name}`" in table for name in names)
