import subprocess
import sys

import pytest
import torch

from mislabel.tasks.data.torchvision_import import vision


def test_torchvisions_parts_can_be_used() -> None:
    assert vision("datasets").MNIST.resources
    assert vision("models.resnet").resnet18
    image = vision("transforms.functional").hflip(torch.arange(4).reshape(1, 2, 2))
    assert image.tolist() == [[[1, 0], [3, 2]]]


@pytest.mark.long
def test_torchvision_is_not_imported_before_it_is_used() -> None:
    modules = "mislabel.tasks.data.images, mislabel.tasks.images.build_network"
    script = f"import sys, {modules}; print('torchvision' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
