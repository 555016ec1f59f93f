"""Build the network that a task's parameters name.

    network = build(lanes.shape, data.size, outputs=10)
    state = network.init(lanes)
    state |= step(network, state, x, loss, Descent(lanes["learning_rate"]))

The state is a mapping from names to tensors with the lane first, initialized from each lane's own seed. x is
(l b c h w), and `loss` gives a number per lane from outputs (l b k).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from mislabel.tasks.images.architectures import KINDS
from mislabel.tasks.images.dense import DenseNetwork
from mislabel.tasks.images.layered import LayeredNetwork
from mislabel.tasks.images.layers import STARTS
from mislabel.tasks.images.network import Network
from mislabel.tasks.images.torchvision_resnets import RESNETS, ModularNetwork
from mislabel.tasks.parameters import knob, shape

_HELP = "; ".join(f"{name}: {kind.help}" for name, kind in KINDS.items())
_DEPTHS = ", ".join(f"{name} {kind.depth}" for name, kind in KINDS.items())
_WIDTHS = ", ".join(f"{name} {kind.width}" for name, kind in KINDS.items())
DEPTH_HELP = f"number of hidden layers or blocks, see network; 0: the default of the network ({_DEPTHS})"
WIDTH_HELP = f"number of neurons or channels, see network; 0: the default of the network ({_WIDTHS})"
NTK_HELP = "ntk: weights start with variance 1 and are multiplied by their standard scale in the forward pass"


@dataclass(frozen=True, kw_only=True)
class NetworkParams:
    """Parameters of tasks with such networks: derive Params from it, in addition to Training."""

    network: str = shape("fc", choices=(*KINDS, *RESNETS), help=f"network ({_HELP})")
    depth: int = shape(0, at_least=0, help=DEPTH_HELP)
    width: int = shape(0, at_least=0, help=WIDTH_HELP)
    parametrization: str = shape("standard", choices=("standard", "ntk"), help=NTK_HELP)
    init: str = shape(
        "he",
        choices=STARTS,
        help="variance of initial weights: 2/fan-in (wide_resnet: 1/fan-in), 1/fan-in, or torch's default 1/(3·fan-in)",
    )
    init_scale: float = knob(1.0, above=0, help="factor on the initial weights")


def network_conflicts(params: Any) -> Iterator[str]:
    """For a task's `conflicts`: what is wrong between the parameters of the network."""
    if params.network in RESNETS and (params.depth or params.width):
        yield f"network: {params.network} has a fixed depth and width; leave them at 0"
    if params.network in RESNETS and params.parametrization == "ntk":
        yield f"parametrization: {params.network} has only the standard one; for ntk take another, such as wide_resnet"
    if params.network in RESNETS and params.init != "he":
        yield f"init: {params.network} is initialized as in torchvision; leave it at he"


def has_batch_norm(network: str) -> bool:
    """Whether a network has batch norm. Its outputs in training then depend on the batch."""
    return network in RESNETS or KINDS[network].batch_norm


def build(params: Any, size: tuple[int, int, int], outputs: int) -> Network:
    """The network that the parameters (or a pack's shape) name, for images of size (c h w)."""
    p = params
    return _built(p.network, p.depth, p.width, p.init, p.parametrization == "ntk", size, outputs)


@lru_cache(maxsize=32)
def _built(
    kind: str, depth: int, width: int, start: str, ntk: bool, size: tuple[int, int, int], outputs: int
) -> Network:
    if kind in RESNETS:
        return ModularNetwork(kind, size[0], outputs)
    network = DenseNetwork if kind == "fc" else LayeredNetwork
    return network(kind, depth, width, start, ntk, size, outputs)
