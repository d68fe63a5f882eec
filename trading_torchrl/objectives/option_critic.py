"""The option-critic: values of options at each bar, and when they should have ended."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from tensordict import TensorDictBase, unravel_key
from tensordict.nn import ProbabilisticTensorDictSequential, TensorDictModule, dispatch
from tensordict.utils import NestedKey
from torch import Tensor

from trading_torchrl.envs.running_option import ALLOWED, INDEX
from trading_torchrl.modules.option_policy import END_LOGITS
from trading_torchrl.objectives.actor_critic import kept_by, without_masked
from trading_torchrl.objectives.options import OptionsLoss
from trading_torchrl.objectives.returns import explained
from trading_torchrl.replay.option_steps import ENDS


class OptionCriticLoss(OptionsLoss):
    """Learns from every bar of an option; :class:`~trading_torchrl.replay.OptionSteps` makes rows.

    Bacon, Harb & Precup, "The option-critic architecture", 2017. What comes after a bar is the
    value of the option that runs where it goes on, and that of a choice where it ends:

    .. math:: U(s', o) = (1 - \\beta_o(s')) Q(s', o) + \\beta_o(s') \\sum_k \\pi(k | s') Q(s', k)

    An option's value learns towards ``reward + gamma U``. The controller prefers what is worth more
    than the average choice, at every bar, with an entropy bonus. Where it learns when options end
    (``("option", "end_logits")``), an end becomes likelier where a choice is worth more than going
    on, by ``margin`` at least. Where what options do is learned too, they follow the TD error.

    With one option that never ends it is a plain actor-critic. Call :meth:`update_targets` after
    each step.

    Args:
        controller_network: reads what it sees, writes ``("option", "logits")`` and ``("option",
            "values")``, ``[*, K]``, and ``("option", "end_logits")`` where ends are learned.
        actor_network: what options do, where that is not given by rules: a policy of what is seen
            and of ``("option", "index")``; rows need its ``action``.

    Keyword Args:
        gamma: discount of one bar, in [0, 1].
        margin: by how much a choice must be worth more for an option to end, in deviations of such
            differences over the batch if they are normalised; above 0 options last longer.
        temperature: by which logits are divided, see :class:`OptionsLoss`; None for 1.
        entropy: of the bonus for choices that are alike.
        value: of the values' loss.
        normalise: whether differences of values are brought to deviation 1.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``, over the batch.
    """

    @dataclass
    class _AcceptedKeys(OptionsLoss._AcceptedKeys):
        """Keys that :meth:`set_keys` can change."""

        action: NestedKey = "action"

    default_keys = _AcceptedKeys
    tensor_keys: _AcceptedKeys
    actor_network: TensorDictModule | None

    def __init__(
        self,
        controller_network: TensorDictModule,
        actor_network: ProbabilisticTensorDictSequential | None = None,
        *,
        gamma: float,
        margin: float = 0.01,
        temperature: Callable[[], Tensor] | None = None,
        entropy: float = 0.01,
        value: float = 1.0,
        normalise: bool = True,
        reduction: str = "mean",
    ) -> None:
        super().__init__(
            controller_network, gamma=gamma, temperature=temperature, entropy=entropy, value=value,
            normalise=normalise, reduction=reduction,
        )  # fmt: skip
        if not math.isfinite(margin):
            raise ValueError(f"margin must be a number, got {margin}")
        self.actor_network, self.margin = actor_network, margin
        self.learns_ends = END_LOGITS in controller_network.out_keys

    @property
    def out_keys(self) -> list[str]:
        """Losses, and what shows beside."""
        ends = ["loss_ends", "ends"] if self.learns_ends else []
        actor = ["loss_actor"] if self.actor_network is not None else []
        shown = ["entropy", "advantage", "value", "td_error", "explained"]
        return ["loss_policy", "loss_value", "loss_entropy", *ends, *actor, *shown]

    @out_keys.setter
    def out_keys(self, keys: list[str]) -> None:
        raise AttributeError("out_keys follow from what is learned")

    @property
    def in_keys(self) -> list[NestedKey]:
        """What :meth:`forward` reads."""
        keys, seen = self.tensor_keys, list(self.controller_network.in_keys)
        after: Sequence[NestedKey] = (keys.reward, keys.terminated, ENDS, ALLOWED, *seen)
        acts: list[NestedKey] = []
        if self.actor_network is not None:
            acts = [*self.actor_network.in_keys, keys.action]
        root = dict.fromkeys([*seen, INDEX, ALLOWED, *acts])
        return [*root, *(unravel_key(("next", key)) for key in after)]

    @in_keys.setter
    def in_keys(self, keys: list[NestedKey]) -> None:
        raise AttributeError("in_keys follow from what the networks see; use set_keys")

    @dispatch(auto_batch_size=False)
    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """The losses; and detached what :class:`OptionsLoss` shows, and how likely options end."""
        tensordict, masked = without_masked(self, tensordict, self.in_keys)
        after, index = tensordict.get("next"), tensordict.get(INDEX)
        log_probs, values = self._read(self.controller_network, tensordict)
        probs, worth = log_probs.exp(), values.gather(-1, index)[..., 0]
        entropy = -(probs * log_probs).sum(-1)
        kept = kept_by(self, tensordict, worth)
        rows = slice(None) if kept is None else kept

        terminated = after.get(self.tensor_keys.terminated)[..., 0]
        with torch.no_grad():
            there, slow = self._read(self.target_controller_network, after)
            average, goes_on = (there.exp() * slow).sum(-1), slow.gather(-1, index)[..., 0]
            over = self._ends(self.target_controller_network, after, index)
            ahead = (1 - over) * goes_on + over * average
            target = self._rewards(after) + self.gamma * ahead.masked_fill(terminated, 0.0)
            better = values - (probs * values).sum(-1, keepdim=True)
            size = (probs * better.square()).sum(-1)
            better = better / self._deviation(size[rows])
        misfit = worth - target
        named = {
            "loss_policy": -(probs * better).sum(-1),
            "loss_value": self.value * 0.5 * misfit.square(),
            "loss_entropy": -self.entropy * entropy,
            "entropy": entropy.detach(),
            "advantage": size.sqrt(),
            "value": worth.detach(),
            "td_error": misfit.detach().abs(),
        }
        if self.learns_ends:
            stays = goes_on - average
            stays = stays / self._deviation(stays[rows].square()) + self.margin
            likely = self._ends(self.controller_network, after, index)
            named["loss_ends"] = likely * stays.masked_fill(terminated, 0.0)
            named["ends"] = likely.detach()
        if self.actor_network is not None:
            policy = self.actor_network.get_dist(tensordict.select(*self.actor_network.in_keys))
            done = policy.log_prob(tensordict.get(self.tensor_keys.action))
            named["loss_actor"] = -done.reshape(misfit.shape) * -misfit.detach()
        if not misfit.numel():  # there is nothing to learn from
            return self._nothing(named)
        return self._reduced(named, masked, explained(misfit[rows], target[rows]))

    def _ends(self, network: TensorDictModule, after: TensorDictBase, index: Tensor) -> Tensor:
        """How likely the option ends where it got to, ``[*]``."""
        least, most = after.get(ENDS).unbind(-1)
        if not self.learns_ends:
            return least
        logits = self._said(network, after).get(END_LOGITS)
        return logits.gather(-1, index)[..., 0].sigmoid().clamp(least, most)

    def _deviation(self, squares: Tensor) -> Tensor | float:
        """Of differences whose mean is 0."""
        if not self.normalise or not squares.numel():
            return 1.0
        return squares.mean().sqrt().clamp(min=1e-8)
