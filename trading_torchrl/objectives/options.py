"""The controller's loss: which options were worth taking, by what they earned while they lasted."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass

import torch
from tensordict import TensorDict, TensorDictBase, unravel_key
from tensordict.nn import TensorDictModule, dispatch
from tensordict.utils import NestedKey
from torch import Tensor
from torchrl.objectives import LossModule

from trading_torchrl.checks import check_reduction, check_share
from trading_torchrl.envs.running_option import ALLOWED, INDEX
from trading_torchrl.modules.averages import follow_slowly
from trading_torchrl.modules.discrete import NEVER
from trading_torchrl.modules.option_policy import LOGITS, VALUES
from trading_torchrl.objectives.actor_critic import kept_by, without_masked
from trading_torchrl.objectives.returns import explained
from trading_torchrl.replay.segments import DURATION


def semi_markov_target(
    earned: Tensor, duration: Tensor, ahead: Tensor, terminated: Tensor, gamma: float
) -> Tensor:
    """What an option was worth: what it earned, and what is to come, discounted by its length.

    Example:
        >>> one, two = torch.tensor([1.0]), torch.tensor([2])
        >>> semi_markov_target(one, two, one, torch.tensor([False]), gamma=0.5)
        tensor([1.2500])
    """
    return earned + gamma ** duration.to(earned.dtype) * ahead.masked_fill(terminated, 0.0)


class OptionsLoss(LossModule):
    """Actor-critic over options, on the rows of :class:`~trading_torchrl.replay.Segments`.

    Sutton, Precup & Singh, "Between MDPs and semi-MDPs", 1999. The target of an option's value is
    what it earned until its end and, discounted by its bars, what a choice is worth there on
    average, also where a truncated episode cut it short. The controller follows the advantage over
    the average choice, normalised over the batch, with an entropy bonus. Call
    :meth:`update_targets` after each step.

    Args:
        controller_network: reads what it sees, writes ``("option", "logits")`` and ``("option",
            "values")``, ``[*, K]``.

    Keyword Args:
        gamma: discount of one bar, in [0, 1].
        temperature: by which logits are divided, as it is by then: ``lambda: policy.temperature``
            of an :class:`~trading_torchrl.modules.OptionPolicy`; None for 1.
        entropy: of the bonus for choices that are alike.
        value: of the values' loss.
        normalise: whether advantages are brought to mean 0 and deviation 1.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``, over the batch.
    """

    @dataclass
    class _AcceptedKeys:
        """Keys that :meth:`set_keys` can change."""

        reward: NestedKey = "reward"
        terminated: NestedKey = "terminated"

    default_keys = _AcceptedKeys
    tensor_keys: _AcceptedKeys
    out_keys = [  # noqa: RUF012
        "loss_policy", "loss_value", "loss_entropy", "entropy", "advantage", "value", "td_error",
        "explained",
    ]  # fmt: skip

    controller_network: TensorDictModule
    target_controller_network: TensorDictModule

    def __init__(
        self,
        controller_network: TensorDictModule,
        *,
        gamma: float,
        temperature: Callable[[], Tensor] | None = None,
        entropy: float = 0.01,
        value: float = 1.0,
        normalise: bool = True,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        check_share("gamma", gamma)
        check_reduction(reduction)
        for name, part in (("entropy", entropy), ("value", value)):
            if not 0 <= part < math.inf:
                raise ValueError(f"{name} must not be negative, got {part}")
        self.controller_network = controller_network.eval()
        self.target_controller_network = deepcopy(controller_network).requires_grad_(False).eval()
        self._temperature = temperature or (lambda: torch.tensor(1.0))
        self.gamma, self.entropy, self.value = gamma, entropy, value
        self.normalise, self.reduction = normalise, reduction

    def _forward_value_estimator_keys(self, **kwargs: NestedKey) -> None:
        """There is no value estimator: the target is one option."""

    @property
    def in_keys(self) -> list[NestedKey]:
        """What :meth:`forward` reads."""
        keys, seen = self.tensor_keys, self.controller_network.in_keys
        after: Sequence[NestedKey] = (
            keys.reward, keys.terminated, DURATION, ALLOWED, *seen
        )  # fmt: skip
        return [*seen, INDEX, ALLOWED, *(unravel_key(("next", key)) for key in after)]

    @in_keys.setter
    def in_keys(self, keys: list[NestedKey]) -> None:
        raise AttributeError("in_keys follow from what the controller sees; use set_keys")

    def train(self, mode: bool = True) -> OptionsLoss:
        """The slow copy leaves nothing out, and the controller only while it is read to learn."""
        super().train(mode)
        self.controller_network.eval()
        self.target_controller_network.eval()
        return self

    def update_targets(self, rate: float) -> None:
        """Moves the slow copy by ``rate`` of the way to the controller."""
        follow_slowly(self.target_controller_network, self.controller_network, rate)

    # Without a batch size: guessed from tensors of width 1 it would be one dimension too long.
    @dispatch(auto_batch_size=False)
    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Three losses; and detached: entropy, size of the advantages, value, TD error; and, one
        number, what share of the targets' variance the values explain.
        """
        tensordict, masked = without_masked(self, tensordict, self.in_keys)
        index = tensordict.get(INDEX)
        log_probs, values = self._read(self.controller_network, tensordict)
        taken = log_probs.gather(-1, index)[..., 0]
        worth = values.gather(-1, index)[..., 0]
        probs = log_probs.exp()
        entropy = -(probs * log_probs).sum(-1)
        with torch.no_grad():
            target = self._target(tensordict)
            advantage = target - (probs * values).sum(-1)
            kept = kept_by(self, tensordict, advantage)
            rows = slice(None) if kept is None else kept
            weight = self._normalised(advantage, rows)
        misfit = worth - target
        named = {
            "loss_policy": -taken * weight,
            "loss_value": self.value * 0.5 * misfit.square(),
            "loss_entropy": -self.entropy * entropy,
            "entropy": entropy.detach(),
            "advantage": advantage.abs(),
            "value": worth.detach(),
            "td_error": misfit.detach().abs(),
        }
        if not advantage.numel():  # no option has ended: there is nothing to learn
            return self._nothing(named)
        return self._reduced(named, masked, explained(misfit[rows], target[rows]))

    def _nothing(self, named: dict[str, Tensor]) -> TensorDict:
        """What an empty batch says."""
        none = {name: each.sum() for name, each in named.items()}
        return TensorDict({**none, "explained": torch.zeros(())})

    def _reduced(
        self, named: dict[str, Tensor], masked: TensorDictBase | None, share: Tensor
    ) -> TensorDict:
        """One number each, or one a row."""
        reduced = {name: self._reduce_loss(each, masked) for name, each in named.items()}
        return TensorDict._new_unsafe({**reduced, "explained": share}, batch_size=torch.Size([]))

    def _said(self, network: TensorDictModule, seen: TensorDictBase) -> TensorDictBase:
        """All that a controller writes, of what it learns by with units left out."""
        learns = self.training and network is self.controller_network
        network.train(learns)
        found = network(seen.select(*network.in_keys))
        network.eval()
        return found

    def _read(self, network: TensorDictModule, seen: TensorDictBase) -> tuple[Tensor, Tensor]:
        """Log probabilities of what may be chosen, and values: ``[*, K]`` each."""
        found = self._said(network, seen)
        logits = found.get(LOGITS) / self._temperature()
        masked = logits.masked_fill(~seen.get(ALLOWED), NEVER)
        return masked.log_softmax(-1), found.get(VALUES)

    def _target(self, tensordict: TensorDictBase) -> Tensor:
        """Of the option taken, ``[*]``."""
        after = tensordict.get("next")
        log_probs, values = self._read(self.target_controller_network, after)
        ahead = (log_probs.exp() * values).sum(-1)
        over, bars = (after.get(key)[..., 0] for key in (self.tensor_keys.terminated, DURATION))
        return semi_markov_target(self._rewards(after), bars, ahead, over, self.gamma)

    def _rewards(self, after: TensorDictBase) -> Tensor:
        """Of one kind, ``[*]``."""
        reward = after.get(self.tensor_keys.reward)
        if reward.shape[-1] != 1:
            raise ValueError(
                f"a controller learns from one reward, [*, 1], got {list(reward.shape)}: weigh"
                " several objectives before"
            )
        return reward[..., 0]

    def _normalised(self, advantage: Tensor, rows: Tensor | slice) -> Tensor:
        if not self.normalise or not advantage.numel():
            return advantage
        counted = advantage[rows]
        deviation = counted.std(correction=0).clamp(min=1e-8)
        return (advantage - counted.mean()) / deviation
