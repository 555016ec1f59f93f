import pytest
import torch
from torch import Tensor

from mislabel.tasks.images.derivatives import along, gradients, linearized, sample_gradients
from mislabel.tasks.images.network import Descent
from tests.tasks.images.small import SMALL, WITHOUT_BATCH_NORM, batch, lanes_of, small, some_direction

pytestmark = pytest.mark.long


@pytest.mark.parametrize("kind", SMALL)
def test_the_gradients_of_samples_add_up(kind: str) -> None:
    network, _, state = small(kind)
    x = batch(kind, lanes_of(kind), 3)
    each = sample_gradients(network, state, x, lambda outputs: outputs.square().sum())
    whole, _ = gradients(network, state, x, lambda outputs: outputs.square().sum(dim=(1, 2)), training=False)
    for name, grads in each.items():
        assert grads.shape == (lanes_of(kind), 3, *network.weights[name].size)
        torch.testing.assert_close(grads.sum(dim=1), whole[name], rtol=1e-6, atol=1e-8)


def test_lanes_may_share_the_images_that_sample_gradients_are_of() -> None:
    network, _, state = small("fc")
    x = batch("fc", 5)
    shared = sample_gradients(network, state, x, lambda outputs: outputs[1])
    each = sample_gradients(network, state, x.expand(3, *x.shape), lambda outputs: outputs[1])
    for name in each:
        torch.testing.assert_close(shared[name], each[name])


@pytest.mark.parametrize("kind", SMALL)
def test_the_derivative_along_a_direction_is_the_product_with_gradients(kind: str) -> None:
    network, _, state = small(kind)
    x = batch(kind, lanes_of(kind), 3)
    direction = some_direction(network, state)
    outputs, change = along(network, state, direction, x)
    torch.testing.assert_close(outputs, network.forward(state, x).outputs)
    each = sample_gradients(network, state, x, lambda outputs: outputs[2])
    product = sum((grads * direction[name][:, None]).flatten(2).sum(dim=2) for name, grads in each.items())
    torch.testing.assert_close(change[:, :, 2], product)


@pytest.mark.parametrize("kind", WITHOUT_BATCH_NORM)
def test_the_linearized_network_is_a_tangent(kind: str) -> None:
    network, _, start = small(kind)
    x = batch(kind, 3, 4)
    direction = some_direction(network, start)

    def outputs(length: float) -> tuple[Tensor, Tensor]:
        weights = {name: start[name] + length * step for name, step in direction.items()}
        return network.forward({**start, **weights}, x).outputs, linearized(network, start, weights, x)

    tiny = 1e-8  # small enough that no neuron starts or stops firing
    true, linear = ((up - down) / (2 * tiny) for up, down in zip(outputs(tiny), outputs(-tiny), strict=True))
    torch.testing.assert_close(linear, true, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(outputs(0)[1], outputs(0)[0])
    torch.testing.assert_close(outputs(2.0)[1] - outputs(0)[1], 2 * (outputs(1.0)[1] - outputs(0)[1]))


def test_the_gradient_of_the_linearized_network_is_that_of_the_tangent() -> None:
    network, _, start = small("cnn")
    x = batch("cnn", 3, 4)
    weights = {name: (w * 1.1).requires_grad_() for name, w in network.trained(start).items()}
    found = torch.autograd.grad(linearized(network, start, weights, x)[:, :, 0].sum(), list(weights.values()))
    expected, _ = gradients(network, start, x, lambda outputs: outputs[:, :, 0].sum(dim=1), training=False)
    for name, grads in zip(weights, found, strict=True):
        torch.testing.assert_close(grads, expected[name])


@pytest.mark.parametrize("with_momentum", [False, True])
def test_steps_are_those_of_torchs_sgd_with_each_lanes_own_settings(with_momentum: bool) -> None:
    start = torch.tensor([[1.0, -2.0], [0.5, 3.0]], dtype=torch.float64)
    rate, decay, momentum = (
        torch.tensor(values, dtype=torch.float64) for values in ([0.1, 0.3], [0.0, 0.2], [0.9, 0.5])
    )
    w, velocity = {"w": start.clone()}, {"w": torch.zeros_like(start)}
    for _ in range(4):
        grads = {"w": w["w"] ** 3}
        descent = Descent(rate, decay, momentum, velocity) if with_momentum else Descent(rate, decay)
        descent.update(w, grads)
    for lane in range(2):
        reference = start[lane].clone().requires_grad_()
        mu = float(momentum[lane]) if with_momentum else 0.0
        sgd = torch.optim.SGD([reference], float(rate[lane]), momentum=mu, weight_decay=float(decay[lane]))
        for _ in range(4):
            sgd.zero_grad()
            (reference**4 / 4).sum().backward()
            sgd.step()
        torch.testing.assert_close(w["w"][lane], reference.detach())
