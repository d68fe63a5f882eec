"""A policy of options, watched while it is judged."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tensordict import TensorDictBase
from torch import Tensor

from tasks.task import Figures, Policy
from trading_torchrl.envs.running_option import INDEX
from trading_torchrl.modules.options import Option, explores
from trading_torchrl.monitoring import OptionUse

CHOSEN = ("decisions", "of_allowed")
"""Figures that are told of the exploring policy too."""


class WatchedOptions:
    """Counts what options come to in the first episodes of a policy, certain and exploring.

    Args:
        policy: of options.
        options: these.
        regime_of: kind of the bar where each account is, ``[N]``, of what the policy reads.
        regimes: names of the kinds.
    """

    def __init__(
        self,
        policy: Policy,
        options: Sequence[Option],
        regime_of: Callable[[TensorDictBase], Tensor] | None = None,
        regimes: Sequence[str] = (),
    ) -> None:
        self.policy, self.regime_of, self.regimes = policy, regime_of, regimes
        self.uses = {drawn: OptionUse(options, len(regimes)) for drawn in (False, True)}
        self.begun = {False: 0, True: 0}

    def __call__(self, tensordict: TensorDictBase) -> TensorDictBase:
        """The policy's action."""
        drawn = explores()
        self.begun[drawn] += bool((tensordict.get(INDEX) < 0).all())
        rows = self.policy(tensordict)
        if self.begun[drawn] == 1:
            regime = None if self.regime_of is None else self.regime_of(rows)[:, None]
            self.uses[drawn].see(rows.unsqueeze(1), regime)
        return rows

    def figures(self) -> Figures:
        """Of the certain policy; and of the exploring one by ``stochastic_``."""
        return {
            f"{before}option_{name.partition('/')[2]}": value
            for drawn, before in ((False, ""), (True, "stochastic_"))
            for name, value in self.uses[drawn].figures().items()
        }

    def table(self, years: float) -> dict[str, dict[str, float]]:
        """Of each option, as the certain policy uses it, and how often the exploring one does.

        Args:
            years: of all accounts together.
        """
        certain = self.uses[False].table(self.regimes, years)
        drawn = self.uses[True].table(self.regimes)
        return {
            option: {**row, **{f"exploring_{name}": drawn[option][name] for name in CHOSEN}}
            for option, row in certain.items()
        }
