"""Macro steps: one action is one option, carried out until it ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tensordict import TensorDictBase
from torch import Tensor
from torchrl.data import Binary, Categorical, Composite, TensorSpec, Unbounded
from torchrl.envs import EnvBase, Transform, TransformedEnv

from trading_torchrl.checks import check_share
from trading_torchrl.envs.accounts import Rules
from trading_torchrl.envs.trading import TradingEnv
from trading_torchrl.modules.options import (
    EQUITY,
    SHARE,
    UNREALISED,
    Option,
    acted,
    allowed,
    check_options,
    draw,
    ends,
    over,
    scene_of,
)

MASK, DURATION = "action_mask", ("option", "duration")


class MacroSteps(Transform):
    """Carries the chosen option out before it shows anything again; see :class:`MacroEnv`."""

    def __init__(self, options: Sequence[Option], *, cap: float, gamma: float) -> None:
        super().__init__()
        check_share("gamma", gamma)
        self.options, self.cap, self.gamma = list(options), cap, gamma

    def _inv_call(self, tensordict: TensorDictBase) -> TensorDictBase:
        """The option's first action in place of its index."""
        self._index = index = tensordict.get("action")
        may = tensordict.get(MASK).gather(-1, index.unsqueeze(-1))[..., 0]
        if not bool(may.all()):
            account = int((~may).nonzero()[0, 0])
            raise ValueError(
                f"account {account} is to carry out {self.options[int(index[account])].name}, which"
                " may not start there: choose among what action_mask allows"
            )
        steps = torch.zeros_like(index)
        return tensordict.set("action", self._act(tensordict, steps, steps.bool()))

    def _step(self, tensordict: TensorDictBase, next_tensordict: TensorDictBase) -> TensorDictBase:
        """The bars after the first; accounts whose option is over wait for the others."""
        parent, seen = self.parent, next_tensordict
        assert parent is not None
        stepping = tensordict.get("_step", None)
        runs = torch.ones_like(self._index, dtype=torch.bool)
        runs = runs if stepping is None else stepping.reshape(runs.shape)
        bars = runs.long()
        entered = tensordict.get(SHARE)[..., 0] != 0
        lasted = torch.ones(bars.shape, device=bars.device)
        earned = next_tensordict.get("reward")
        while True:
            entered = entered | (seen.get(SHARE)[..., 0] != 0)
            scene = scene_of(seen, self.cap, bars, entered)
            likely = ends(self.options, scene, self._index).timed
            ended, lasted = over(likely, lasted, draw(likely))
            runs = runs & ~ended & ~seen.get("done")[..., 0]
            if not bool(runs.any()):
                break
            now = seen.exclude("reward").set("action", self._act(seen, bars, entered))
            then = parent.step(now.set("_step", runs)).get("next")
            gained = then.get("reward") * (self.gamma ** bars.to(earned.dtype)).unsqueeze(-1)
            earned = earned + torch.where(runs.unsqueeze(-1), gained, 0.0)
            bars = bars + runs
            # Transforms below change anew what accounts show that wait.
            seen = torch.where(runs, then, seen.select(*then.keys(True, True)))
        seen = self._call(seen.set("reward", earned))
        if stepping is not None:
            bars = torch.where(bars > 0, bars, tensordict.get(DURATION)[..., 0])
        return seen.set(DURATION, bars.unsqueeze(-1))

    def _act(self, seen: TensorDictBase, steps: Tensor, entered: Tensor) -> Tensor:
        scene = scene_of(seen, self.cap, steps, entered)
        return acted(self.options, scene, self._index).float().unsqueeze(-1)

    def _call(self, next_tensordict: TensorDictBase) -> TensorDictBase:
        nothing = torch.zeros(next_tensordict.shape, device=next_tensordict.device)
        scene = scene_of(next_tensordict, self.cap, nothing.long(), nothing.bool())
        return next_tensordict.set(MASK, allowed(self.options, scene))

    def _reset(
        self, tensordict: TensorDictBase | None, tensordict_reset: TensorDictBase
    ) -> TensorDictBase:
        none = torch.zeros(*tensordict_reset.shape, 1, dtype=torch.int64)
        none = none.to(tensordict_reset.device)
        return self._call(tensordict_reset).set(DURATION, none)

    def transform_input_spec(self, input_spec: TensorSpec) -> TensorSpec:
        """Options instead of actions."""
        shape, device = input_spec.shape, input_spec.device
        input_spec["full_action_spec", "action"] = Categorical(
            len(self.options), shape, device=device, dtype=torch.int64
        )
        return input_spec

    def transform_observation_spec(self, observation_spec: TensorSpec) -> TensorSpec:
        """Adds what may start, and for how long the last option ran."""
        assert isinstance(observation_spec, Composite)
        shape, device = observation_spec.shape, observation_spec.device
        count = len(self.options)
        observation_spec[MASK] = Binary(count, (*shape, count), device=device, dtype=torch.bool)
        observation_spec[DURATION] = Unbounded((*shape, 1), device=device, dtype=torch.int64)
        return observation_spec


class MacroEnv(TransformedEnv):
    """An environment in which one action is one option, carried out by its rule until it ends.

    So that any agent that chooses among a few actions can choose among options. ``action`` is int64
    ``[N]``, ``action_mask`` bool ``[N, K]`` says which may start, ``reward`` is the sum of an
    option's rewards, discounted to its choice, and ``("option", "duration")`` its bars. What the
    environment shows of a single bar is that of the last. Accounts take options of different
    lengths: those that are through wait for the longest. Ends are drawn while exploring; else an
    option lasts as long as it usually does.

    Transforms that count or average steps, such as VecNorm, go on top of it: below they see waiting
    accounts too.

    Args:
        env: a :class:`~trading_torchrl.envs.TradingEnv` of continuous actions with ``smoothing=1``
            and one asset, that emits ``index``, ``share``, ``equity`` and ``unrealised``; with
            :class:`~trading_torchrl.envs.Signals`.
        options: K of them.
        gamma: discount of one bar.

    Example:
        >>> from trading_torchrl.data import synthetic_market
        >>> from trading_torchrl.envs import Signals, TradingEnv
        >>> from trading_torchrl.modules import trading_options
        >>> from trading_torchrl.modules.options import SHARES
        >>> env = TradingEnv(
        ...     synthetic_market(2, 2_000), 4, short=True, smoothing=1, max_position=1.0,
        ...     emit=["index", "share", "equity", "unrealised"], compiled=False,
        ... )
        >>> env = TransformedEnv(env, Signals.of(env))
        >>> env = MacroEnv(env, trading_options(SHARES), gamma=0.99)
        >>> bool((env.rollout(3)["next", "option", "duration"] >= 3).all())
        True
    """

    def __init__(self, env: EnvBase, options: Sequence[Option], *, gamma: float) -> None:
        check_options(options)
        rules = _rules_of(env)
        lacking = [key for key in (SHARE, EQUITY, UNREALISED) if key not in _shown(env)]
        if lacking:
            raise ValueError(
                f"options read {lacking[0]}, which this environment does not show; build it with"
                f" emit=[..., {lacking[0][-1]!r}]"
            )
        if "signals" not in env.observation_spec:
            raise ValueError(
                "options read signals: TransformedEnv(env, Signals.of(env)) shows them"
            )
        super().__init__(env, MacroSteps(options, cap=rules.cap, gamma=gamma))

    def rand_action(self, tensordict: TensorDictBase | None = None) -> Any:
        """One of the options that may start."""
        if tensordict is None or MASK not in tensordict:
            found = self.full_action_spec.zero() if tensordict is None else tensordict
            return found.update(self.full_action_spec.rand())
        likely = tensordict.get(MASK).float()
        return tensordict.set("action", torch.multinomial(likely, 1)[..., 0])


def _rules_of(env: EnvBase) -> Rules:
    """Of the trading environment at the bottom, if options can be carried out in it."""
    base = env
    while isinstance(base, TransformedEnv):
        base = base.base_env
    if not isinstance(base, TradingEnv):
        raise ValueError(f"options are carried out in a TradingEnv, got {type(base).__name__}")
    for name, wanted in (("actions", "continuous"), ("smoothing", 1), ("assets", 1)):
        if getattr(base.rules, name) != wanted:
            raise ValueError(
                f"options are carried out with {name}={wanted!r}, got {getattr(base.rules, name)!r}"
            )
    return base.rules


def _shown(env: EnvBase) -> list[Any]:
    return list(env.observation_spec.keys(True, True))
