"""What an agent is trained on, from settings: trading, problems with known answers, Gymnasium."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from checks import plainly

from tasks.front import Front
from tasks.front_trading import FrontTrading
from tasks.goals import GoalTrading
from tasks.gym import Gym
from tasks.reference import Reference
from tasks.task import Judged, Task, together
from tasks.trading import Trading
from trading_torchrl.modules.weights import START

__all__ = ["Front", "FrontTrading", "Judged", "Task", "make_task", "together"]


@plainly(ValueError)
def make_task(settings: Mapping[str, Any], earlier: Mapping[str, Any] | None = None) -> Task:
    """The task that a recipe's settings describe: ``market``, ``env``, and goals if there are.

    From ``earlier``, the checkpoint of a run whose networks go on in this one, it takes what these
    need to see the same: the scaler.
    """
    env, window, her = settings["env"], settings["window"], settings.get("her")
    several = settings.get("objectives") or {}
    pareto = several if several.get("pareto") else None
    if several and not pareto and ("problem" in env or "gym" in env):
        raise ValueError(
            "only trading has objectives to weigh: objectives=off, or a market (env=long_short);"
            " env=garleanu_pedersen has a front, objectives=pareto"
        )
    accounts, seed = settings["num_envs"], settings["seed"]
    if "problem" in env or "gym" in env:
        if window is not None:
            raise ValueError(f"only trading has windows of bars: window=null, got {window}")
        if "reward" in env:
            raise ValueError(
                f"only trading has rewards to choose: reward=null, got {env['reward']!r}"
            )
        if pareto:
            return Front(env, accounts, seed, least=pareto["least"], points=pareto["points"])
        return (Reference if "problem" in env else Gym)(env, accounts, seed)
    seen = (settings["market"], env, accounts, window, seed, earlier["task"] if earlier else {})
    foresees = (settings.get("shaping") or {}).get("potential") == "learned" and not her
    shows = ("objectives",) if several or foresees else ()
    if pareto:
        if her:
            raise ValueError(
                "objectives=pareto has no goals to reach: her=off, or objectives=learned"
            )
        return FrontTrading(pareto, *seen)
    adds = bool(her or settings.get("shaping"))  # a goal and shaping are one objective more
    rewards = len(START) + adds if several.get("learned") else 1
    if her:
        return GoalTrading(her["goal"], *seen, shows, rewards)
    return Trading(*seen, shows, rewards)
