"""The controller's network: which option to take, what each is worth, and when it should end."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from trading_torchrl.modules.networks import joined

LASTS = -2.0
"""Logit of an end before anything is learned: one in eight."""


class Controller(nn.Module):
    """One trunk with a head for logits, one for values, and one for ends where these are learned.

    Args:
        inputs: sum of the widths of what is seen.
        options: K.
        hidden: widths of the trunk.
        dropout: share of its units that are left out while it learns.
        ends: whether it learns when options end.

    Example:
        >>> controller = Controller(inputs=5, options=6)
        >>> [each.shape[-1] for each in controller(torch.zeros(8, 5))]
        [6, 6]
    """

    def __init__(
        self,
        inputs: int,
        options: int,
        hidden: Sequence[int] = (512,),
        *,
        dropout: float = 0.1,
        ends: bool = False,
    ) -> None:
        super().__init__()
        if options < 1:
            raise ValueError(f"there must be at least 1 option, got {options}")
        layers: list[nn.Module] = []
        for width in hidden:
            layers += [
                nn.Linear(inputs, width),
                nn.LayerNorm(width),
                nn.ReLU(),
                nn.Dropout(dropout),
            ]
            inputs = width
        self.trunk = nn.Sequential(*layers)
        self.count = 3 if ends else 2
        self.heads = nn.Linear(inputs, self.count * options)
        with torch.no_grad():  # at first nothing speaks for or against any of them
            self.heads.weight.mul_(0.01)
            self.heads.bias.zero_()
            self.heads.bias[2 * options :] = LASTS  # plans are there to be carried out

    def forward(self, *seen: Tensor) -> tuple[Tensor, ...]:
        """Logits, values, and logits of ends where they are learned: ``[*, K]`` each."""
        return self.heads(self.trunk(joined(seen))).chunk(self.count, -1)
