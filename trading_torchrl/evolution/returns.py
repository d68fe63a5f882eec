"""What each member of a population earns."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from tensordict import TensorDictBase
from torch import Tensor
from torchrl.envs import EnvBase
from torchrl.envs.utils import ExplorationType, set_exploration_type


class Earned(NamedTuple):
    """By a population."""

    returns: Tensor
    """of each member in each of its episodes, float64 ``[P, E]``"""
    frames: int
    """steps of accounts until their episodes ended"""


@torch.no_grad()
def earned(
    policy: Callable[[TensorDictBase], TensorDictBase],
    env: EnvBase,
    members: int,
    *,
    seed: int,
    explores: bool = False,
) -> Earned:
    """One episode of every account from a reset on, up to its first end, rewards summed.

    Args:
        policy: acts for all accounts, those of a member next to each other.
        env: of ``[P x E]`` accounts; where copies of an account draw alike, all members are told
            apart on the same episodes.
        members: P.
        seed: of the episodes, and of actions that are drawn.
        explores: whether actions are drawn, else the policy is deterministic.
    """
    accounts = env.batch_size.numel()
    if accounts % members:
        raise ValueError(f"{accounts} accounts cannot be shared out among {members} members")
    env.set_seed(seed, static_seed=True)
    kind = ExplorationType.RANDOM if explores else ExplorationType.DETERMINISTIC
    with torch.random.fork_rng(devices=[]), set_exploration_type(kind):
        torch.manual_seed(seed)
        following = env.reset()
        alive = torch.ones(accounts, dtype=torch.bool, device=env.device)
        total = torch.zeros(accounts, dtype=torch.float64, device=env.device)
        frames = torch.zeros((), dtype=torch.long, device=env.device)
        while bool(alive.any()):
            stepped, following = env.step_and_maybe_reset(policy(following))
            after = stepped.get("next")
            reward = after.get("reward").reshape(accounts, -1).sum(-1).double()
            total += torch.where(alive, reward, 0.0)
            frames += alive.sum()
            alive &= ~after.get("done").reshape(accounts)
    return Earned(total.view(members, -1), int(frames))
