"""The Kubernetes files: pods are valid by Kubernetes' schemas, the rest by KubeRay's fields."""

from typing import Any

import kubernetes_validate
import pytest
import yaml
from packaging.version import Version
from pydantic import ValidationError

from tests.cluster.deploy.files import CONSTRAINTS, PAGES, VERSION, read
from tests.cluster.deploy.kuberay import RayJob, cluster_specs, pods


def check_pod(template: dict[str, Any], version: str) -> None:
    metadata = {"name": "some", **template.get("metadata", {})}
    rest = {key: value for key, value in template.items() if key != "metadata"}
    kubernetes_validate.validate(
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, **rest}, version, strict=True
    )


def test_an_unknown_kuberay_field_is_refused() -> None:
    values = read("kuberay/rayjob.yaml")
    values["spec"]["rayClusterSpec"]["autoscalerOptions"]["idleTimeoutSecond"] = 5
    with pytest.raises(ValidationError, match="idleTimeoutSecond"):
        RayJob.model_validate(values)


@pytest.mark.long
@pytest.mark.parametrize("version", ["1.28", "1.37"])
def test_every_pod_is_valid_by_kubernetes_schema(version: str) -> None:
    found = dict(pods())
    assert len(found) == 5
    for template in found.values():
        check_pod(template, version)
    wrong = yaml.safe_load(yaml.safe_dump(found["rayjob gpu"]))
    wrong["spec"]["containers"][0]["resource"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        check_pod(wrong, version)


def test_every_pod_meets_the_restricted_standard_and_requests_its_resources() -> None:
    for name, template in pods():
        spec = template["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True, name
        assert spec["securityContext"]["runAsUser"] > 0, name
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        for container in spec["containers"]:
            assert container["securityContext"]["allowPrivilegeEscalation"] is False, name
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}, name
            assert {"cpu", "memory"} <= container["resources"]["requests"].keys(), name
            assert container["image"] == f"REGISTRY/mislabel:{VERSION}"
            assert not [variable for variable in container.get("env", ()) if "KEY" in variable["name"]], name
        # Only the head may use the Kubernetes API: its autoscaler requests pods.
        assert spec["automountServiceAccountToken"] is name.endswith("head"), name
    for cluster in cluster_specs().values():
        context = cluster.autoscalerOptions.securityContext
        assert context == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def test_clusters_require_the_token_scale_and_run_on_spot_nodes() -> None:
    for spec in cluster_specs().values():
        assert spec.rayVersion == CONSTRAINTS["ray"]
        # Requirements of KubeRay's operator that are not in its schema.
        assert Version(spec.rayVersion) >= Version("2.54")
        assert spec.authOptions.mode == "token"
        assert spec.enableInTreeAutoscaling
        assert spec.autoscalerOptions.version == "v2"
        assert spec.headGroupSpec.rayStartParams["num-cpus"] == "0"
        assert not spec.headGroupSpec.template["spec"].get("tolerations")
        for template in [spec.headGroupSpec.template, *(group.template for group in spec.workerGroupSpecs)]:
            assert template["spec"]["restartPolicy"] == "Never"
        (workers,) = spec.workerGroupSpecs
        assert workers.minReplicas <= workers.replicas <= workers.maxReplicas
        (container,) = workers.template["spec"]["containers"]
        assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
        tolerated = {toleration["key"] for toleration in workers.template["spec"]["tolerations"]}
        assert {"nvidia.com/gpu", "cloud.google.com/gke-spot"} <= tolerated


def test_the_job_differs_from_the_cluster_only_in_its_number_of_workers_and_is_retried() -> None:
    cluster, job = cluster_specs().values()
    assert cluster.workerGroupSpecs[0].minReplicas == 0
    assert job.workerGroupSpecs[0].minReplicas >= 1
    for spec in (cluster, job):
        spec.workerGroupSpecs[0].replicas = spec.workerGroupSpecs[0].minReplicas = 0
    assert job == cluster
    whole = RayJob.model_validate(read("kuberay/rayjob.yaml"))
    assert whole.spec.backoffLimit > 0
    assert whole.spec.shutdownAfterJobFinishes
    assert len(whole.metadata.name) <= 47, "KubeRay's limit"


def test_specs_come_from_a_config_map_that_the_page_creates() -> None:
    for spec in cluster_specs().values():
        head = spec.headGroupSpec.template["spec"]
        (volume,) = [volume for volume in head["volumes"] if volume["name"] == "specs"]
        (mount,) = [mount for mount in head["containers"][0]["volumeMounts"] if mount["name"] == "specs"]
        assert mount["mountPath"] == "/specs"
        made = f"kubectl create configmap {volume['configMap']['name']} --from-file=sweep.yaml"
        assert made in PAGES["kubernetes.md"]
    assert "/specs/sweep.yaml" in RayJob.model_validate(read("kuberay/rayjob.yaml")).spec.entrypoint
