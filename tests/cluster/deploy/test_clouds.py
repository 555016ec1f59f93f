"""The files for Ray's cluster launcher are valid by Ray's own schema and defaults."""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.deploy.files import TEXTS, read, tool


def prepared(values: dict[str, Any]) -> dict[str, Any]:
    """The file with the defaults and checks that `ray up` applies before it contacts the cloud."""
    from ray.autoscaler._private.util import prepare_config, validate_config

    config: dict[str, Any] = prepare_config(values)
    validate_config(config)
    return config


@pytest.mark.parametrize("cloud", ["aws", "gcp"])
def test_a_launcher_file_is_valid_by_rays_schema(cloud: str) -> None:
    import jsonschema

    values = read(f"{cloud}.yaml")
    assert prepared(values)["provider"]["type"] == cloud
    with pytest.raises(jsonschema.ValidationError):
        prepared({**values, "max_wrokers": 8})


@pytest.mark.parametrize("cloud", ["aws", "gcp"])
def test_the_head_is_on_demand_and_workers_are_spot_machines_with_gpus_that_scale_to_zero(cloud: str) -> None:
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
def test_every_node_has_the_token_and_the_dashboard_listens_only_on_the_head(cloud: str) -> None:
    config = prepared(read(f"{cloud}.yaml"))
    assert config["file_mounts"]["/home/ubuntu/.ray/auth_token"] == "~/.ray/auth_token"
    *_, head = config["head_start_ray_commands"]
    *_, worker = config["worker_start_ray_commands"]
    for start in (head, worker):
        assert start.startswith(". ~/mislabel.env;"), "the environment turns token authentication on"
    assert "--dashboard-host=127.0.0.1" in head
    # Keys would be readable on every node; machines have a role instead.
    assert not re.search(r"(?i)access_key|secret|password|credentials", TEXTS[f"{cloud}.yaml"])
    nodes = config["available_node_types"].values()
    if cloud == "aws":
        assert all(node["node_config"]["IamInstanceProfile"] for node in nodes)
        assert config["provider"]["security_group"] == {"GroupName": "mislabel"}
    else:
        assert all(node["node_config"].get("serviceAccounts") for node in nodes if node["resources"].get("GPU"))


@pytest.mark.parametrize("cloud", ["aws", "gcp"])
def test_the_setup_commands_can_run_twice(cloud: str, tmp_path: Path) -> None:
    """Bash runs them twice, like a second `ray up`, in parentheses like Ray, but without SSH and a login shell."""
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
    # Sourced files are not on this machine. Ray expands the ~ and quotes the address.
    done = tool("shellcheck", "--exclude=SC1090,SC1091,SC2086,SC2088", "-", given=script)
    assert done.returncode == 0, done.stdout
