"""A trading environment that shows more, and steps as fast as it can."""

from __future__ import annotations

from tensordict import TensorDictBase
from tensordict.utils import NestedKey
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
            each._step(tensordict, after)
            if isinstance(each, RunningOption):
                option = after.get("option")
                following.set("option", each.let_go(option, ended) if anew else option.copy())
            elif anew:  # the bars they look up are already those of the new episodes
                each._call(following)
            else:
                for key in dict.fromkeys(key[0] for key in map(_parts, each.out_keys)):
                    shown = after.get(key)  # a container of its own
                    following.set(key, shown.copy() if isinstance(shown, TensorDictBase) else shown)
        return tensordict, following


def _parts(key: NestedKey) -> tuple[str, ...]:
    return key if isinstance(key, tuple) else (key,)
