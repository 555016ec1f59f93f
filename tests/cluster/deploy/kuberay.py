"""KubeRay's fields, written by hand from its 1.6 reference, because no package contains them."""

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, PositiveInt

from tests.cluster.deploy.files import read


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class AuthOptions(Strict):
    mode: Literal["disabled", "token"]
    secretName: str | None = None
    enableK8sTokenAuth: bool | None = None


class AutoscalerOptions(Strict):
    version: Literal["v1", "v2"] | None = None
    upscalingMode: Literal["Default", "Aggressive", "Conservative"] | None = None
    idleTimeoutSeconds: PositiveInt | None = None
    image: str | None = None
    imagePullPolicy: str | None = None
    resources: dict[str, dict[str, str]] | None = None
    securityContext: dict[str, Any] | None = None
    env: list[dict[str, Any]] | None = None
    envFrom: list[dict[str, Any]] | None = None
    volumeMounts: list[dict[str, Any]] | None = None


class Group(Strict):
    rayStartParams: dict[str, str]
    template: dict[str, Any]
    resources: dict[str, str] | None = None
    labels: dict[str, str] | None = None


class HeadGroup(Group):
    headService: dict[str, Any] | None = None
    enableIngress: bool | None = None
    serviceType: str | None = None


class WorkerGroup(Group):
    groupName: str
    replicas: int
    minReplicas: int
    maxReplicas: int
    idleTimeoutSeconds: int | None = None
    numOfHosts: int | None = None
    suspend: bool | None = None
    scaleStrategy: dict[str, Any] | None = None


class ClusterSpec(Strict):
    rayVersion: str
    authOptions: AuthOptions
    enableInTreeAutoscaling: bool
    autoscalerOptions: AutoscalerOptions
    headGroupSpec: HeadGroup
    workerGroupSpecs: list[WorkerGroup]
    headServiceAnnotations: dict[str, str] | None = None
    gcsFaultToleranceOptions: dict[str, Any] | None = None
    upgradeStrategy: dict[str, Any] | None = None
    managedBy: str | None = None
    suspend: bool | None = None


class SubmitterConfig(Strict):
    backoffLimit: int


class JobSpec(Strict):
    entrypoint: str
    rayClusterSpec: ClusterSpec
    submissionMode: Literal["K8sJobMode", "HTTPMode", "InteractiveMode", "SidecarMode"]
    backoffLimit: int
    submitterConfig: SubmitterConfig | None = None
    submitterPodTemplate: dict[str, Any] | None = None
    shutdownAfterJobFinishes: bool = False
    ttlSecondsAfterFinished: int = 0
    activeDeadlineSeconds: PositiveInt | None = None
    preRunningDeadlineSeconds: PositiveInt | None = None
    clusterSelector: dict[str, str] | None = None
    entrypointNumCpus: float | None = None
    entrypointNumGpus: float | None = None
    entrypointResources: str | None = None
    runtimeEnvYAML: str | None = None
    metadata: dict[str, str] | None = None
    deletionStrategy: dict[str, Any] | None = None
    jobId: str | None = None
    managedBy: str | None = None
    suspend: bool | None = None


class Metadata(Strict):
    name: str
    namespace: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class RayCluster(Strict):
    apiVersion: Literal["ray.io/v1"]
    kind: Literal["RayCluster"]
    metadata: Metadata
    spec: ClusterSpec


class RayJob(Strict):
    apiVersion: Literal["ray.io/v1"]
    kind: Literal["RayJob"]
    metadata: Metadata
    spec: JobSpec


def cluster_specs() -> dict[str, ClusterSpec]:
    return {
        "raycluster": RayCluster.model_validate(read("kuberay/raycluster.yaml")).spec,
        "rayjob": RayJob.model_validate(read("kuberay/rayjob.yaml")).spec.rayClusterSpec,
    }


def pods() -> Iterator[tuple[str, dict[str, Any]]]:
    """All pods in the files."""
    for name, spec in cluster_specs().items():
        yield f"{name} head", spec.headGroupSpec.template
        for group in spec.workerGroupSpecs:
            yield f"{name} {group.groupName}", group.template
    submitter = RayJob.model_validate(read("kuberay/rayjob.yaml")).spec.submitterPodTemplate
    assert submitter is not None
    yield "rayjob submitter", submitter
