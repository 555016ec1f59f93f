import gzip
import hashlib
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from mislabel.tasks.data import packages
from mislabel.tasks.data.catalogue import SOURCES
from mislabel.tasks.data.download import FetchError, download
from mislabel.tasks.data.torchvision_import import vision

pytestmark = pytest.mark.long

CONTENT = bytes(range(256)) * 4096
MD5 = hashlib.md5(CONTENT).hexdigest()


class Server(ThreadingHTTPServer):
    breaks_after: int | None = None
    resumes = True
    asked: list[str | None]
    others: dict[str, bytes]


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        asked = self.headers.get("Range")
        self.server.asked.append(asked)
        first = int(asked.removeprefix("bytes=").rstrip("-")) if asked and self.server.resumes else 0
        if self.path in self.server.others:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(self.server.others[self.path])
            return
        if self.path != "/file":
            self.send_error(404)
            return
        if first >= len(CONTENT):
            self.send_error(416)
            return
        self.send_response(206 if first else 200)
        self.send_header("Content-Length", str(len(CONTENT) - first))
        self.end_headers()
        body = CONTENT[first:]
        self.wfile.write(body if self.server.breaks_after is None else body[: self.server.breaks_after])

    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Handler) as serving:
        serving.asked, serving.others = [], {}
        thread = threading.Thread(target=serving.serve_forever)
        thread.start()
        yield serving
        serving.shutdown()
        thread.join()


def address(server: Server, path: str = "/file") -> str:
    return f"http://127.0.0.1:{server.server_address[1]}{path}"


def silent(what: str, done: int, total: int) -> None:
    pass


def test_a_file_is_fetched_with_progress_and_not_again(server: Server, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    for _ in range(2):
        download(address(server), tmp_path / "file", MD5, lambda *at: seen.append(at))
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert len(server.asked) == 1
    assert seen[-1] == ("file", len(CONTENT), len(CONTENT))
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)


@pytest.mark.parametrize("resumes", [True, False])
def test_an_interrupted_download_continues(server: Server, tmp_path: Path, resumes: bool) -> None:
    server.breaks_after, server.resumes = 300_000, resumes
    with pytest.raises(FetchError, match=r"ended after 300,000 of|IncompleteRead"):
        download(address(server), tmp_path / "file", MD5, silent)
    assert not (tmp_path / "file").exists()
    server.breaks_after = None
    download(address(server), tmp_path / "file", MD5, silent)
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert server.asked[1] == f"bytes={300_000}-"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_an_unexpected_file_is_removed(server: Server, tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="md5"):
        download(address(server), tmp_path / "file", "0" * 32, silent)
    assert list(tmp_path.iterdir()) == []


def test_the_partial_download_of_another_file_is_removed(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.part").write_bytes(b"x" * (len(CONTENT) + 5))
    download(address(server), tmp_path / "file", MD5, silent)
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_an_address_that_can_not_be_reached_is_reported(server: Server, tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="/nothing: Not Found"):
        download(address(server, "/nothing"), tmp_path / "file", MD5, silent)
    with pytest.raises(FetchError, match="refused"):
        download("http://127.0.0.1:9/file", tmp_path / "file", MD5, silent)


def test_a_published_data_set_comes_from_the_first_mirror_that_has_it(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small files with the names of MNIST's files; the first mirror does not have them."""
    contents = {f"{name}.gz": name.encode() * 100 for name in packages.IDX}
    packed = {name: gzip.compress(content) for name, content in contents.items()}
    server.others = {f"/good/{name}": content for name, content in packed.items()}
    published = vision("datasets").MNIST
    monkeypatch.setattr(published, "mirrors", [address(server, "/none/"), address(server, "/good/")])
    listed = [(name, hashlib.md5(content).hexdigest()) for name, content in packed.items()]
    monkeypatch.setattr(published, "resources", listed)
    md5 = {name: hashlib.md5(contents[f"{name}.gz"]).hexdigest() for name in packages.IDX}
    source = replace(SOURCES["mnist"], md5=md5)
    assert source.fetch(tmp_path, silent) == "download"
    assert source.faults(tmp_path) == []
    assert (tmp_path / "MNIST" / "raw" / packages.IDX[0]).read_bytes() == contents[f"{packages.IDX[0]}.gz"]
