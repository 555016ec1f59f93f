"""A cluster that other machines can reach, joined by a second one: run in a network namespace, which has two addresses.

    unshare --net python -m tests.cluster.beyond_loopback FOLDER

Nothing outside of the namespace can reach what is started here.
"""

import base64
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

from mislabel.cluster.process import descendants
from mislabel.sweeps.process import Process
from tests.cluster.heads import MISLABEL, Head, head, title_of, until

HEAD, OTHER = "10.77.0.1", "10.77.0.2"


def answered(url: str, password: str | None) -> int:
    """MLflow's answer to who says that this is the password."""
    word = base64.b64encode(f"admin:{password}".encode()).decode()
    request = urllib.request.Request(url, headers={} if password is None else {"Authorization": f"Basic {word}"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def check_that_mlflow_asks_for_a_password(cluster: Head) -> None:
    url = f"{cluster.state.mlflow}/api/2.0/mlflow/experiments/search?max_results=1"
    password = cluster.folder.mlflow_password
    assert password.stat().st_mode & 0o777 == 0o600
    assert answered(url, None) == 401
    assert answered(url, "0" * 64) == 401
    assert answered(url, password.read_text()) == 200


def check_that_a_machine_joins_comes_back_and_leaves(cluster: Head) -> None:
    words = ["cluster", "join", cluster.state.jobs, "--token-file", str(cluster.folder.token)]
    words += ["--cpus", "1", "--gpus", "1", "--host", OTHER]
    environment = {**cluster.environment(), "MISLABEL_CLUSTER_DIR": str(cluster.work / "nothing")}
    log = cluster.work / "join.log"
    with log.open("w") as output:
        joining = subprocess.Popen([MISLABEL, *words], env=environment, stderr=output)
    member = Process.of(joining.pid)
    assert member is not None
    try:
        until(lambda: _nodes(cluster) == [(HEAD, 1, 0), (OTHER, 1, 1)], 180, log.read_text)
        (raylet,) = [process for process in descendants([member]) if "raylet/raylet" in title_of(process)]
        os.kill(raylet.pid, signal.SIGKILL)
        until(lambda: "lost the connection to the cluster" in log.read_text(), 120, log.read_text)
        until(lambda: log.read_text().count("joining") == 2, 120, log.read_text)
        until(lambda: _nodes(cluster) == [(HEAD, 1, 0), (OTHER, 1, 1)], 180, log.read_text)
        family = descendants([member])
    finally:
        joining.send_signal(signal.SIGINT)
        assert joining.wait(60) == 0, log.read_text()
    assert "left the cluster" in log.read_text()
    assert not [process for process in family if process.lives]


def _nodes(cluster: Head) -> list[tuple[str, float, float]]:
    told = json.loads(cluster.mislabel("cluster", "status", "--json").stdout)
    assert told["differing"] == {}
    return sorted((node["host"], node["cpus"], node["gpus"]) for node in told["nodes"] if node["alive"])


def main(folder: Path) -> None:
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for address in (HEAD, OTHER):
        subprocess.run(["ip", "address", "add", f"{address}/24", "dev", "lo"], check=True)
    with head(folder, "--host", HEAD, "--cpus", "1", "--gpus", "0") as cluster:
        check_that_mlflow_asks_for_a_password(cluster)
        check_that_a_machine_joins_comes_back_and_leaves(cluster)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
