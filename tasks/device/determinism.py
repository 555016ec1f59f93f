"""Arithmetic that gives the same numbers each time, in the precision that a run asks for."""

import torch


def make_deterministic(device: torch.device) -> None:
    """From now on, in this process.

    On a GPU, torch would else round the inputs of float32 convolutions to ten bits, and let cuDNN choose ways of adding
    gradients up that differ from one time to the next: a resumed run would not be the one that was interrupted.
    """
    if device.type == "cuda":
        torch.backends.cudnn.deterministic = True
        torch.backends.cudnn.benchmark = False
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cuda.matmul.allow_tf32 = False
