"""Segments: each option that was carried out as one row, from its choice to its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.utils import NestedKey
from torch import Tensor
from torchrl.envs import Transform

from trading_torchrl.checks import check_share
from trading_torchrl.envs.running_option import ALLOWED, INDEX, LOG_PROB, STEPS

DURATION, RUNS = ("option", "duration"), ("option", "runs")


class Segments(Transform):
    """Makes rows of options out of rows of steps, however batches cut them.

    Takes batches ``[N, T]`` of N accounts, each beginning where the last ended, as a collector
    hands them over, and returns those options ``[M]`` that came to an end in them. A segment begins
    where an option was chosen and ends where the next one is, or with the episode; what a batch
    cuts off is kept until it ends.

    A row has, of the choice, ``seen``, ``("option", "index")``, ``("option", "log_prob")`` and
    ``("option", "allowed")``; and in ``next``, of its end:

    - ``seen``, and ``("option", "allowed")``: what could be chosen there;
    - ``reward`` ``[M, 1]``: the sum of its rewards, discounted to the choice;
    - ``terminated`` ``[M, 1]``;
    - ``("option", "duration")``, int64 ``[M, 1]``: its bars;
    - ``("option", "runs")``, bool ``[M, 1]``: whether a truncated episode cut it short, so that it
      would have gone on.

    Args:
        gamma: discount.
        seen: keys that the controller reads.
    """

    def __init__(self, *, gamma: float, seen: Sequence[NestedKey] = ("observation",)) -> None:
        super().__init__()
        check_share("gamma", gamma)
        self.gamma, self.seen = gamma, tuple(seen)
        self._chosen: TensorDictBase | None = None
        self._earned = self._bars = torch.zeros(0)

    @property
    def _noted(self) -> tuple[NestedKey, ...]:
        """Of a choice."""
        return (*self.seen, INDEX, LOG_PROB, ALLOWED)

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """The options that ended in a batch of steps."""
        if tensordict.ndim != 2:
            raise ValueError(
                f"segments are made of batches [accounts, time], got {list(tensordict.shape)}"
            )
        accounts = tensordict.shape[0]
        if self._chosen is not None and self._chosen.shape[0] != accounts:
            raise ValueError(
                f"these segments are of {self._chosen.shape[0]} accounts, a batch of {accounts}"
                " came"
            )
        rows = tensordict.select(*self._noted, STEPS)
        after = tensordict.get("next").select(*self.seen, "reward", "terminated", "done")
        ended = [
            row
            for now, then in zip(rows.unbind(1), after.unbind(1), strict=True)
            for row in self._step(now, then)
        ]
        return torch.cat(ended) if ended else self._nothing(rows, after)

    def _step(self, now: TensorDictBase, then: TensorDictBase) -> list[TensorDictBase]:
        """One step of all accounts; the segments that end before it, and with it."""
        ended = []
        chosen = now.get(STEPS)[:, 0] == 0
        noted = now.select(*self._noted)
        if self._chosen is None:
            if not bool(chosen.all()):
                raise ValueError(
                    "the first batch of steps must begin with choices, as it does after a reset"
                )
            self._chosen = noted.clone()
            self._earned = torch.zeros_like(then.get("reward"))
            self._bars = torch.zeros_like(now.get(STEPS))
        over = chosen & (self._bars[:, 0] > 0)
        if bool(over.any()):
            ended.append(self._row(over, now, torch.zeros_like(then.get("terminated"))))
        self._chosen = torch.where(chosen, noted, self._chosen)
        fresh = chosen[:, None]
        self._earned = torch.where(fresh, 0.0, self._earned)
        self._bars = torch.where(fresh, 0, self._bars)
        reward = then.get("reward")
        self._earned = self._earned + self.gamma ** self._bars.to(reward.dtype) * reward
        self._bars = self._bars + 1
        done = then.get("done")[:, 0]
        if bool(done.any()):
            last = then.clone(False).set(ALLOWED, now.get(ALLOWED))
            ended.append(self._row(done, last, then.get("terminated")))
            self._bars = torch.where(done[:, None], 0, self._bars)
        return ended

    def _row(self, over: Tensor, there: TensorDictBase, terminated: Tensor) -> TensorDictBase:
        """Those that end, ``[m]``, with what is there at their ends."""
        assert self._chosen is not None
        row = self._chosen[over]
        following = there.select(*self.seen, ALLOWED)[over]
        done = there.get("done", None)
        cut = torch.zeros_like(terminated) if done is None else ~terminated
        following.set("reward", self._earned[over])
        following.set("terminated", terminated[over])
        following.set(DURATION, self._bars[over])
        following.set(RUNS, cut[over])
        return row.set("next", following)

    def _nothing(self, rows: TensorDictBase, after: TensorDictBase) -> TensorDictBase:
        """No row, of the same keys."""
        none = torch.zeros(rows.shape[0], dtype=torch.bool, device=rows.device)
        then = after[:, 0].set(ALLOWED, rows[:, 0].get(ALLOWED))
        return self._row(none, then, then.get("terminated"))

    def get_extra_state(self) -> dict[str, Any]:
        """What was cut off."""
        if self._chosen is None:
            return {}
        chosen = {str(i): self._chosen.get(key).clone() for i, key in enumerate(self._noted)}
        return {"chosen": chosen, "earned": self._earned.clone(), "bars": self._bars.clone()}

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        """Goes on where :meth:`get_extra_state` left off."""
        if not state:
            self._chosen = None
            return
        self._earned, self._bars = state["earned"].clone(), state["bars"].clone()
        self._chosen = TensorDict(batch_size=[len(self._bars)])
        for i, key in enumerate(self._noted):
            self._chosen.set(key, state["chosen"][str(i)].clone())
