import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tasks.data.images import DataError
from tasks.data.pixels import pixels_of


def painted(folder: Path, count: int, grey: bool = False) -> list[str]:
    """Files of one colour each, the next a little lighter."""
    folder.mkdir()
    for i in range(count):
        colour = (i % 256,) * 3 if grey else (i % 256, i // 256, 7)
        Image.new("RGB", (5, 4), colour).save(folder / f"{i:04}.png")
    return sorted(str(file) for file in folder.iterdir())


def silent(what: str, done: int, total: int) -> None:
    pass


def test_images_stand_in_the_order_of_their_files(tmp_path: Path) -> None:
    files = painted(tmp_path / "own", 600)
    with pixels_of(files, 2, tmp_path / "part", silent) as x:
        assert x.shape == (600, 3, 2, 2)
        assert (x[:, 0, 0, 0] == np.arange(600) % 256).all()
        assert (x[:, 1, 1, 1] == np.arange(600) // 256).all()
    assert not (tmp_path / "part").exists()


def test_grey_images_get_one_channel(tmp_path: Path) -> None:
    with pixels_of(painted(tmp_path / "own", 300, grey=True), 2, tmp_path / "part", silent) as x:
        assert x.shape == (300, 1, 2, 2)
        assert (x[:, 0, 0, 0] == np.arange(300) % 256).all()


@pytest.mark.parametrize("grey", [False, True])
def test_a_reading_goes_on_behind_a_file_that_was_mended(tmp_path: Path, grey: bool) -> None:
    files, read = painted(tmp_path / "own", 600, grey), []

    def told(what: str, done: int, total: int) -> None:
        read.append(done)

    good = Path(files[400]).read_bytes()
    Path(files[400]).write_bytes(b"no image")
    with pytest.raises(DataError, match=r"0400\.png is not an image"), pixels_of(files, 2, tmp_path / "part", told):
        pass
    Path(files[400]).write_bytes(good)
    read.clear()
    with pixels_of(files, 2, tmp_path / "part", told) as x:
        assert (x[:, 0, 0, 0] == np.arange(600) % 256).all()
        assert x.shape[1] == (1 if grey else 3)
    assert read == list(range(257, 601))


@pytest.mark.parametrize("change", ["file", "size"])
def test_a_reading_of_something_else_begins_anew(tmp_path: Path, change: str) -> None:
    files = painted(tmp_path / "own", 300)
    broken = [*files, str(tmp_path / "none.png")]
    Path(broken[-1]).write_bytes(b"no image")
    with pytest.raises(DataError), pixels_of(broken, 2, tmp_path / "part", silent):
        pass
    if change == "file":
        Image.new("RGB", (5, 4), (99, 99, 99)).save(files[3])
        os.utime(files[3], (1, 1))
    with pixels_of(files, 4 if change == "size" else 2, tmp_path / "part", silent) as x:
        assert x[3, 0, 0, 0] == (99 if change == "file" else 3)
        assert (x[4:256, 0, -1, -1] == np.arange(4, 256)).all()
