"""A trading environment that shows more, and steps as fast as it can."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDictBase
from torch import Tensor
from torchrl.envs import Compose, TransformedEnv

from trading_torchrl.envs.running_option import RunningOption
from trading_torchrl.envs.trading import TradingEnv
from trading_torchrl.envs.transforms import OfTheBar


class Showing(TransformedEnv):
    """What ``TransformedEnv(env, Compose(*transforms))`` is, but looks at few keys at each step.

    For transforms that only show more: :class:`~trading_torchrl.envs.MarketWindow`,
    :class:`~trading_torchrl.envs.Signals` and :class:`~trading_torchrl.envs.RunningOption`. With
    others appended it steps as ever.

    Args:
        env: steps.
        transforms: show more.

    Example:
        >>> from trading_torchrl.data import synthetic_market
        >>> from trading_torchrl.envs import Signals
        >>> env = TradingEnv(synthetic_market(2, 2_000), 4, emit=["index"], compiled=False)
        >>> Showing(env, Signals.of(env)).rollout(3)["signals", "trend"].shape
        torch.Size([4, 3, 1])
    """

    base_env: TradingEnv

    def __init__(self, env: TradingEnv, *transforms: OfTheBar | RunningOption) -> None:
        super().__init__(env, Compose(*transforms))

    def step_and_maybe_reset(
        self, tensordict: TensorDictBase
    ) -> tuple[TensorDictBase, TensorDictBase]:
        """One step and, where an episode ended, a reset."""
        assert self.transform is not None
        shows = list(self.transform)
        plain = type(self.base_env) is TradingEnv and "_step" not in tensordict
        if not plain or not all(isinstance(each, OfTheBar | RunningOption) for each in shows):
            return super().step_and_maybe_reset(tensordict)
        tensordict, following = self.base_env.step_and_maybe_reset(tensordict)
        after = tensordict.get("next")
        ended = after.get("done")
        anew = bool(ended.any())
        for each in shows:
            after = each._step(tensordict, after)
            fresh = each._reset(None, following.copy()) if anew else after
            for key in dict.fromkeys(
                key[0] if isinstance(key, tuple) else key for key in each.out_keys
            ):
                following.set(key, _following(ended, fresh.get(key), after.get(key), anew=anew))
        return tensordict, following


def _following(ended: Tensor, fresh: Any, after: Any, *, anew: bool) -> Any:
    """What is seen next: of accounts ``[N, 1]`` that ended what is fresh."""
    if isinstance(after, TensorDictBase):  # a container of its own
        if not anew:
            return after.copy()
        return after.apply(lambda old, new: _following(ended, new, old, anew=True), fresh)
    return torch.where(ended.view(-1, *[1] * (after.ndim - 1)), fresh, after) if anew else after
