import hashlib
import pickle
import warnings

import numpy as np

from mislabel.tasks.data import cifar
from mislabel.tasks.data.catalogue import SOURCES


def test_the_file_of_class_names_is_bit_for_bit_the_published_one() -> None:
    assert hashlib.md5(cifar.meta_pickle()).hexdigest() == SOURCES["cifar10"].md5["batches.meta"]


def test_there_is_a_name_for_every_image() -> None:
    names = cifar.filenames()
    assert len(names) == 60_000
    assert len(set(names)) > 59_000
    assert all(name.endswith(b".png") for name in names)


def test_a_batch_can_be_read() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (cifar.BATCH, 3072), dtype=np.uint8)
    labels = [i % 10 for i in range(cifar.BATCH)]
    names = [f"image{i}.png".encode() for i in range(cifar.BATCH)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        read = pickle.loads(cifar.batch_pickle("training batch 1 of 5", pixels, labels, names), encoding="latin1")
    assert np.array_equal(read["data"], pixels)
    assert read["labels"] == labels
    assert read["filenames"] == [name.decode() for name in names]
    assert read["batch_label"] == "training batch 1 of 5"
