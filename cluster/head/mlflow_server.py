"""The MLflow server of a cluster: its command, its password, and whether it answers."""

import secrets
import sys
from collections.abc import Mapping
from urllib.error import URLError
from urllib.request import urlopen

from mislabel.cluster.address import Address
from mislabel.cluster.head_state import Folder
from mislabel.cluster.secret import make_secret, write_private

_ANSWER_SECONDS = 5.0
_CONFIG = """\
[mlflow]
default_permission = NO_PERMISSIONS
database_uri = sqlite:///{database}
admin_username = admin
authorization_function = mlflow.server.auth:authenticate_request_basic_auth
"""


def command(address: Address, protected: bool = False) -> list[str]:
    """The command of the server; if `protected`, it requires a password: see `protection`."""
    # MLflow starts four workers by default, which take a minute to answer on a small machine.
    words = ["-P", "-m", "mlflow", "server", "--host", address.host, "--port", str(address.port), "--workers", "1"]
    if not address.is_loopback:  # requests under another host name are refused (DNS rebinding)
        words += ["--allowed-hosts", f"{address},{address.host}"]
    return [sys.executable, *words, *(["--app-name", "basic-auth"] if protected else [])]


def environment(backend: str, artifacts: str) -> dict[str, str]:
    """Addresses may contain a password, and all users can see command lines, so they are environment variables."""
    return {
        "MLFLOW_BACKEND_STORE_URI": backend,
        "MLFLOW_ARTIFACTS_DESTINATION": artifacts,
        "MLFLOW_DISABLE_TELEMETRY": "true",
        # Like -P, for the processes that MLflow starts.
        "PYTHONSAFEPATH": "1",
        # Job execution would start seven processes that we do not need.
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    }


def protection(folder: Folder) -> Mapping[str, str]:
    """Create a password for MLflow's basic auth, and return the server's settings for it."""
    password = make_secret(folder.mlflow_password)
    config = folder.path / "mlflow-auth.ini"
    write_private(config, _CONFIG.format(database=folder.path / "mlflow-auth.db"))
    return {
        "MLFLOW_AUTH_CONFIG_PATH": str(config),
        "MLFLOW_AUTH_ADMIN_PASSWORD": password,
        "MLFLOW_FLASK_SERVER_SECRET_KEY": secrets.token_hex(),
    }


def answers(url: str) -> bool:
    try:
        with urlopen(f"{url}/health", timeout=_ANSWER_SECONDS) as answer:
            return bool(answer.status == 200)
    except (URLError, OSError):
        return False
