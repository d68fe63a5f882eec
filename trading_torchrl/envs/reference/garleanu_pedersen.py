"""Trading a decaying signal under quadratic costs (Garleanu & Pedersen 2013)."""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import torch
from tensordict.nn import TensorDictModule
from torch import Tensor
from torchrl.data import Composite, Unbounded

from trading_torchrl.envs.reference.problem import Fields, ReferenceProblem, above
from trading_torchrl.envs.settings import one_of, within

PARTS = ("gross", "trading")
"""Of the reward; the second counts ``cost`` times."""


class Rule(NamedTuple):
    """A linear rule: next position = ``keep`` x position + ``follow`` x signal."""

    keep: float
    follow: float


class GarleanuPedersen(ReferenceProblem):
    """Reward ``p x - risk x^2 - cost (x - x_prev)^2`` for the position x on a signal p.

    The signal is AR(1) with unit variance, ``p' = (1 - decay) p + noise``. The best rule trades
    partially towards an aim in front of the target: with G = 2 risk, C = 2 cost and
    a = (sqrt(G^2 + 4 G C) - G) / 2 it is ``x = (1 - a/C) x_prev + (a/C) p / (G + decay a)``.
    Costs and decay at once are what an agent has to learn: seeing only the next step earns 93.1 %
    of the optimum at the default settings, seeing no costs 43.3 %.

    The rule is the best one in the long run; where an episode is much longer than the signal lasts
    the best of its last steps hardly differs.
    Observation: signal, position. Paper: Dynamic Trading with Predictable Returns and Transaction
    Costs, Journal of Finance 68(6).

    Args:
        num_envs: number of accounts.
        risk: of a position, lambda.
        cost: of a trade, phi.
        decay: theta of the signal, in (0, 1].
        reward_noise: deviation of noise that the reward takes the signal with: (p + noise) x in
            place of p x, which changes neither what is seen nor the best rule.
        action: ``target`` sets the position to ``limit`` x action, ``trade`` changes it by that.
        limit: scale of the action; ``None`` is five deviations of what the best rule does, so
            that its clipping costs nothing one could measure. Less than four are refused.
        parts: whether ``("objectives", "gross")``, ``p x - risk x^2``, and ``("objectives",
            "trading")``, ``-(x - x_prev)^2``, are shown as well, ``[N, 1]`` each.
        steps: length of an episode.
        seed: of all noise.
        first_account: number of the first account.
        device: where it runs.

    Example:
        >>> from trading_torchrl.envs.reference import GarleanuPedersen, optimum_share
        >>> env = GarleanuPedersen(num_envs=64)
        >>> round(env.rate(env.best_rule), 4)
        0.642
        >>> round(optimum_share(env.policy_of(env.myopic_rule), env).share, 2)
        0.93
    """

    def __init__(
        self,
        num_envs: int = 1,
        *,
        risk: float = 0.3,
        cost: float = 1.0,
        decay: float = 0.1,
        reward_noise: float = 0.0,
        action: Literal["target", "trade"] = "target",
        limit: float | None = None,
        parts: bool = False,
        steps: int = 200,
        seed: int = 0,
        first_account: int = 0,
        device: torch.device | str = "cpu",
    ) -> None:
        above("risk", risk, 0)
        above("cost", cost, 0)
        above("decay", decay, 0)
        within("decay", decay, 0, 1, "share of the signal lost in a step")
        within("reward_noise", reward_noise, 0, math.inf, "deviation")
        one_of("action", action, ("target", "trade"))
        super().__init__(
            num_envs,
            observed=2,
            choices=None,
            steps=steps,
            seed=seed,
            first_account=first_account,
            device=device,
        )
        self.risk, self.cost, self.decay = risk, cost, decay
        self.reward_noise, self.action_is = reward_noise, action
        position, trade = self._deviations(self.best_rule)
        usual = position if action == "target" else trade
        limit = 5 * usual if limit is None else limit
        if not 4 * usual <= limit < math.inf:
            raise ValueError(
                f"limit must be at least {4 * usual:.3g}, four deviations of what the best rule"
                f" does, or clipping costs it; got {limit!r}"
            )
        self.limit = limit
        self.parts = parts
        if parts:
            one = Unbounded((num_envs, 1), dtype=torch.float32, device=self.device)
            names = Composite({name: one.clone() for name in PARTS}, shape=(num_envs,))
            self.observation_spec["objectives"] = names

    @property
    def best_rule(self) -> Rule:
        """Partly towards the aim."""
        return self.best_rule_at(self.cost)

    def best_rule_at(self, cost: float) -> Rule:
        """The best rule if trades cost this."""
        g, c = 2 * self.risk, 2 * cost
        a = 2 * g * c / (math.sqrt(g * g + 4 * g * c) + g)
        return Rule(1 - a / c, a / c / (g + self.decay * a))

    @property
    def myopic_rule(self) -> Rule:
        """Best for the next step alone."""
        both = self.risk + self.cost
        return Rule(self.cost / both, 1 / (2 * both))

    @property
    def cost_blind_rule(self) -> Rule:
        """Best if trades were free."""
        return Rule(0.0, 1 / (2 * self.risk))

    def policy_of(self, rule: Rule) -> TensorDictModule:
        """A linear rule as a policy."""
        return TensorDictModule(
            lambda observation: self._action_of(rule, observation),
            in_keys=["observation"],
            out_keys=["action"],
        )

    def best_action(self, observation: Tensor) -> Tensor:
        """The best rule's action ``[*, 1]``."""
        return self._action_of(self.best_rule, observation)

    def _action_of(self, rule: Rule, observation: Tensor) -> Tensor:
        signal, position = observation[..., :1], observation[..., 1:]
        wanted = rule.keep * position + rule.follow * signal
        if self.action_is == "trade":
            wanted = wanted - position
        return (wanted / self.limit).clamp(-1, 1)

    @property
    def value(self) -> float:
        """Mean reward of the best rule over an episode that starts flat."""
        return self.mean_reward(self.best_rule)

    def mean_reward(self, rule: Rule) -> float:
        """Exact mean reward of a linear rule over an episode, from its second moments."""
        earned, crossed, squared = 0.0, 0.0, 0.0
        for _ in range(self.steps):
            reward, crossed, squared = self._moments(rule, crossed, squared)
            earned += reward
        return earned / self.steps

    def rate(self, rule: Rule) -> float:
        """Exact mean reward of a linear rule in the long run."""
        return self._moments(rule, *self._stationary(rule))[0]

    def _moments(self, rule: Rule, crossed: float, squared: float) -> tuple[float, float, float]:
        """A step of E[signal x position] and E[position^2]: (mean reward, both afterwards)."""
        keep, follow = rule
        with_signal = keep * crossed + follow
        square = keep**2 * squared + 2 * keep * follow * crossed + follow**2
        trade = (keep - 1) ** 2 * squared + 2 * (keep - 1) * follow * crossed + follow**2
        reward = with_signal - self.risk * square - self.cost * trade
        return reward, (1 - self.decay) * with_signal, square

    def _stationary(self, rule: Rule) -> tuple[float, float]:
        """Both moments where a step no longer changes them."""
        keep, follow = rule
        ahead = 1 - self.decay
        crossed = ahead * follow / (1 - ahead * keep)
        squared = (2 * keep * follow * crossed + follow**2) / (1 - keep**2)
        return crossed, squared

    def _deviations(self, rule: Rule) -> tuple[float, float]:
        """Of the position and of a trade, in the long run."""
        keep, follow = rule
        crossed, squared = self._stationary(rule)
        trade = (keep - 1) ** 2 * squared + 2 * (keep - 1) * follow * crossed + follow**2
        return math.sqrt(squared), math.sqrt(trade)

    def start(self) -> Fields:
        """Flat, the signal drawn from its long run."""
        signal = self.normal()
        nothing = torch.zeros_like(signal)
        parts = dict.fromkeys(PARTS, nothing) if self.parts else {}
        return {"signal": signal, "position": nothing, **parts}

    def observe(self, fields: Fields) -> Tensor:
        """Signal and position."""
        return torch.stack([fields["signal"], fields["position"]], -1)

    def shown(self, fields: Fields) -> dict[str, Any]:
        """And the parts of the reward, where these are asked for."""
        more = {name: fields[name].float()[:, None] for name in PARTS} if self.parts else {}
        return {**super().shown(fields), **({"objectives": more} if more else {})}

    def advance(self, fields: Fields, action: Tensor) -> tuple[Fields, Tensor, Tensor]:
        """Trades on the signal that was seen, then the signal moves on."""
        signal, before = fields["signal"], fields["position"]
        position = self.limit * action
        if self.action_is == "trade":
            position = before + position
        trade = position - before
        earns = signal + self.reward_noise * self.normal(1) if self.reward_noise else signal
        gross = earns * position - self.risk * position**2
        reward = gross - self.cost * trade**2
        parts = {"gross": gross, "trading": -(trade**2)} if self.parts else {}
        keep = 1 - self.decay
        moved = keep * signal + math.sqrt(1 - keep**2) * self.normal()
        ended = torch.zeros_like(signal, dtype=torch.bool)
        return {"signal": moved, "position": position, **parts}, reward, ended
