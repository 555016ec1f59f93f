"""The deployment files are right, as far as can be told without a cloud, a Kubernetes, a Slurm or a Docker daemon.

Launcher files: Ray's own schema and defaults. Pods: Kubernetes' schemas. KubeRay's own fields: the models below,
written by hand from its reference of version 1.6, since no package carries them. Compose file: the Compose
Specification. Scripts and Dockerfile: shellcheck and hadolint. The Slurm script runs, with stand-ins for Slurm, Ray and
the driver.
"""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import click
import kubernetes_validate
import pytest
import yaml
from packaging.version import Version
from pydantic import BaseModel, ConfigDict, PositiveInt, ValidationError

from sweeps.commands.main import COMMANDS, cli

ROOT = Path(__file__).parent.parent.parent
DEPLOY = ROOT / "cluster" / "deploy"
PAGES = {path.name: path.read_text() for path in sorted(DEPLOY.glob("*.md"))}
TEXTS = {
    str(path.relative_to(DEPLOY)): path.read_text()
    for path in sorted(DEPLOY.rglob("*"))
    if path.is_file() and path.suffix != ".pyc" and not {"secrets", "specs"} & {*path.relative_to(DEPLOY).parts}
}
CONSTRAINTS = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().split())
BIN = Path(sys.executable).parent


def read(name: str) -> Any:
    return yaml.safe_load(TEXTS[name])


def tool(*words: str | Path, given: str | None = None) -> subprocess.CompletedProcess[str]:
    """A linter of the development environment, which must be there."""
    return subprocess.run([BIN / words[0], *words[1:]], input=given, capture_output=True, text=True, timeout=60)


# The cluster launcher.


def prepared(values: dict[str, Any]) -> dict[str, Any]:
    """The file as `ray up` fills it in and checks it before it asks the cloud anything."""
    from ray.autoscaler._private.util import prepare_config, validate_config

    config: dict[str, Any] = prepare_config(values)
    validate_config(config)
    return config


@pytest.mark.parametrize("cloud", ["aws", "gcp"])
def test_a_launcher_file_keeps_rays_schema(cloud: str) -> None:
    import jsonschema

    values = read(f"{cloud}.yaml")
    assert prepared(values)["provider"]["type"] == cloud
    with pytest.raises(jsonschema.ValidationError):
        prepared({**values, "max_wrokers": 8})


@pytest.mark.parametrize("cloud", ["aws", "gcp"])
def test_the_head_is_on_demand_and_workers_are_spot_machines_with_gpus_down_to_none(cloud: str) -> None:
    def is_spot(node: dict[str, Any]) -> bool:
        if cloud == "aws":
            return bool(node["node_config"].get("InstanceMarketOptions") == {"MarketType": "spot"})
        return bool(node["node_config"].get("scheduling", {}).get("provisioningModel") == "SPOT")

    config = prepared(read(f"{cloud}.yaml"))
    types = dict(config["available_node_types"])
    head = types.pop(config["head_node_type"])
    assert not is_spot(head)
    assert head["resources"] == {"CPU": 0}
    assert types
    for node in types.values():
        assert is_spot(node)
        assert node["resources"]["GPU"] >= 1
        assert (node["min_workers"], node["max_workers"]) == (0, config["max_workers"])
    assert 0 < config["idle_timeout_minutes"] <= 15


@pytest.mark.parametrize("cloud", ["aws", "gcp"])
def test_a_cloud_cluster_has_a_token_on_every_node_and_its_dashboard_on_the_head_alone(cloud: str) -> None:
    config = prepared(read(f"{cloud}.yaml"))
    assert config["file_mounts"]["/home/ubuntu/.ray/auth_token"] == "~/.ray/auth_token"
    *_, head = config["head_start_ray_commands"]
    *_, worker = config["worker_start_ray_commands"]
    for start in (head, worker):
        assert start.startswith(". ~/mislabel.env;"), "the environment turns token authentication on"
    assert "--dashboard-host=127.0.0.1" in head
    # Keys would lie in plain text on every node: machines have a role instead.
    assert not re.search(r"(?i)access_key|secret|password|credentials", TEXTS[f"{cloud}.yaml"])
    nodes = config["available_node_types"].values()
    if cloud == "aws":
        assert all(node["node_config"]["IamInstanceProfile"] for node in nodes)
        assert config["provider"]["security_group"] == {"GroupName": "mislabel"}
    else:
        assert all(node["node_config"].get("serviceAccounts") for node in nodes if node["resources"].get("GPU"))


@pytest.mark.parametrize("cloud", ["aws", "gcp"])
def test_the_commands_of_a_cloud_node_set_its_environment_up_once(cloud: str, tmp_path: Path) -> None:
    """Run by bash, in parentheses as Ray puts them, twice, as by a second `ray up`; without SSH and its login shell."""
    config = prepared(read(f"{cloud}.yaml"))
    show = "env | grep -E '^(RAY_AUTH_MODE|MISLABEL_STORE|MLFLOW_TRACKING_URI|PATH)='"
    for command in [
        *config["initialization_commands"],
        *config["initialization_commands"],
        f". ~/mislabel.env; {show}",
    ]:
        line = f"true && export OMP_NUM_THREADS=1 PYTHONWARNINGS=ignore && ({command})"
        done = subprocess.run(["bash", "-c", line], env={"HOME": str(tmp_path), "PATH": os.environ["PATH"]},
                              capture_output=True, text=True, check=True)  # fmt: skip
    values = dict(line.split("=", 1) for line in done.stdout.splitlines())
    assert values["RAY_AUTH_MODE"] == "token"
    assert values["MISLABEL_STORE"] == {"aws": "s3://BUCKET/sweeps", "gcp": "gs://BUCKET/sweeps"}[cloud]
    assert values["PATH"].startswith(f"{tmp_path}/venv/bin:")
    assert (tmp_path / ".bashrc").read_text().count("mislabel.env") == 1


@pytest.mark.parametrize("cloud", ["aws", "gcp"])
def test_shell_commands_of_a_launcher_file_are_clean(cloud: str) -> None:
    config = prepared(read(f"{cloud}.yaml"))
    keys = [key for key in config if key.endswith("_commands")]
    lines = [line for key in keys for line in config[key]]
    assert len(lines) > 6
    script = "\n".join(["#!/usr/bin/env bash", *(line.rstrip("\n") for line in lines)])
    # Files that are sourced are not here; Ray itself expands the ~ and quotes the address.
    done = tool("shellcheck", "--exclude=SC1090,SC1091,SC2086,SC2088", "-", given=script)
    assert done.returncode == 0, done.stdout


# Kubernetes.


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
    """Every pod that the files describe."""
    for name, spec in cluster_specs().items():
        yield f"{name} head", spec.headGroupSpec.template
        for group in spec.workerGroupSpecs:
            yield f"{name} {group.groupName}", group.template
    submitter = RayJob.model_validate(read("kuberay/rayjob.yaml")).spec.submitterPodTemplate
    assert submitter is not None
    yield "rayjob submitter", submitter


def check_pod(template: dict[str, Any], version: str) -> None:
    metadata = {"name": "some", **template.get("metadata", {})}
    rest = {key: value for key, value in template.items() if key != "metadata"}
    kubernetes_validate.validate(
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, **rest}, version, strict=True
    )


def test_a_field_that_kuberay_does_not_have_is_refused() -> None:
    values = read("kuberay/rayjob.yaml")
    values["spec"]["rayClusterSpec"]["autoscalerOptions"]["idleTimeoutSecond"] = 5
    with pytest.raises(ValidationError, match="idleTimeoutSecond"):
        RayJob.model_validate(values)


@pytest.mark.parametrize("version", ["1.28", "1.37"])
def test_every_pod_keeps_kubernetes_schema(version: str) -> None:
    found = dict(pods())
    assert len(found) == 5
    for template in found.values():
        check_pod(template, version)
    wrong = yaml.safe_load(yaml.safe_dump(found["rayjob gpu"]))
    wrong["spec"]["containers"][0]["resource"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        check_pod(wrong, version)


def test_every_pod_is_fit_for_the_restricted_standard_and_says_what_it_needs() -> None:
    for name, template in pods():
        spec = template["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True, name
        assert spec["securityContext"]["runAsUser"] > 0, name
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        for container in spec["containers"]:
            assert container["securityContext"]["allowPrivilegeEscalation"] is False, name
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}, name
            assert {"cpu", "memory"} <= container["resources"]["requests"].keys(), name
            assert container["image"] == f"REGISTRY/mislabel:{_version()}"
            assert not [variable for variable in container.get("env", ()) if "KEY" in variable["name"]], name
        # Only the head, whose autoscaler asks for pods, may talk to Kubernetes.
        assert spec["automountServiceAccountToken"] is name.endswith("head"), name
    for cluster in cluster_specs().values():
        context = cluster.autoscalerOptions.securityContext
        assert context == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def test_clusters_on_kubernetes_ask_for_the_token_scale_and_run_on_spot_nodes() -> None:
    for spec in cluster_specs().values():
        assert spec.rayVersion == CONSTRAINTS["ray"]
        # What KubeRay's operator asks for besides its schema.
        assert Version(spec.rayVersion) >= Version("2.52")
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


def test_the_job_differs_from_the_cluster_only_in_its_number_of_workers_and_is_tried_again() -> None:
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


def test_specs_of_a_job_come_from_a_config_map_that_the_page_makes() -> None:
    for spec in cluster_specs().values():
        head = spec.headGroupSpec.template["spec"]
        (volume,) = [volume for volume in head["volumes"] if volume["name"] == "specs"]
        (mount,) = [mount for mount in head["containers"][0]["volumeMounts"] if mount["name"] == "specs"]
        assert mount["mountPath"] == "/specs"
        made = f"kubectl create configmap {volume['configMap']['name']} --from-file=sweep.yaml"
        assert made in PAGES["kubernetes.md"]
    assert "/specs/sweep.yaml" in RayJob.model_validate(read("kuberay/rayjob.yaml")).spec.entrypoint


# Docker.


def test_the_dockerfile_is_clean() -> None:
    done = tool("hadolint", "--failure-threshold", "style", DEPLOY / "Dockerfile")
    assert done.returncode == 0, done.stdout
    assert tool("hadolint", "-", given="FROM python\nRUN sudo true\n").returncode != 0


def test_the_image_runs_as_a_user_and_holds_what_the_distribution_needs() -> None:
    lines = TEXTS["Dockerfile"].splitlines()
    assert [line for line in lines if line.startswith("USER ")] == ["USER ${UID}"]
    assert TEXTS["Dockerfile"].count("--constraint /build/constraints.txt") == TEXTS["Dockerfile"].count("pip install")
    sent = {line[1:] for line in TEXTS["Dockerfile.dockerignore"].splitlines() if line.startswith("!")}
    pyproject = _pyproject()
    packages = {name.split(".")[0] for name in pyproject["tool"]["setuptools"]["packages"]}
    files = {
        "constraints.txt",
        "pyproject.toml",
        pyproject["project"]["readme"],
        *pyproject["project"]["license-files"],
    }
    assert sent == packages | files
    for line in lines:
        if found := re.search(r"--tag (\S+)", line):
            assert found[1].startswith(f"mislabel:{_version()}")


def test_the_compose_file_keeps_the_specification(tmp_path: Path) -> None:
    schema = ["check-jsonschema", "--builtin-schema", "vendor.compose-spec"]
    done = tool(*schema, DEPLOY / "compose.yaml")
    assert done.returncode == 0, done.stdout
    (tmp_path / "compose.yaml").write_text(TEXTS["compose.yaml"].replace("shm_size", "shm_sise"))
    assert tool(*schema, tmp_path / "compose.yaml").returncode != 0


def test_compose_opens_ports_on_this_machine_alone_and_keeps_secrets_in_files() -> None:
    compose = read("compose.yaml")
    services = compose["services"]
    assert services.keys() == {"head", "worker", "gpu-worker", "mlflow", "postgres"}
    for name, service in services.items():
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:"), name
        for key, value in service.get("environment", {}).items():
            if re.search("TOKEN|PASSWORD", key):
                assert value.startswith("/run/secrets/"), key
        assert {*service.get("secrets", ())} <= compose["secrets"].keys()
        assert "no-new-privileges:true" in service["security_opt"]
        used = {volume.split(":")[0] for volume in service["volumes"] if re.match(r"\w+:", volume)}
        assert used <= compose["volumes"].keys()
        assert {*service.get("depends_on", ())} <= services.keys()
        assert service["image"] in (f"mislabel:{_version()}", "postgres:17-bookworm")
    for secret in compose["secrets"].values():
        path = secret["file"].removeprefix("./")
        assert path in PAGES["docker.md"], "the page says how to make it"
        assert tool_git_ignores(f"cluster/deploy/{path}")
    for name in ("head", "worker", "gpu-worker"):
        assert services[name]["environment"]["RAY_AUTH_MODE"] == "token"


def tool_git_ignores(path: str) -> bool:
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    return subprocess.run(["git", "check-ignore", "--quiet", path], cwd=ROOT).returncode == 0


# Slurm.


def test_the_slurm_script_is_clean() -> None:
    done = tool("shellcheck", "--enable=quote-safe-variables,check-set-e-suppressed", DEPLOY / "slurm.sh")
    assert done.returncode == 0, done.stdout
    assert tool("shellcheck", "-", given="#!/bin/bash\nrm -r $1\n").returncode != 0


STAND_INS = {
    "srun": 'while [[ $1 == --* ]]; do shift; done\nexec "$@"\n',
    "scontrol": 'if [[ $1 == show ]]; then echo node-a; echo node-b; else echo "$*" > "$TOLD/scontrol"; fi\n',
    "ray": 'printf "%s\\n" "$@" > "$TOLD/ray"\n[[ ! -e $TOLD/broken ]] || exit 0\n'
    'cp "$RAY_AUTH_TOKEN_PATH" "$TOLD/token"; stat -c %a "$RAY_AUTH_TOKEN_PATH" > "$TOLD/mode"\n'
    'while [[ $1 != -- ]]; do shift; done\nshift\n"$@"\n',
    "mislabel": 'printf "%s\\n" "$@" > "$TOLD/mislabel"\n[[ -e $TOLD/endless ]] || exit "$(cat "$TOLD/code")"\n'
    "trap 'exit 130' TERM\nwhile true; do sleep 0.05; done\n",
}


@pytest.fixture
def told(tmp_path: Path) -> Path:
    """Where the stand-ins write what they were told."""
    venv = tmp_path / "venv" / "bin"
    venv.mkdir(parents=True)
    for name, text in STAND_INS.items():
        (venv / name).write_text(f"#!/usr/bin/env bash\n{text}")
        (venv / name).chmod(0o755)
    (venv / "activate").write_text(f'PATH="{venv}:$PATH"\n')
    told = tmp_path / "told"
    told.mkdir()
    (told / "code").write_text("0")
    return told


def start_slurm_job(told: Path, *words: str) -> subprocess.Popen[str]:
    environment = {
        "PATH": os.environ["PATH"], "HOME": str(told.parent), "TOLD": str(told),
        "MISLABEL_VENV": str(told.parent / "venv"), "MISLABEL_STORE": "/shared/store",
        "SLURM_JOB_ID": "42", "SLURM_JOB_NODELIST": "node-[a-b]", "SLURM_JOB_NUM_NODES": "2",
        "SLURM_CPUS_PER_TASK": "16", "SLURM_GPUS_ON_NODE": "4",
    }  # fmt: skip
    return subprocess.Popen(["bash", DEPLOY / "slurm.sh", *words], env=environment, cwd=told, text=True,
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip


def words_told(told: Path, name: str) -> list[str]:
    return (told / name).read_text().splitlines()


def test_a_slurm_job_runs_the_sweep_on_all_its_nodes_under_a_token_of_its_own(told: Path) -> None:
    job = start_slurm_job(told, "noise.yaml", "--no-mlflow")
    assert job.wait(30) == 0
    given = ["run", "noise.yaml", "--address", "node-a:6379", "--store", "/shared/store", "--no-mlflow"]
    assert words_told(told, "mislabel") == given
    check_mislabel(given)
    ray = words_told(told, "ray")
    check_ray(ray)
    assert ray[: ray.index("--")] == [
        "symmetric-run", "--address", "node-a:6379", "--min-nodes", "2", "--num-cpus", "16", "--num-gpus", "4",
        "--disable-usage-stats",
    ]  # fmt: skip
    assert re.fullmatch(r"[0-9a-f]{64}", (told / "token").read_text())
    assert words_told(told, "mode") == ["600"]
    assert not (told.parent / ".mislabel" / "slurm-42").exists()
    assert not (told / "scontrol").exists()


def test_a_slurm_job_whose_time_is_nearly_up_has_packs_checkpoint_and_queues_again(told: Path) -> None:
    (told / "endless").touch()
    job = start_slurm_job(told, "noise.yaml")
    while not (told / "mislabel").exists():
        assert job.poll() is None
        time.sleep(0.02)
    time.sleep(0.1)
    job.send_signal(signal.SIGUSR1)
    assert job.wait(30) == 130
    assert words_told(told, "scontrol") == ["requeue 42"]


def test_a_slurm_job_that_failed_does_not_queue_again(told: Path) -> None:
    (told / "code").write_text("1")
    assert start_slurm_job(told, "noise.yaml").wait(30) == 1
    (told / "broken").touch()
    assert start_slurm_job(told, "noise.yaml").wait(30) == 1, "symmetric-run ends with 0 where Ray did not start"
    assert start_slurm_job(told).wait(30) == 2
    assert not (told / "scontrol").exists()


def test_slurm_itself_queues_a_preempted_job_again() -> None:
    asked = re.findall(r"^#SBATCH --([a-z-]+)(?:=(.*))?$", TEXTS["slurm.sh"], re.MULTILINE)
    options = dict(asked)
    assert len(options) == len(asked) > 8
    assert options["signal"] == "B:USR1@300"
    assert options["ntasks-per-node"] == "1"
    assert {"requeue", "exclusive", "gpus-per-node"} <= options.keys()
    # Slurm stops reading at the first command.
    body = TEXTS["slurm.sh"].index("set -euo pipefail")
    assert "#SBATCH" not in TEXTS["slurm.sh"][body:]


# Commands, wherever they stand.


def check_mislabel(words: list[str]) -> None:
    """The words after `mislabel` are a command of ours with options and values that it takes."""
    command = cli.get_command(click.Context(cli), words[0])
    assert command is not None, words
    command.make_context(words[0], words[1:])


def check_ray(words: list[str]) -> None:
    """The words after `ray` are a command of Ray with options that it has."""
    from ray.scripts.scripts import cli as ray

    at: click.Command = ray
    rest = list(words)
    while isinstance(at, click.Group):
        at = at.commands[rest.pop(0)]
    known = {name for parameter in at.params for name in (*parameter.opts, *parameter.secondary_opts)}
    if at.name == "symmetric_run":
        known |= {name for parameter in ray.commands["start"].params for name in parameter.opts}
    rest = rest[: rest.index("--")] if "--" in rest else rest
    unknown = {word.split("=")[0] for word in rest if word.startswith("--")} - known
    assert not unknown, f"ray {' '.join(words)}: no {unknown}"


COMMAND = re.compile(r"(?<![\w/.\[\"-])(mislabel|ray) (?=[a-z])([^`'\"\n;|()\[\]]+)")
LINES = [(page, line) for page, text in PAGES.items() for line in re.findall(r"^\$ (.*)", text, re.MULTILINE)]


def whole(text: str) -> str:
    """Lines that go on are joined: those that end with a backslash, and those of a folded YAML string."""
    return re.sub(r"\\?\n +(?=--)", " ", text)


@pytest.mark.parametrize("name", [name for name in TEXTS if name != "slurm.sh" and TEXTS[name]])
def test_every_command_that_is_named_exists_with_its_options(name: str) -> None:
    for program, rest in COMMAND.findall(whole(TEXTS[name])):
        words = shlex.split(rest, comments=True)
        if program == "mislabel":
            assert words[0] in COMMANDS, f"{name}: mislabel {rest}"
            command = cli.get_command(click.Context(cli), words[0])
            assert command is not None
            known = {option for parameter in command.params for option in parameter.opts}
            assert {word for word in words if word.startswith("--")} <= known, f"{name}: mislabel {rest}"
        else:
            check_ray(words)


def test_commands_to_type_are_complete() -> None:
    """Those of the pages' examples and of the files: not only do the options exist, nothing is missing."""
    ours = [line[line.index("mislabel ") :] for _, line in LINES if re.search(r"(?<![\w/-])mislabel [a-z]", line)]
    ours.append(RayJob.model_validate(read("kuberay/rayjob.yaml")).spec.entrypoint)
    assert len(ours) > 15
    for line in ours:
        check_mislabel(shlex.split(line, comments=True)[1:])
    rays = [line for text in TEXTS.values() for program, line in COMMAND.findall(whole(text)) if program == "ray"]
    assert len([line for line in rays if line.startswith("start ")]) >= 7


def test_a_command_or_an_option_that_does_not_exist_is_found() -> None:
    with pytest.raises(AssertionError):
        check_mislabel(["sumbit", "noise.yaml"])
    with pytest.raises(click.NoSuchOption):
        check_mislabel(["run", "noise.yaml", "--adress", "auto"])
    with pytest.raises(AssertionError):
        check_ray(["start", "--haed"])


def test_shell_lines_of_the_pages_are_shell() -> None:
    assert {page for page, _ in LINES} == PAGES.keys()
    for page, line in LINES:
        done = subprocess.run(["bash", "-n", "-c", line], capture_output=True, text=True)
        assert done.returncode == 0, f"{page}: {line}: {done.stderr}"


def test_pages_name_files_that_are_there_and_say_what_was_not_run() -> None:
    for page, text in PAGES.items():
        for path in re.findall(r"cluster/deploy/([\w./-]+\w)", text):
            assert (DEPLOY / path).exists(), f"{page}: {path}"
        for link in re.findall(r"\]\(([^):]+)\)", text):
            assert (DEPLOY / link).exists(), f"{page}: {link}"
        assert re.search(r"have not run|was run by\s+us|or run by\s+us|built or run", text), page
    for heading in ("## Down", "## Run"):
        assert {page for page, text in PAGES.items() if heading in text} >= {
            "aws.md",
            "gcp.md",
            "slurm.md",
            "docker.md",
        }


def test_every_file_is_in_the_distribution() -> None:
    patterns = _pyproject()["tool"]["setuptools"]["package-data"]["cluster.deploy"]
    packed = {str(path.relative_to(DEPLOY)) for pattern in patterns for path in DEPLOY.glob(pattern)}
    assert packed | {"__init__.py"} == TEXTS.keys()
    assert len(packed) > 12


def test_linters_are_those_of_this_environment() -> None:
    assert all(shutil.which(name, path=str(BIN)) for name in ("shellcheck", "hadolint", "check-jsonschema"))


def _pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def _version() -> str:
    return str(_pyproject()["project"]["version"])
