"""torchvision's ResNets as networks of a pack, with their own stem or one for small images.

The modules are called with the state of one lane after the other. The names of the weights are torchvision's, so
torchvision can load a lane's state.
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from mislabel.tasks.data.torchvision_import import vision
from mislabel.tasks.images.network import Network, Result, Weight

RESNETS = ("resnet18", "resnet34", "resnet50")
_COUNTER = "num_batches_tracked"


class ModularNetwork(Network):
    def __init__(self, kind: str, channels: int, outputs: int, small: bool = True) -> None:
        """With 0 outputs the network ends with the features; without `small` it has ImageNet's stem."""
        with torch.device("meta"):
            module: nn.Module = getattr(vision("models.resnet"), kind)(num_classes=outputs or 1)
            if small:
                # The stem for ImageNet would reduce images of 32×32 to 8×8.
                module.conv1 = nn.Conv2d(channels, 64, 3, padding=1, bias=False)
                module.maxpool = nn.Identity()
            elif channels != 3:
                module.conv1 = nn.Conv2d(channels, 64, 7, stride=2, padding=3, bias=False)
        if not outputs:
            module.fc = nn.Identity()
        self._module = module
        declared = {}
        for name, part in module.named_modules():
            for own, tensor in part.named_parameters(name, recurse=False):
                declared[own] = _start(part, own.rpartition(".")[2], tensor)
        for name, buffer in module.named_buffers():
            if not name.endswith(_COUNTER):
                start = 1.0 if name.endswith("running_var") else 0.0
                declared[name] = Weight(tuple(buffer.shape), constant=start, trained=False)
        super().__init__(declared)

    def forward(self, state: Mapping[str, Tensor], x: Tensor, *, training: bool = False, watch: bool = False) -> Result:
        lanes = len(state[next(iter(self.weights))])
        parts = [self._one(state, i, x if x.dim() == 4 else x[i], training, watch) for i in range(lanes)]
        return Result.joined(parts, dim=0)

    def _one(self, state: Mapping[str, Tensor], lane: int, x: Tensor, training: bool, watch: bool) -> Result:
        own = {name: state[name][lane] for name in self.weights}
        buffers = {name: state[name][lane] for name in self.buffers}
        if training:
            buffers = {name: tensor.clone() for name, tensor in buffers.items()}  # torch updates them in place
        counters = {
            name: torch.zeros((), dtype=torch.int64, device=x.device)
            for name, _ in self._module.named_buffers()
            if name.endswith(_COUNTER)
        }
        if torch.is_autocast_enabled(x.device.type):
            x = x.contiguous(memory_format=torch.channels_last)  # the fastest layout for half precision
        hidden: dict[str, Tensor] = {}
        hooks = self._watched(hidden) if watch else []
        self._module.train(training)
        try:
            outputs = torch.func.functional_call(self._module, {**own, **buffers, **counters}, (x,))
        finally:
            for hook in hooks:
                hook.remove()
        buffers = {name: tensor[None] for name, tensor in buffers.items()} if training else {}
        return Result(outputs[None], {name: tensor[None] for name, tensor in hidden.items()}, buffers)

    def _watched(self, hidden: dict[str, Tensor]) -> list[torch.utils.hooks.RemovableHandle]:
        """Record the outputs of the stem and of each block, which are after ReLU."""

        def keep(name: str) -> torch.utils.hooks.RemovableHandle:
            part = self._module.get_submodule(name)
            return part.register_forward_hook(lambda module, given, output: hidden.update({name: output}))

        blocks = [f"layer{i}.{j}" for i in range(1, 5) for j, _ in enumerate(getattr(self._module, f"layer{i}"))]
        return [keep(name) for name in ("relu", *blocks)]


def _start(part: nn.Module, name: str, tensor: Tensor) -> Weight:
    """torchvision's initialization: convolutions by fan-out, batch norm at 1 and 0, last layer by torch's default."""
    size = tuple(tensor.shape)
    if isinstance(part, nn.Conv2d):
        return Weight(size, deviation=math.sqrt(2 / (size[0] * math.prod(size[2:]))))
    if isinstance(part, nn.Linear):
        return Weight(size, deviation=1 / math.sqrt(3 * part.in_features), uniform=True)
    return Weight(size, constant=1.0 if name == "weight" else 0.0)
