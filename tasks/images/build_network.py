"""Choose a network by a task's parameters.

    network = build(lanes.shape, data.size, outputs=10)
    state = network.init(lanes)
    state |= step(network, state, x, loss, lanes["learning_rate"])

The state is by name, lane first, from each lane's own seed; x is (l b c h w), and `loss` goes from outputs (l b k) to a
number per lane.
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


@dataclass(frozen=True, kw_only=True)
class NetworkParams:
    """Parameters of tasks with such networks: derive Params from it, beside Training."""

    network: str = shape("fc", choices=(*KINDS, *RESNETS), help=f"kind of network ({_HELP})")
    depth: int = shape(0, at_least=0, help="hidden layers or blocks, as suits the kind; 0: as in the paper")
    width: int = shape(0, at_least=0, help="neurons or channels, as suits the kind; 0: as in the paper")
    parametrization: str = shape(
        "standard", choices=("standard", "ntk"), help="ntk: weights start with variance 1 and are scaled where used"
    )
    init: str = shape(
        "he",
        choices=STARTS,
        help="variance of initial weights: 2/fan-in (wide_resnet: 1/fan-in), 1/fan-in, or 1/(3·fan-in) as torch has",
    )
    init_scale: float = knob(1.0, above=0, help="initial weights are multiplied by it")


def architecture_conflicts(params: Any) -> Iterator[str]:
    """For a task's `conflicts`."""
    if params.network in RESNETS and (params.depth or params.width):
        yield f"network: {params.network} has its own depth and width; leave them at 0"
    if params.network in RESNETS and params.parametrization == "ntk":
        yield f"parametrization: {params.network} has the standard one alone; others, such as wide_resnet, have ntk"
    if params.network in RESNETS and params.init != "he":
        yield f"init: {params.network} starts as torchvision's does; leave it at he"


def has_batch_norm(network: str) -> bool:
    """Whether a kind of network has it: what it says of an image then depends on the batch."""
    return network in RESNETS or KINDS[network].batch_norm


def build(params: Any, size: tuple[int, int, int], outputs: int) -> Network:
    """The network that the parameters (or a pack's shape) name, for images of (c h w)."""
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
