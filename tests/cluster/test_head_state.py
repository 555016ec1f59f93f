import json
from pathlib import Path

import pytest

from mislabel.cluster.head_state import Folder, State, differences, read_state, running_state, versions
from mislabel.cluster.secret import make_secret
from mislabel.sweeps.errors import MislabelError
from mislabel.sweeps.process import Process


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def state(host: str = "127.0.0.1", **processes: Process) -> State:
    addresses = (f"{host}:1", f"http://{host}:2", f"http://{host}:3")
    return State(host, *addresses, "/store", 2, "/ray", versions(), processes)


def test_a_state_is_read_as_it_was_written(folder: Folder) -> None:
    assert read_state(folder) is None
    written = state(ray=Process.own(), mlflow=Process(1, "never"))
    written.write(folder)
    assert read_state(folder) == written
    assert written.lives
    assert written.dead() == ["mlflow"]
    assert running_state(folder) == written


def test_a_cluster_whose_processes_have_ended_does_not_run(folder: Folder) -> None:
    state(ray=Process(Process.own().pid, "long ago")).write(folder)
    with pytest.raises(MislabelError, match="mislabel cluster up"):
        running_state(folder)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"form": 1}', '{"form": 1, "processes": {}, "nonsense": 3}'])
def test_a_damaged_state_is_refused(folder: Folder, text: str) -> None:
    folder.state.write_text(text)
    with pytest.raises(MislabelError, match=r"state\.json"):
        read_state(folder)


def test_a_state_of_another_version_is_refused(folder: Folder) -> None:
    state().write(folder)
    folder.state.write_text(json.dumps({**json.loads(folder.state.read_text()), "form": 2}))
    with pytest.raises(MislabelError, match=r"state\.json"):
        read_state(folder)


def test_only_one_command_at_a_time_uses_the_folder(folder: Folder) -> None:
    with folder.locked(), pytest.raises(MislabelError, match="another `mislabel cluster`"), folder.locked():
        pass
    with folder.locked():
        pass


def test_no_secret_is_in_the_state_or_the_environment_of_ray(folder: Folder) -> None:
    secrets = [make_secret(folder.token), make_secret(folder.mlflow_password)]
    made = state()
    made.write(folder)
    said = folder.state.read_text() + json.dumps(made.environment(folder))
    assert not any(secret in said for secret in secrets)
    assert made.environment(folder)["RAY_AUTH_MODE"] == "token"
    assert made.mlflow_environment(folder)["MLFLOW_TRACKING_PASSWORD"] == secrets[1]
    folder.clear()
    assert not folder.token.exists()
    assert not folder.mlflow_password.exists()


def test_ray_is_private_only_on_a_loopback_address(folder: Folder) -> None:
    name = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
    assert state().environment(folder)[name] == "0"
    assert name not in state(host="10.0.0.1").environment(folder)


def test_versions_that_differ_are_named() -> None:
    ours = versions()
    assert set(ours) == {"python", "ray", "mislabel"}
    assert differences(ours, ours) == []
    assert differences(ours, {**ours, "ray": "1.0"}) == [f"ray {ours['ray']}, not 1.0"]


def test_a_folder_in_which_others_can_write_is_refused(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "cluster")
    with folder.locked():
        assert folder.path.stat().st_mode & 0o777 == 0o700
    folder.path.chmod(0o770)
    with pytest.raises(MislabelError, match=str(folder.path)), folder.locked():
        pass
