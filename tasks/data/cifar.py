"""Rebuild CIFAR-10's original files, bit for bit, from its images, labels and file names.

Packages contain the images in other formats. torchvision reads and checks the original pickles, which Python 2 wrote in
2009; they contain nothing else.
"""

import lzma
import struct
from collections.abc import Sequence
from importlib.resources import files

import numpy as np

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
BATCH = 10_000
_MOST_AT_ONCE = 1000


def filenames() -> list[bytes]:
    """The file names of the 60,000 images, training batches first."""
    packed = (files("mislabel.tasks.data") / "cifar10_filenames.txt.xz").read_bytes()
    return lzma.decompress(packed).split()


def batch_pickle(title: str, pixels: np.ndarray, labels: Sequence[int], names: Sequence[bytes]) -> bytes:
    """A file of 10,000 images: `pixels` is (10000, 3072), with all red pixels of an image first."""
    array = [
        _text(b"data"), _put(6), b"cnumpy.core.multiarray\n_reconstruct\n", _put(7), b"cnumpy\nndarray\n", _put(8),
        b"K\0\x85U\x01b\x87R", _put(9), b"(K\x01M\x10'M\x00\x0c\x86cnumpy\ndtype\n", _put(10),
        b"U\x02u1K\0K\x01\x87R", _put(11), b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb\x89T",
        struct.pack("<I", pixels.nbytes), pixels.tobytes(), b"tb",
    ]  # fmt: skip
    return b"".join(
        [
            *(b"\x80\x02}q\x01(", _text(b"batch_label"), _put(2), _text(title.encode()), _put(3)),
            *(_text(b"labels"), _put(4), b"]", _put(5), _items([b"K" + bytes([label]) for label in labels])),
            *array,
            *(_text(b"filenames"), _put(12), b"]", _put(13)),
            _items([_text(name) + _put(14 + i) for i, name in enumerate(names)]),
            b"u.",
        ]
    )


def meta_pickle() -> bytes:
    """The file with the names of the classes."""
    classes = [_text(name.encode()) + _put(5 + i) for i, name in enumerate(CLASSES)]
    return b"".join(
        [
            *(b"\x80\x02}q\x01(", _text(b"num_cases_per_batch"), _put(2), b"M\x10'"),
            *(_text(b"label_names"), _put(3), b"]", _put(4), _items(classes)),
            *(_text(b"num_vis"), _put(15), b"M\x00\x0cu."),
        ]
    )


def _text(value: bytes) -> bytes:
    return b"U" + bytes([len(value)]) + value


def _put(place: int) -> bytes:
    return b"q" + bytes([place]) if place < 256 else b"r" + struct.pack("<I", place)


def _items(parts: Sequence[bytes]) -> bytes:
    cut = (parts[i : i + _MOST_AT_ONCE] for i in range(0, len(parts), _MOST_AT_ONCE))
    return b"".join(b"(" + b"".join(some) + b"e" for some in cut)
