"""What an agent is trained on, from settings: trading, problems with known answers, Gymnasium."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from checks import plainly

from tasks.front import Front
from tasks.front_trading import FrontTrading
from tasks.goals import GoalTrading
from tasks.gym import Gym
from tasks.markets import Parts
from tasks.reference import Reference
from tasks.task import Judged, Task, seen_by, together
from tasks.trading import MadeOf, Trading
from trading_torchrl.modules.weights import START

__all__ = ["Front", "FrontTrading", "Judged", "Task", "make_task", "seen_by", "together"]

KINDS = ("weighed", "learned", "pareto")
"""Of several objectives: one reward, side by side with weights that are learned, or shown."""


@plainly(ValueError)
def make_task(
    settings: Mapping[str, Any],
    earlier: Mapping[str, Any] | None = None,
    parts: Parts | None = None,
) -> Task:
    """The task that a recipe's settings describe: ``market``, ``env``, and goals if there are.

    From ``earlier``, the checkpoint of a run whose networks go on in this one, it takes what these
    need to see the same: the scaler. Where ``parts`` of the market are there, they are not made.
    """
    env, window, her = settings["env"], settings["window"], settings.get("her")
    several = settings.get("objectives") or {}
    kind = several.get("kind")
    if several and kind not in KINDS:
        raise ValueError(
            f"objectives.kind is weighed, learned or pareto, got {kind!r}: take objectives=fixed,"
            " regime, learned or pareto"
        )
    if kind in ("weighed", "learned") and ("problem" in env or "gym" in env):
        raise ValueError(
            "only trading has objectives to weigh: objectives=off, or a market (env=long_short);"
            " env=garleanu_pedersen has a front, objectives=pareto"
        )
    accounts, seed = settings["num_envs"], settings["seed"]
    if "problem" in env or "gym" in env:
        if settings.get("options"):
            raise ValueError(
                "options are plans for trading: take a market, env=by_trades; the problem of four"
                " rooms has its own (docs/options.md)"
            )
        if window is not None:
            raise ValueError(f"only trading has windows of bars: window=null, got {window}")
        if "reward" in env:
            raise ValueError(
                f"only trading has rewards to choose: reward=null, got {env['reward']!r}"
            )
        if kind == "pareto":
            return Front(several, env, accounts, seed)
        return (Reference if "problem" in env else Gym)(env, accounts, seed)
    made_of = MadeOf(
        settings["market"], env, accounts, window, seed, earlier["task"] if earlier else {},
        bool(settings.get("options")), parts,
    )  # fmt: skip
    foresees = (settings.get("shaping") or {}).get("potential") == "learned" and not her
    shows = ("objectives",) if kind or foresees else ()
    if kind == "pareto":
        if settings.get("options"):
            raise ValueError(
                "objectives=pareto judges one agent by many preferences, and a controller has none"
                " of them: take objectives=learned, fixed or regime with options"
            )
        if her:
            raise ValueError(
                "objectives=pareto has no goals to reach: her=off, or objectives=learned"
            )
        return FrontTrading(several, made_of)
    adds = bool(her or settings.get("shaping"))  # a goal and shaping are one objective more
    rewards = len(START) + adds if kind == "learned" else 1
    if her:
        return GoalTrading(her["goal"], made_of, shows, rewards)
    return Trading(made_of, shows, rewards)
