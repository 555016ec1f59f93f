"""How addresses become buckets. A real server is used in tests/cluster/test_object_store.py."""

import pytest

from mislabel.sweeps.errors import WrongStoreError
from mislabel.sweeps.store.conditional_put import put_if_absent


def test_a_server_that_does_not_answer_is_a_temporary_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "of-this-test"}.items():
        monkeypatch.setenv(name, value)
    address = "s3://bucket/path?endpoint_override=127.0.0.1:1&scheme=http&region=here"
    with pytest.raises(ConnectionError):
        put_if_absent(address, "bucket/path/file", b"")


def test_other_kinds_of_storage_are_refused() -> None:
    with pytest.raises(WrongStoreError, match="hdfs"):
        put_if_absent("hdfs://host/path", "path/file", b"")
