"""How much of the optimum a policy reaches, on the same noise."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import NamedTuple

import torch
from tensordict import TensorDictBase
from torch import Tensor
from torchrl.envs import EnvBase, TransformedEnv
from torchrl.envs.utils import ExplorationType, set_exploration_type, step_mdp
from tqdm import tqdm

from trading_torchrl.envs.reference.problem import ReferenceProblem

Policy = Callable[[TensorDictBase], TensorDictBase]


class Share(NamedTuple):
    """A policy's score beside the best policy's, on the same episodes."""

    share: float
    """of the best policy's score; NaN where that is not above 0"""
    error: float
    """standard error of the share"""
    score: float
    """mean over the episodes: of the mean reward, or of the discounted return"""
    score_error: float
    best: float
    """the best policy's score on these episodes"""
    best_error: float
    difference_error: float
    """standard error of ``score - best``"""
    episodes: int
    """that errors are over"""


def optimum_share(
    policy: Policy,
    env: EnvBase,
    *,
    episodes: int = 64,
    seed: int = 1_000_000,
    progress: bool = False,
    best: Policy | Tensor | None = None,
) -> Share:
    """A policy's share of the best policy's score, on the same noise.

    The noise of a :class:`ReferenceProblem` does not depend on the actions, so both are scored on
    the same episodes and most of the noise cancels: errors are far smaller than those of two
    separate averages. Policies act deterministically, on a copy of the environment: the one given
    stays as it is, with its transforms. Rewards count as the problem pays them, before any
    transform, and its own ends of episodes, not those a transform sets.

    Args:
        policy: reads what the environment shows, writes ``action``.
        env: a reference problem, or one with transforms.
        episodes: at least this many; whole batches of accounts are run.
        seed: of the episodes, apart from those a training run sees.
        progress: show a bar.
        best: the policy to compare with, which acts where the other one does, or its
            :func:`scores` on these episodes; None is the best policy of the problem itself.
    """
    if not isinstance(best, Tensor):
        best = scores(best, env, episodes=episodes, seed=seed, progress=progress)
    return share_of(scores(policy, env, episodes=episodes, seed=seed, progress=progress), best)


def scores(
    policy: Policy | None,
    env: EnvBase,
    *,
    episodes: int = 64,
    seed: int = 1_000_000,
    progress: bool = False,
) -> Tensor:
    """Score of each episode, as :func:`optimum_share` has it; None is the problem's best policy."""
    env = deepcopy(env)
    base = env.base_env if isinstance(env, TransformedEnv) else env
    if not isinstance(base, ReferenceProblem):
        kind = type(base).__name__
        raise TypeError(f"only of a reference problem is the optimum known, not of {kind}")
    if episodes < 2:
        raise ValueError(f"episodes must be at least 2, got {episodes}")
    if policy is None:
        policy, env = base.best_policy(), base
    rounds = -(-episodes // base.batch_size[0])
    bar = tqdm(total=rounds * base.steps, desc="scores", disable=not progress)
    with bar, torch.no_grad(), set_exploration_type(ExplorationType.DETERMINISTIC):
        return _scores(policy, env, base, rounds, seed, bar)


def share_of(own: Tensor, best: Tensor) -> Share:
    """The share from the scores ``[episodes]`` of both policies on the same episodes."""
    count = len(own)

    def error(values: Tensor) -> float:
        return float(values.std()) / count**0.5

    score, optimum = float(own.mean()), float(best.mean())
    share = score / optimum if optimum > 0 else float("nan")
    return Share(
        share=share,
        # Of a ratio of two means, to first order.
        error=error(own - share * best) / optimum if optimum > 0 else float("nan"),
        score=score,
        score_error=error(own),
        best=optimum,
        best_error=error(best),
        difference_error=error(own - best),
        episodes=count,
    )


def _scores(
    policy: Policy, env: EnvBase, base: ReferenceProblem, rounds: int, seed: int, bar: tqdm[None]
) -> Tensor:
    """Score of each episode: its mean reward, or its discounted return up to its first end."""
    base._set_seed(seed)
    found = []
    for _ in range(rounds):
        tensordict = env.reset()
        alive = torch.ones(base.batch_size, dtype=torch.float64, device=base.device)
        score = torch.zeros_like(alive)
        weight = 1.0
        for _ in range(base.steps):
            stepped = env.step(policy(tensordict))
            bar.update()
            score = score + weight * alive * base.earned
            alive = alive * ~base.ended
            weight *= base.discount
            if not base.continuing and not bool(alive.any()):
                break
            tensordict = step_mdp(stepped)
        found.append(score / base.steps if base.continuing else score)
    return torch.cat(found)
