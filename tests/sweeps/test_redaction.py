"""Secrets are removed from texts, and all else stays."""

import sys

import pytest

from mislabel.sweeps.redaction import has_secret, redacted, remember_secret

PLAIN = [
    "sqlite:////home/me@work/mlflow.db",
    "http://127.0.0.1:5000/#/experiments/1",
    "http://127.0.0.1:5000/a@b",
    "postgresql://reader@db.example/mlflow",
    "abfs://container@account.dfs.core.windows.net/results",
    "s3://bucket/path?region=eu-central-1&endpoint_override=http://127.0.0.1:9000",
    "https://pypi.org/project/mislabel@1.0",
    "mislabel run noise.yaml --set seeds=20 --set parameters.tokens=128",
    "RuntimeError: shape [3, 4] is not [4, 3]: see 'weights' in task.py, line 7",
]


@pytest.mark.parametrize("text", PLAIN, ids=range(len(PLAIN)))
def test_a_text_without_a_secret_is_not_changed(text: str) -> None:
    assert redacted(text) == text
    assert not has_secret(text)


@pytest.mark.parametrize(
    ("text", "without"),
    [
        ("postgresql://me:pw@db/mlflow", "postgresql://…@db/mlflow"),
        ("postgresql+psycopg2://me:p@s/s:w@db:5432/mlflow", "postgresql+psycopg2://…@db:5432/mlflow"),
        ("postgresql://me:p@w@db/mlflow", "postgresql://…@db/mlflow"),
        ("see https://me:pw@host/a, or (http://token@host)", "see https://…@host/a, or (http://…@host)"),
        ("mysql://db/x?user=me&password=pw&ssl=1", "mysql://db/x?user=me&password=…&ssl=1"),
        ("https://a/b?se=2030&sig=pw%3D&sp=r", "https://a/b?se=2030&sig=…&sp=r"),
        ("https://b.s3/x?X-Amz-Signature=ab&X-Amz-Security-Token=cd", "https://b.s3/x?X-Amz-Signature=…&X-Amz-Security-Token=…"),
        ("abfs://c@a/x?client_secret=pw", "abfs://c@a/x?client_secret=…"),
        ("host=db password='p w' user=me", "host=db password=… user=me"),
        ("AccountName=a;AccountKey=pw==;EndpointSuffix=x", "AccountName=a;AccountKey=…;EndpointSuffix=x"),
        ("{'Authorization': 'Bearer pw', 'Accept': '*'}", "{'Authorization': 'Bearer …', 'Accept': '*'}"),
        ("Authorization: Basic cHc=", "Authorization: Basic …"),
    ],
)  # fmt: skip
def test_a_secret_is_found_by_its_form(text: str, without: str) -> None:
    assert redacted(text) == without
    assert redacted(without) == without
    assert has_secret(text)


@pytest.mark.parametrize(
    "variable",
    [
        "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN", "MLFLOW_FLASK_SERVER_SECRET_KEY", "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN", "AZURE_STORAGE_KEY", "AZURE_STORAGE_CONNECTION_STRING", "AZURE_STORAGE_SAS_TOKEN",
        "AZURE_CLIENT_SECRET", "RAY_AUTH_TOKEN", "PGPASSWORD", "WANDB_API_KEY", "HF_TOKEN", "REGISTRY_AUTH",
    ],
)  # fmt: skip
def test_the_value_of_a_variable_that_holds_a_secret_is_redacted(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "/correct+horse=")
    assert redacted("refused: /correct+horse= is wrong") == "refused: … is wrong"


@pytest.mark.parametrize(
    "variable",
    ["RAY_AUTH_TOKEN_PATH", "RAY_AUTH_MODE", "AWS_ACCESS_KEY_ID", "MISLABEL_TOKEN_FILE", "TOKENIZERS_PARALLELISM"],
)
def test_the_value_of_another_variable_stays(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "correct-horse")
    assert redacted("correct-horse") == "correct-horse"


def test_the_path_of_a_file_with_credentials_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", __file__)
    assert redacted(__file__) == __file__


@pytest.mark.parametrize(
    "address",
    ["postgresql://me:corr%40ct@db/x", "https://corr%40ct@host", "db://host/x?token=corr%40ct"],
    ids=["password", "token", "parameter"],  # pytest puts ids into the environment
)
def test_the_password_of_an_address_is_redacted_wherever_it_appears(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "password 'corr@ct' (corr%40ct) was refused"
    assert redacted(text) == text
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    assert redacted(text) == "password '…' (…) was refused"
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    monkeypatch.setattr(sys, "argv", ["mislabel", "run", f"--mlflow={address}"])
    assert redacted(text) == "password '…' (…) was refused"


def test_a_short_value_does_not_make_texts_unreadable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "run")
    assert redacted("run 7 failed") == "run 7 failed"


def test_a_remembered_secret_is_redacted() -> None:
    assert redacted("a-secret-from-a-file-1") == "a-secret-from-a-file-1"
    remember_secret("a-secret-from-a-file-1")
    assert redacted("it is a-secret-from-a-file-1") == "it is …"
