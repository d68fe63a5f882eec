"""The best ways of a small world, by value iteration on rewards as a transform has them."""

from collections.abc import Callable

import torch
from tensordict import TensorDictBase
from torch import Tensor

from trading_torchrl.descent import differentiate
from trading_torchrl.envs.reference import GridWorld
from trading_torchrl.modules import Potential
from trading_torchrl.objectives import PotentialLoss
from trading_torchrl.replay import PotentialShaping

SETTLED, APART = 600, 20
"""Sweeps until nothing changes any more, and between two changes of the weight."""


def best_ways(
    world: GridWorld, shaping: PotentialShaping, cut_at: int | None = None, changes: int = 0
) -> list[Tensor]:
    """Which ways of each cell are as good as the best, bool ``[cells - 1, ways]``.

    Args:
        world: without slips.
        shaping: of its rewards.
        cut_at: every so many of the steps is one that an episode was cut off at.
        changes: how often the weight moves by a step once all is settled; there is a result for
            each sweep from then on.
    """
    steps = world.every_step()
    if cut_at is not None:
        cut = torch.arange(steps.numel()).view(steps.shape) % cut_at == 0
        steps["next", "truncated"] = cut[..., None]
    over = steps["next", "terminated"][..., 0]
    value = torch.zeros(len(world.cells), dtype=torch.float64)
    found = []
    for sweep in range(SETTLED + APART * changes):
        if sweep >= SETTLED and sweep % APART == 0:
            shaping.adapt(entropy=0.0)
        reward = shaping(steps)["next", "reward"][..., 0].double()
        worth = reward + shaping.gamma * torch.where(over, 0.0, value[steps["next", "cell"]])
        value[steps["cell"][:, 0]] = worth.amax(-1)
        if sweep >= SETTLED - 1:
            found.append(worth >= worth.amax(-1, keepdim=True) - 1e-5)
    return found


def learn(
    loss: PotentialLoss, sample: Callable[[], TensorDictBase], steps: int, lr: float, tau: float
) -> list[float]:
    """Trains a potential as the recipe does; the loss at each step."""
    trained = [each for each in loss.parameters() if each.requires_grad]
    optimizer = torch.optim.Adam(trained, lr=lr)
    losses = []
    for _ in range(steps):
        out = loss(sample())["loss_potential"]
        differentiate(out, trained, 1.0)
        optimizer.step()
        loss.update_targets(tau)
        losses.append(float(out.detach()))
    return losses


def learned(world: GridWorld, gamma: float) -> Callable[[Tensor], Tensor]:
    """From every step of the world, each way as often."""
    torch.manual_seed(2)
    width = world.observation_spec["observation"].shape[-1]
    loss = PotentialLoss(Potential(width, {"return": 1.0}, hidden=[16]), gamma=gamma)
    steps = world.every_step().reshape(-1)
    learn(loss, lambda: steps.copy(), 500, lr=1e-2, tau=0.05)
    return loss.potential


def by_hand(world: GridWorld, gamma: float) -> Callable[[Tensor], Tensor]:
    """The way to the goal."""
    return lambda seen: -world.steps_to_goal(seen)[..., None]


def at_random(world: GridWorld, gamma: float) -> Callable[[Tensor], Tensor]:
    """A number drawn for each cell."""
    torch.manual_seed(2)
    drawn = torch.randn(len(world.cells), 1)
    return lambda seen: drawn[world.cell_of(seen)]


POTENTIALS = {"learned": learned, "hand": by_hand, "random": at_random}
"""Of a world and a discount, by name."""
