"""How options are used: how often, for how long, what they earn, whether they end as meant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from tensordict import TensorDictBase
from torch import Tensor

from trading_torchrl.envs.running_option import ALLOWED, INDEX, STEPS
from trading_torchrl.modules.option_policy import ENDED
from trading_torchrl.modules.option_turns import BY_PURPOSE, GOES_ON
from trading_torchrl.modules.options import EQUITY, Option

COUNTED = ("chosen", "could", "bars", "ended", "lasted", "instant", "met", "earned")


class OptionUse:
    """Counts what becomes of options, batch after batch of the same accounts.

    Args:
        options: K of them.
        regimes: how many kinds of bars are told apart.

    Example:
        >>> from tensordict import TensorDict
        >>> from trading_torchrl.modules import trading_options
        >>> from trading_torchrl.modules.options import SHARES
        >>> use = OptionUse(trading_options(SHARES))
        >>> wait = {"index": torch.full((1, 3, 1), 5), "steps": torch.tensor([[[0], [1], [2]]])}
        >>> wait |= {"ended": torch.zeros(1, 3, 1), "allowed": torch.ones(1, 3, 6).bool()}
        >>> account = {"equity": torch.ones(1, 3, 1)}
        >>> use.see(TensorDict({"option": wait, "account": account}, [1, 3]))
        >>> use.of_each()["options/WAIT_share"]
        1.0
    """

    def __init__(self, options: Sequence[Option], regimes: int = 0) -> None:
        self.names = [option.name for option in options]
        shortest = [float(getattr(type(each), "least", each.least)) for each in options]
        self.least = torch.tensor(shortest)  # as its class has it, though a run may lift it
        self.regimes = regimes
        self.forget()
        self._before: dict[str, Tensor] | None = None

    def forget(self) -> None:
        """Counts from here on; what runs goes on."""
        count = len(self.names)
        self.counts = {name: torch.zeros(count, dtype=torch.float64) for name in COUNTED}
        self.by_regime = torch.zeros(self.regimes, count, dtype=torch.float64)

    def see(self, rows: TensorDictBase, regime: Tensor | None = None) -> None:
        """Steps ``[N, T]`` as a policy of options wrote them, each batch where the last ended.

        Args:
            rows: with the policy's keys and ``("account", "equity")``.
            regime: kind of each bar, int64 ``[N, T]``; -1 is not known.
        """
        now = {
            "index": rows.get(INDEX)[..., 0],
            "steps": rows.get(STEPS)[..., 0],
            "worth": rows.get(EQUITY)[..., 0].double().log(),
        }
        ended = rows.get(ENDED)[..., 0].long()
        chose, count = now["steps"] == 0, self.counts
        count["chosen"] += self._of_each(now["index"][chose])
        count["could"] += rows.get(ALLOWED)[chose].reshape(-1, len(self.names)).sum(0)
        count["bars"] += self._of_each(now["index"])
        if regime is not None:
            known = regime >= 0
            where = regime[known] * len(self.names) + now["index"][known]
            found = where.bincount(minlength=self.by_regime.numel())
            self.by_regime += found.view_as(self.by_regime)
        # What ended before a bar is told by the bar before, which may be of the batch before.
        if self._before is not None:
            now = {name: torch.cat([self._before[name], each], -1) for name, each in now.items()}
        else:
            ended, chose = ended[:, 1:], chose[:, 1:]
        goes_on = ~(chose & (ended == GOES_ON))  # else another episode began
        index, steps = (now[name][:, :-1] for name in ("index", "steps"))
        over = ended != GOES_ON
        lasted = steps[over] + 1
        count["ended"] += self._of_each(index[over])
        count["lasted"] += self._of_each(index[over], lasted)
        count["instant"] += self._of_each(index[over], lasted == 1)
        count["met"] += self._of_each(index[ended == BY_PURPOSE])
        gained = now["worth"].diff(dim=-1)[goes_on]
        count["earned"] += self._of_each(index[goes_on], gained.nan_to_num(0.0, 0.0, 0.0))
        self._before = {name: each[:, -1:].clone() for name, each in now.items()}

    def _of_each(self, index: Tensor, weights: Tensor | None = None) -> Tensor:
        """Sums by option."""
        weights = None if weights is None else weights.double()
        return index.flatten().bincount(weights, minlength=len(self.names)).double()

    def table(self, names: Sequence[str] = (), years: float = 0.0) -> dict[str, dict[str, float]]:
        """Figures of each option, by name; NaN where it was never chosen.

        Args:
            names: of the regimes.
            years: how long all bars are together; returns are by the year then.
        """
        count, bars = self.counts, self.counts["bars"].sum()
        columns = {
            "decisions": count["chosen"] / count["chosen"].sum(),
            "of_allowed": count["chosen"] / count["could"],
            "bars": count["bars"] / bars,
            "duration": count["lasted"] / count["ended"],
            "of_least": count["lasted"] / count["ended"] / self.least,
            "instant": count["instant"] / count["ended"],
            "purpose_met": count["met"] / count["ended"],
        }
        if years:
            columns["growth_while"] = count["earned"] / (count["bars"] / bars * years)
        for name, found in zip(names, self.by_regime, strict=True):
            columns[f"bars_{name}"] = found / found.sum()
        return {
            option: {name: float(column[k]) for name, column in columns.items()}
            for k, option in enumerate(self.names)
        }

    def figures(self) -> dict[str, float]:
        """What shows whether a controller collapsed."""
        count, bars = self.counts, self.counts["bars"]
        if not bars.sum():
            return {}
        share, chosen = bars / bars.sum(), count["chosen"] / count["chosen"].sum().clamp(min=1)
        used = share[share > 0]
        ended, lasted = count["ended"], count["lasted"]
        of_least = (lasted / ended / self.least)[ended > 0]
        of_allowed = (count["chosen"] / count["could"])[count["could"] > 0]
        figures = {
            "options/usage_entropy": float(-(used * used.log()).sum()),
            "options/num_used_options": float(len(used)),
            "options/average_duration": float(lasted.sum() / ended.sum().clamp(min=1)),
            "options/average_of_least": float(
                (lasted / self.least).sum() / ended.sum().clamp(min=1)
            ),
            "options/purpose_met": float(count["met"].sum() / ended.sum().clamp(min=1)),
            "options/instant": float(count["instant"].sum() / ended.sum().clamp(min=1)),
        }
        if len(of_allowed):
            figures["options/max_usage_pct"] = 100 * float(chosen.max())
            figures["options/min_of_allowed"] = float(of_allowed.min())
        if len(of_least):
            figures["options/shortest_of_least"] = float(of_least.min())
        return figures

    def of_each(self) -> dict[str, float]:
        """Of each option: its share of the bars, how long it ran, whether its purpose was met."""
        count = self.counts
        found = {
            "share": count["bars"] / count["bars"].sum(),
            "duration": count["lasted"] / count["ended"],
            "purpose_met": count["met"] / count["ended"],
        }
        return {
            f"options/{name}_{what}": float(each)
            for what, values in found.items()
            for name, each in zip(self.names, values, strict=True)
            if not each.isnan()
        }

    def chosen(self) -> Tensor:
        """The option of each decision, int64; in no order of time."""
        return torch.arange(len(self.names)).repeat_interleave(self.counts["chosen"].long())

    def state_dict(self) -> dict[str, Any]:
        """Counts, and what runs."""
        before = None if self._before is None else dict(self._before)
        return {"counts": dict(self.counts), "by_regime": self.by_regime, "before": before}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where :meth:`state_dict` left off."""
        self.counts = {name: each.clone() for name, each in state["counts"].items()}
        self.by_regime = state["by_regime"].clone()
        before = state["before"]
        known = None if before is None else {name: each.clone() for name, each in before.items()}
        self._before = known
