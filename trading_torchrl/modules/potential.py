"""Potentials: what it is worth to stand somewhere, learned or written by hand.

Any function of what is seen, ``[*, D]`` each, that returns ``[*, 1]`` is a potential.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from trading_torchrl.modules.networks import MLP


class Potential(nn.Module):
    """A learned potential: the weighted sum of heads, each of which foresees something of its own.

    :class:`~trading_torchrl.objectives.PotentialLoss` trains it: each head learns the discounted
    sum of one signal, so that one can read off what speaks for a state.

    Args:
        inputs: sum of the widths of what is seen.
        heads: name of each and its weight in the sum.
        hidden: widths of the layers that the heads share.

    Example:
        >>> potential = Potential(5, {"profit": 0.6, "risk": 0.3, "timing": 0.1})
        >>> potential(torch.zeros(8, 5)).shape, potential.parts(torch.zeros(8, 5)).shape
        (torch.Size([8, 1]), torch.Size([8, 3]))
    """

    weights: Tensor

    def __init__(
        self, inputs: int, heads: Mapping[str, float], hidden: Sequence[int] = (128,)
    ) -> None:
        super().__init__()
        if not heads or not all(0 < weight < float("inf") for weight in heads.values()):
            raise ValueError(f"heads need names with weights above 0, got {dict(heads)}")
        self.names = tuple(heads)
        self.register_buffer("weights", torch.tensor(list(heads.values())), persistent=False)
        self.network = MLP(inputs, hidden, len(heads))

    def parts(self, *seen: Tensor) -> Tensor:
        """What each head foresees, ``[*, heads]``."""
        return self.network(*seen)

    def forward(self, *seen: Tensor) -> Tensor:
        """Of what is seen, ``[*, 1]``."""
        return (self.parts(*seen) * self.weights).sum(-1, keepdim=True)


class TradingPotential(nn.Module):
    """A potential of four rules of thumb about one position; nothing is learned.

    Each is about 1 at most, and their sum is the potential:

    - ``levels``: long near support or short near resistance, of the last 20 bars;
    - ``trend``: on the side of the moving averages;
    - ``profit``: ten times the position's unrealised return;
    - ``time``: in a position for long without a trade, up to -1.

    Args:
        names: of the observation's values, ``TradingEnv.observation_names``; features scaled.

    Example:
        >>> names = ("sma_ratio", "range_position", "position", "unrealised", "since_trade")
        >>> TradingPotential(names)(torch.tensor([[0.0, -1.0, 1.0, 0.2, 0.5]]))  # .5 + .2 - .5
        tensor([[0.2000]])
    """

    names = ("levels", "trend", "profit", "time")
    reads = ("position", "range_position", "sma_ratio", "unrealised", "since_trade")

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__()
        lacking = [name for name in self.reads if name not in names]
        if lacking:
            raise ValueError(
                f"this potential reads {lacking[0]} of one asset off the observation, which has"
                f" {', '.join(names)}"
            )
        self.at = [names.index(name) for name in self.reads]

    def parts(self, observation: Tensor) -> Tensor:
        """Each rule, ``[*, 4]``."""
        held, level, trend, unrealised, idle = observation[..., self.at].unbind(-1)
        return torch.stack(
            [
                -held * (0.5 * level).clamp(-1, 1),
                held * trend.tanh(),
                unrealised.clamp(-1, 1),
                -held.abs() * idle,
            ],
            -1,
        )

    def forward(self, observation: Tensor) -> Tensor:
        """Of observations ``[*, D]``, ``[*, 1]``."""
        return self.parts(observation).sum(-1, keepdim=True)
