"""The image passes hadolint, and the Compose file is valid by the Compose Specification."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.cluster.deploy.files import DEPLOY, PAGES, PYPROJECT, ROOT, TEXTS, VERSION, read, tool


def test_the_dockerfile_is_clean() -> None:
    done = tool("hadolint", "--failure-threshold", "style", DEPLOY / "Dockerfile")
    assert done.returncode == 0, done.stdout
    assert tool("hadolint", "-", given="FROM python\nRUN sudo true\n").returncode != 0


def test_the_image_runs_as_a_user_and_contains_what_the_distribution_needs() -> None:
    lines = TEXTS["Dockerfile"].splitlines()
    assert [line for line in lines if line.startswith("USER ")] == ["USER ${UID}"]
    assert TEXTS["Dockerfile"].count("--constraint /build/constraints.txt") == TEXTS["Dockerfile"].count("pip install")
    sent = {line[1:] for line in TEXTS["Dockerfile.dockerignore"].splitlines() if line.startswith("!")}
    (source,) = PYPROJECT["tool"]["setuptools"]["packages"]["find"]["where"]
    packages = {source, *(path.name for path in (ROOT / source / "mislabel").iterdir() if path.is_symlink())}
    assert len(packages) == 5
    files = {
        "constraints.txt",
        "pyproject.toml",
        PYPROJECT["project"]["readme"],
        *PYPROJECT["project"]["license-files"],
    }
    assert sent == packages | files
    for line in lines:
        if found := re.search(r"--tag (\S+)", line):
            assert found[1].startswith(f"mislabel:{VERSION}")


@pytest.mark.long
def test_the_compose_file_is_valid_by_the_specification(tmp_path: Path) -> None:
    schema = ["check-jsonschema", "--builtin-schema", "vendor.compose-spec"]
    done = tool(*schema, DEPLOY / "compose.yaml")
    assert done.returncode == 0, done.stdout
    (tmp_path / "compose.yaml").write_text(TEXTS["compose.yaml"].replace("shm_size", "shm_sise"))
    assert tool(*schema, tmp_path / "compose.yaml").returncode != 0


def test_compose_opens_ports_only_on_this_machine_and_keeps_secrets_in_files() -> None:
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
        assert service["image"] in (f"mislabel:{VERSION}", "postgres:17-bookworm")
    for secret in compose["secrets"].values():
        path = secret["file"].removeprefix("./")
        assert path in PAGES["docker.md"], "the page says how to create it"
        assert tool_git_ignores(f"cluster/deploy/{path}")
    for name in ("head", "worker", "gpu-worker"):
        assert services[name]["environment"]["RAY_AUTH_MODE"] == "token"


def test_the_arguments_of_the_image_build_are_those_of_the_dockerfile() -> None:
    declared = set(re.findall(r"^ARG (\w+)", TEXTS["Dockerfile"], re.MULTILINE))
    given = {
        name
        for service in read("compose.yaml")["services"].values()
        for name in service.get("build", {}).get("args", {})
    }
    given |= {name for text in PAGES.values() for name in re.findall(r"--build-arg (\w+)", text)}
    assert given
    assert given <= declared


def tool_git_ignores(path: str) -> bool:
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    return subprocess.run(["git", "check-ignore", "--quiet", path], cwd=ROOT).returncode == 0
