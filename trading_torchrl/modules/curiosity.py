"""What an agent expects to see next: a forward and an inverse model on learned features."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot

from trading_torchrl.modules.networks import joined

FEATURES = 128


class _Layers(nn.Sequential):
    """A perceptron whose hidden layers are normalised, so that errors fall faster."""

    def __init__(self, inputs: int, hidden: Sequence[int], outputs: int) -> None:
        layers: list[nn.Module] = []
        for width in hidden:
            layers += [nn.Linear(inputs, width), nn.LayerNorm(width), nn.ReLU()]
            inputs = width
        super().__init__(*layers, nn.Linear(inputs, outputs))

    def forward(self, *inputs: Tensor) -> Tensor:
        """Of inputs ``[*, ...]`` side by side; the first has one dimension more than the batch."""
        return super().forward(joined(inputs))


class Surprise(NamedTuple):
    """How wrong both models were, a number a row ``[*]``."""

    forward: Tensor
    """of the next features: half the squared error, a feature on average"""
    inverse: Tensor
    """of the action: half the squared error, an action on average; of choices the cross-entropy"""


class Curiosity(nn.Module):
    """Features of what is seen, a guess of the next ones, and a guess of the action between them.

    Pathak et al., "Curiosity-driven Exploration by Self-supervised Prediction", 2017,
    https://arxiv.org/abs/1705.05363

    The inverse model makes the features those of what actions have to do with; the forward model
    guesses how they change, and its error is the surprise. Features are normalised, each row by
    itself, so that they can neither vanish nor grow, and errors mean the same all along.

    Args:
        inputs: sum of the widths of what is seen.
        actions: width of the action; of choices, how many there are.
        choices: whether an action is one of so many, int64, instead of numbers.
        features: width of the features.
        encoder: widths of the hidden layers of the network that makes features. It sees twice as
            many rows as the others, so that its width costs most.
        change: likewise of the forward model, on which it depends how small its errors become.
        between: likewise of the inverse model.
        body: what is seen passes through it first, for instance the trunk of an agent. It is used
            as it is: it learns nothing from here, and is no part of this module.

    Example:
        >>> curiosity = Curiosity(inputs=5, actions=1)
        >>> now, following = [torch.zeros(8, 5)], [torch.ones(8, 5)]
        >>> curiosity(now, torch.zeros(8, 1), following).forward.shape
        torch.Size([8])
    """

    def __init__(
        self,
        inputs: int,
        actions: int,
        *,
        choices: bool = False,
        features: int = FEATURES,
        encoder: Sequence[int] = (64,),
        change: Sequence[int] = (144,),
        between: Sequence[int] = (64,),
        body: Callable[..., Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.choices = actions if choices else None
        self._body = (body,)  # not a part of this module: in a tuple it is not registered
        self.encoder = _Layers(inputs, encoder, features)
        self.normalise = nn.LayerNorm(features, elementwise_affine=False)
        self.change = _Layers(features + actions, change, features)
        for each in self.change[-1].parameters():  # it begins by expecting that nothing changes
            nn.init.zeros_(each)
        self.between = _Layers(2 * features, between, actions)

    def features(self, seen: Sequence[Tensor]) -> Tensor:
        """Of what is seen, ``[*, features]``."""
        (body,) = self._body
        if body is None:
            return self.normalise(self.encoder(*seen))
        with torch.no_grad():
            inner = body(*seen)
        return self.normalise(self.encoder(inner.detach()))

    def forward(
        self, seen: Sequence[Tensor], action: Tensor, following: Sequence[Tensor]
    ) -> Surprise:
        """How wrong it is about steps from ``seen`` to ``following`` by ``action``."""
        now, then = self._both(seen, following)
        ahead, inverse = self._ahead(now, action), self.between(now, then)
        if self.choices is None:
            wrong = 0.5 * (inverse - action).square().mean(-1)
        else:
            flat = cross_entropy(inverse.flatten(0, -2), action.flatten(), reduction="none")
            wrong = flat.view(action.shape)
        return Surprise(0.5 * (ahead - then.detach()).square().mean(-1), wrong)

    @torch.no_grad()
    def surprise(
        self, seen: Sequence[Tensor], action: Tensor, following: Sequence[Tensor]
    ) -> Tensor:
        """The forward error ``[*]`` alone, without a gradient."""
        now, then = self._both(seen, following)
        return 0.5 * (self._ahead(now, action) - then).square().mean(-1)

    def _both(self, seen: Sequence[Tensor], following: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Features now and then, in one pass."""
        pairs = zip(seen, following, strict=True)
        return self.features([torch.stack(pair) for pair in pairs]).unbind(0)

    def _ahead(self, now: Tensor, action: Tensor) -> Tensor:
        done = action if self.choices is None else one_hot(action, self.choices).to(now.dtype)
        return now + self.change(now, done)
