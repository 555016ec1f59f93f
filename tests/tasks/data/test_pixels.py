import io
import os
import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mislabel.tasks.data.images import DataError
from mislabel.tasks.data.pixels import pixels_of


def painted(folder: Path, count: int, grey: bool = False) -> list[str]:
    """Files of one colour each, each a little lighter than the one before."""
    folder.mkdir()
    for i in range(count):
        colour = (i % 256,) * 3 if grey else (i % 256, i // 256, 7)
        Image.new("RGB", (5, 4), colour).save(folder / f"{i:04}.png")
    return sorted(str(file) for file in folder.iterdir())


def silent(what: str, done: int, total: int) -> None:
    pass


def test_images_are_in_the_order_of_their_files(tmp_path: Path) -> None:
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
def test_reading_continues_after_a_broken_file_was_replaced(tmp_path: Path, grey: bool) -> None:
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
def test_reading_other_files_starts_from_the_beginning(tmp_path: Path, change: str) -> None:
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


def one(file: Path, size: int, folder: Path) -> np.ndarray:
    with pixels_of([str(file)], size, folder, silent) as x:
        return np.array(x[0])


@pytest.mark.parametrize("order", ["<", ">"])
def test_grey_of_16_bits_keeps_its_shades(tmp_path: Path, order: str) -> None:
    shades = np.arange(16, dtype=np.uint16).reshape(4, 4) * 4369  # up to 65,535
    mode = "I;16" if order == "<" else "I;16B"
    Image.frombytes(mode, (4, 4), shades.astype(f"{order}u2").tobytes()).save(tmp_path / "deep.tif")
    assert (one(tmp_path / "deep.tif", 4, tmp_path / "part")[0] == np.arange(16).reshape(4, 4) * 17).all()


@pytest.mark.parametrize("mode", ["I", "F"])
def test_pixels_without_a_known_white_are_refused(tmp_path: Path, mode: str) -> None:
    Image.new(mode, (4, 4)).save(tmp_path / "deep.tif")
    with pytest.raises(DataError, match=rf"deep\.tif has pixels of mode {mode}, .*; convert it to 8 bits"):
        one(tmp_path / "deep.tif", 4, tmp_path / "part")


def test_transparent_pixels_are_black(tmp_path: Path) -> None:
    image = Image.new("RGBA", (2, 2), (200, 100, 50, 255))
    image.putpixel((0, 0), (200, 100, 50, 0))
    image.putpixel((1, 0), (200, 100, 50, 51))  # a fifth
    image.save(tmp_path / "own.png")
    x = one(tmp_path / "own.png", 2, tmp_path / "part")
    assert x[:, 0, 0].tolist() == [0, 0, 0]
    assert x[:, 0, 1].tolist() == [40, 20, 10]
    assert x[:, 1, 1].tolist() == [200, 100, 50]


def test_the_transparent_colour_of_a_palette_is_black(tmp_path: Path) -> None:
    image = Image.new("P", (2, 1), 1)
    image.putpalette([200, 0, 0, 0, 100, 0])
    image.putpixel((0, 0), 0)
    image.save(tmp_path / "own.png", transparency=0)
    assert one(tmp_path / "own.png", 1, tmp_path / "part").ravel().tolist() == [0, 50, 0]


def broken_files() -> dict[str, bytes]:
    def saved(format: str) -> bytes:
        file = io.BytesIO()
        Image.effect_noise((64, 64), 50).save(file, format)
        return file.getvalue()

    png = saved("PNG")
    return {
        "cut.png": png[:200],
        "chunk.png": png.replace(b"IDAT", b"ID\0T", 1),
        "huge.ppm": b"P6 99999 99999 255\n",
        "text.ppm": b"P2 2 2 255\n1 2 x 4\n",
        "cut.qoi": b"qoif" + struct.pack(">IIBB", 4, 4, 3, 0) + b"\xfe",
        "cut.tif": saved("TIFF")[:4096],
    }


@pytest.mark.parametrize("name", broken_files())
def test_a_broken_image_is_named_for_every_format(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(broken_files()[name])
    with pytest.raises(DataError, match=rf"{name} is not an image that can be read: ."):
        one(tmp_path / name, 4, tmp_path / "part")


def test_running_out_of_memory_is_not_reported_as_a_broken_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(file: str) -> None:
        raise MemoryError

    (file,) = painted(tmp_path / "own", 1)
    monkeypatch.setattr(Image, "open", full)
    with pytest.raises(MemoryError):
        one(Path(file), 4, tmp_path / "part")
