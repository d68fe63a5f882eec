"""Segments: each option that was carried out as one row, from its choice to its end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.utils import NestedKey
from torch import Tensor
from torchrl.envs import Transform

from trading_torchrl.checks import check_share
from trading_torchrl.envs.running_option import ALLOWED, INDEX, LOG_PROB, STEPS

DURATION = ("option", "duration")
ENDED = ("option", "ended")


class Segments(Transform):
    """Makes rows of options out of rows of steps, however batches cut them.

    Takes batches ``[*, T]`` of accounts, each beginning where the last ended, as a collector hands
    them over, and returns those options ``[M]`` that came to an end in them, perhaps none. A
    segment begins where an option was chosen and ends where the next one is, or with the episode;
    what a batch cuts off is kept until it ends, or let go where the account begins another episode.

    A row has, of the choice, ``seen``, ``("option", "index")``, ``("option", "log_prob")`` and
    ``("option", "allowed")``; and in ``next``, of its end:

    - ``seen``, and ``("option", "allowed")``: what could be chosen there;
    - ``reward`` ``[M, 1]``: the sum of its rewards, discounted to the choice;
    - ``terminated`` ``[M, 1]``; one that a truncated episode cut short is not;
    - ``("option", "duration")``, int64 ``[M, 1]``: its bars.

    Args:
        may: which options may start, of what an environment shows: ``OptionPolicy.may``.
        gamma: discount.
        seen: keys that the controller reads.
    """

    def __init__(
        self,
        may: Callable[[TensorDictBase], Tensor],
        *,
        gamma: float,
        seen: Sequence[NestedKey] = ("observation",),
    ) -> None:
        super().__init__()
        check_share("gamma", gamma)
        self.may, self.gamma, self.seen = may, gamma, tuple(seen)
        self._chosen: TensorDictBase | None = None
        self._earned = self._bars = torch.zeros(0)

    @property
    def _noted(self) -> tuple[NestedKey, ...]:
        """Of a choice."""
        return (*self.seen, INDEX, LOG_PROB, ALLOWED)

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """The options that ended in a batch of steps."""
        if tensordict.ndim < 2:
            raise ValueError(
                f"segments are made of batches [accounts, time], got {list(tensordict.shape)}"
            )
        tensordict = tensordict.reshape(-1, tensordict.shape[-1])
        accounts = tensordict.shape[0]
        if self._chosen is not None and self._chosen.shape[0] != accounts:
            raise ValueError(
                f"these segments are of {self._chosen.shape[0]} accounts, a batch of {accounts}"
                " came"
            )
        rows = tensordict.select(*self._noted, STEPS, ENDED)
        after = tensordict.get("next")
        ended = [
            row
            for now, then in zip(rows.unbind(1), after.unbind(1), strict=True)
            for row in self._step(now, then)
        ]
        none = torch.zeros(accounts, dtype=torch.bool, device=rows.device)
        last = after[:, -1]
        ended.append(self._row(none, last, self.may(last), last.get("terminated")))
        return torch.cat(ended)

    def _step(self, now: TensorDictBase, then: TensorDictBase) -> list[TensorDictBase]:
        """One step of all accounts; the segments that end before it, and with it."""
        ended = []
        chosen = now.get(STEPS)[:, 0] == 0
        noted = now.select(*self._noted)
        terminated, done = then.get("terminated"), then.get("done")[:, 0]
        if self._chosen is None:
            if not bool(chosen.all()):
                raise ValueError(
                    "the first batch of steps must begin with choices, as it does after a reset"
                )
            self._chosen = noted.clone()
            self._earned = torch.zeros_like(then.get("reward"))
            self._bars = torch.zeros_like(now.get(STEPS))
        # Where none ended before the choice, the account began another episode.
        left = chosen & (self._bars[:, 0] > 0) & (now.get(ENDED)[:, 0] != 0)
        if bool(left.any()):
            goes_on = torch.zeros_like(terminated)
            ended.append(self._row(left, now, now.get(ALLOWED), goes_on))
        self._chosen = torch.where(chosen, noted, self._chosen)
        fresh = chosen[:, None]
        self._earned = torch.where(fresh, 0.0, self._earned)
        self._bars = torch.where(fresh, 0, self._bars)
        reward = then.get("reward")
        self._earned = self._earned + self.gamma ** self._bars.to(reward.dtype) * reward
        self._bars = self._bars + 1
        if bool(done.any()):
            ended.append(self._row(done, then, self.may(then), terminated))
            self._bars = torch.where(done[:, None], 0, self._bars)
        return ended

    def _row(
        self, ended: Tensor, there: TensorDictBase, may: Tensor, terminated: Tensor
    ) -> TensorDictBase:
        """Those that end, ``[m]``, with what is there at their ends."""
        assert self._chosen is not None
        following = there.select(*self.seen)[ended]
        following.set(ALLOWED, may[ended])
        following.set("reward", self._earned[ended])
        following.set("terminated", terminated[ended])
        following.set(DURATION, self._bars[ended])
        return self._chosen[ended].set("next", following)

    def get_extra_state(self) -> dict[str, Any]:
        """What was cut off."""
        if self._chosen is None:
            return {}
        chosen = {repr(key): self._chosen.get(key).clone() for key in self._noted}
        return {"chosen": chosen, "earned": self._earned.clone(), "bars": self._bars.clone()}

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        """Goes on where :meth:`get_extra_state` left off."""
        if not state:
            self._chosen = None
            return
        known = {repr(key): key for key in self._noted}
        if set(known) != set(state["chosen"]):
            raise ValueError(
                f"the saved segments are of {', '.join(state['chosen'])}, these of"
                f" {', '.join(known)}: let the controller see the same"
            )
        self._earned, self._bars = state["earned"].clone(), state["bars"].clone()
        self._chosen = TensorDict(batch_size=[len(self._bars)])
        for name, value in state["chosen"].items():
            self._chosen.set(known[name], value.clone())
