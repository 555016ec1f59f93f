from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from mislabel.tasks.data.images import DataError, images, names
from mislabel.tasks.data.own import convert_folder


def silent(what: str, done: int, total: int) -> None:
    pass


def paint(folder: Path, colour: tuple[int, int, int], count: int, size: tuple[int, int] = (20, 10)) -> None:
    folder.mkdir(parents=True)
    for i in range(count):
        Image.new("RGB", size, colour).save(folder / f"{i:02}.png")


def test_a_folder_per_class_becomes_a_data_set(tmp_path: Path) -> None:
    paint(tmp_path / "birds" / "red", (255, 0, 0), 10)
    paint(tmp_path / "birds" / "blue", (0, 0, 255), 5, size=(7, 30))
    found = convert_folder("images/birds", tmp_path / "birds", 6, tmp_path / "data", silent)
    assert found.classes == ("blue", "red")
    assert found.size == (3, 6, 6)
    assert found.train_y.tolist() == [0] * 4 + [1] * 8
    assert found.test_y.tolist() == [0, 1, 1]
    assert torch.equal(found.train_x[-1, :, 3, 3], torch.tensor([255, 0, 0], dtype=torch.uint8))
    assert images("images/birds", tmp_path / "data") is found
    assert "images/birds" in names(tmp_path / "data")
    assert "images" not in names(tmp_path / "data")


def test_images_are_cropped_to_the_central_square(tmp_path: Path) -> None:
    pixels = np.zeros((4, 8), dtype=np.uint8)
    pixels[:, 2:6] = 200
    for name in ("a", "b"):
        (tmp_path / "own" / name).mkdir(parents=True)
        for i in range(5):
            Image.fromarray(pixels).save(tmp_path / "own" / name / f"{i}.png")
    found = convert_folder("images", tmp_path / "own", 4, tmp_path / "data", silent)
    assert found.size == (1, 4, 4)  # all are grey
    assert found.train_x.unique().tolist() == [200]
    assert "images" in names(tmp_path / "data")


@pytest.mark.parametrize("test", ["test", "val"])
def test_folders_for_training_and_testing_are_kept_apart(tmp_path: Path, test: str) -> None:
    for name, colour in (("red", (255, 0, 0)), ("blue", (0, 0, 255))):
        paint(tmp_path / "own" / "train" / name, colour, 5)
        paint(tmp_path / "own" / test / name, colour, 2)
    found = convert_folder("images", tmp_path / "own", 4, tmp_path / "data", silent)
    assert (len(found.train_y), len(found.test_y)) == (10, 4)
    paint(tmp_path / "own" / test / "green", (0, 255, 0), 1)
    with pytest.raises(DataError, match=r"blue, red.*blue, green, red"):
        convert_folder("images", tmp_path / "own", 4, tmp_path / "data", silent)


def test_a_folder_for_training_without_one_for_testing_is_split(tmp_path: Path) -> None:
    paint(tmp_path / "own" / "train" / "red", (255, 0, 0), 10)
    paint(tmp_path / "own" / "train" / "blue", (0, 0, 255), 5)
    found = convert_folder("images", tmp_path / "own", 4, tmp_path / "data", silent)
    assert found.classes == ("blue", "red")
    assert found.test_y.tolist() == [0, 1, 1]


def test_a_folder_of_trains_is_a_class(tmp_path: Path) -> None:
    paint(tmp_path / "own" / "train", (255, 0, 0), 5)
    paint(tmp_path / "own" / "bus", (0, 0, 255), 5)
    assert convert_folder("images", tmp_path / "own", 4, tmp_path / "data", silent).classes == ("bus", "train")


def test_classes_without_test_images_are_named(tmp_path: Path) -> None:
    for name, count in (("red", 4), ("green", 5), ("yellow", 1)):
        paint(tmp_path / "own" / name, (255, 0, 0), count)
    with pytest.raises(DataError, match="red, yellow"):
        convert_folder("images", tmp_path / "own", 4, tmp_path / "data", silent)
    assert not (tmp_path / "data").exists()


def test_folders_that_are_not_a_data_set_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not a folder"):
        convert_folder("images", tmp_path / "none", 4, tmp_path, silent)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="empty: "):
        convert_folder("images", tmp_path / "empty", 4, tmp_path, silent)
    with pytest.raises(DataError, match="'birds'"):
        convert_folder("birds", tmp_path / "empty", 4, tmp_path, silent)
    paint(tmp_path / "own" / "red", (255, 0, 0), 5)
    with pytest.raises(DataError, match=r"own .*red;"):
        convert_folder("images", tmp_path / "own", 4, tmp_path, silent)
    paint(tmp_path / "own" / "blue", (0, 0, 255), 5)
    (tmp_path / "own" / "red" / "broken.png").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"broken\.png is not an image that can be read"):
        convert_folder("images", tmp_path / "own", 4, tmp_path, silent)
