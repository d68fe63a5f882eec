"""What networks see and what an agent is paid, brought to a common scale as it comes in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from trading_torchrl.modules.networks import MLP, Network, joined

FURTHEST = 10.0
"""Nothing counts as more deviations from the mean."""


class RunningScale(nn.Module):
    """Mean and deviation of all rows that it was shown, ``[D]``; before the first 0 and 1.

    Args:
        width: D.

    Example:
        >>> scale = RunningScale(1)
        >>> scale.see(torch.tensor([[1.0], [3.0]]))
        >>> scale(torch.tensor([[2.0], [4.0]]))[:, 0]
        tensor([0., 2.])
    """

    mean: Tensor
    squares: Tensor
    count: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(width, dtype=torch.float64))
        self.register_buffer("squares", torch.zeros(width, dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))

    @property
    def deviation(self) -> Tensor:
        """Of each column, ``[D]``; 1 where it never changed."""
        found = (self.squares / self.count.clamp(min=1)).sqrt()
        return torch.where(found > 1e-8, found, 1.0)

    @torch.no_grad()
    def see(self, rows: Tensor) -> None:
        """Counts rows ``[*, D]``; numerically safe, however many came before."""
        rows = rows.reshape(-1, rows.shape[-1]).double()
        count, mean = len(rows), rows.mean(0)
        off, whole = mean - self.mean, self.count + count
        self.squares += (rows - mean).square().sum(0) + off.square() * self.count * count / whole
        self.mean += off * count / whole
        self.count.copy_(whole)

    def forward(self, rows: Tensor) -> Tensor:
        """Rows ``[*, D]`` in deviations from the mean."""
        scaled = (rows - self.mean.to(rows.dtype)) / self.deviation.to(rows.dtype)
        return scaled.clamp(-FURTHEST, FURTHEST)


class Scaled(nn.Module):
    """A network behind a scale.

    Args:
        scale: of all that it sees, side by side.
        network: sees the same in that scale.
    """

    def __init__(self, scale: RunningScale, network: nn.Module) -> None:
        super().__init__()
        self.scale, self.network = scale, network

    def forward(self, *inputs: Tensor) -> Tensor:
        """What the network says."""
        return self.network(self.scale(joined(inputs)))


def scaled_by(scale: RunningScale, network: Network = MLP) -> Network:
    """What builders of actors and critics make them of, so that all share one scale."""

    def build(inputs: int, hidden: Sequence[int], outputs: int) -> nn.Module:
        return Scaled(scale, network(inputs, hidden, outputs))

    return build


class RewardScale:
    """Divides rewards by the deviation of what accounts earn, discounted, as it has been so far.

    It has a ``state_dict``, with which it goes on.

    Args:
        accounts: N.
        gamma: discount.

    Example:
        >>> scale = RewardScale(accounts=2, gamma=0.0)
        >>> reward = torch.tensor([[[4.0]], [[-4.0]]])
        >>> scale(reward, torch.zeros(2, 1, 1, dtype=torch.bool))[:, 0, 0]
        tensor([ 1., -1.])
    """

    def __init__(self, accounts: int, gamma: float) -> None:
        self.gamma, self.earned = gamma, torch.zeros(accounts, 1, dtype=torch.float64)
        self.scale = RunningScale(1)

    def __call__(self, reward: Tensor, done: Tensor) -> Tensor:
        """Rewards ``[N, T, 1]`` of steps that follow each other from call to call, in that scale.

        Args:
            reward: as it came.
            done: whether the episode ended there.
        """
        earned = []
        for at in range(reward.shape[1]):
            self.earned = self.gamma * self.earned + reward[:, at].double()
            earned.append(self.earned)
            self.earned = self.earned.masked_fill(done[:, at], 0.0)
        self.scale.see(torch.stack(earned, 1))
        return (reward / self.scale.deviation.to(reward.dtype)).clamp(-FURTHEST, FURTHEST)

    def state_dict(self) -> dict[str, Any]:
        """All that it counts by."""
        return {"earned": self.earned, "scale": self.scale.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on where :meth:`state_dict` left off."""
        self.earned = state["earned"].clone()
        self.scale.load_state_dict(state["scale"])
