"""Make torch's arithmetic deterministic, in the precision that a run asks for."""

import torch


def make_deterministic(device: torch.device) -> None:
    """Make results on this device deterministic from now on, in this process.

    By default, on a GPU, torch rounds the inputs of float32 convolutions to ten bits, and cuDNN may sum gradients in a
    different order each time. A resumed run would then differ from an uninterrupted one.
    """
    if device.type == "cuda":
        torch.backends.cudnn.deterministic = True
        torch.backends.cudnn.benchmark = False
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cuda.matmul.allow_tf32 = False
