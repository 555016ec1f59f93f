from pathlib import Path

import pytest

from mislabel.cluster.secret import make_secret, read_secret
from mislabel.sweeps.errors import MislabelError


def test_only_the_owner_can_read_a_secret(tmp_path: Path) -> None:
    secret = make_secret(tmp_path / "token")
    assert len(secret) == 64
    assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600
    assert read_secret(tmp_path / "token") == secret
    assert make_secret(tmp_path / "other") != secret
    with pytest.raises(FileExistsError):
        make_secret(tmp_path / "token")


def test_a_secret_that_others_can_read_is_refused(tmp_path: Path) -> None:
    make_secret(tmp_path / "token")
    (tmp_path / "token").chmod(0o640)
    with pytest.raises(MislabelError, match="chmod 600"):
        read_secret(tmp_path / "token")


@pytest.mark.parametrize("content", [b"", b"short", b"two words that are long enough", b"\xff" * 40])
def test_invalid_tokens_are_refused_and_not_printed(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(MislabelError, match="is not a token") as error:
        read_secret(path)
    assert "words" not in str(error.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(MislabelError, match=r"nothing: the token can't be read: No such file"):
        read_secret(tmp_path / "nothing")
