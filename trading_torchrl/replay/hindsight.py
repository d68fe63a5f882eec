"""Hindsight replay: what was reached becomes what was wanted, when a batch is sampled."""

from __future__ import annotations

import math
from typing import Any, Literal, get_args

import torch
from tensordict import TensorDictBase, unravel_key
from tensordict.utils import NestedKey
from torch import Tensor
from torchrl.data.replay_buffers import Storage
from torchrl.envs import Transform

from trading_torchrl.envs.goals import ACHIEVED, DESIRED, SEEN, Goal

Strategy = Literal["future", "final", "episode", "random"]

TIME, ACCOUNT = ("hindsight", "time"), ("hindsight", "account")
RELABELED, REACHED = ("hindsight", "relabeled"), ("goal", "reached")


class Hindsight(Transform):
    """Replaces goals of sampled rows by what was achieved in the same episode, and pays for it.

    Andrychowicz et al., "Hindsight Experience Replay", 2017, https://arxiv.org/abs/1707.01495

    Of k + 1 rows k, on average, get another goal; the others keep theirs. The goal is what was
    achieved after a step, by ``strategy``: a later one of the episode or this very one
    (``future``), its last (``final``), any of its steps (``episode``), or any step of the buffer
    (``random``). An episode that is still running ends with its newest row; of one
    that the ring has partly overwritten the rest counts. In all rows, the new goal stands in the
    root and in ``next``, what an agent sees of it too, and reward and ``("goal", "reached")`` are
    computed anew.

    The buffer's storage has two dimensions, ``LazyTensorStorage(size, ndim=2)``, and takes batches
    ``[N, T]`` of N accounts as a collector hands them over, each beginning where the last ended.
    Append this before what rebuilds or changes the rows that are sampled.

    Args:
        storage: the buffer's.
        goal: what being at one is worth to who wants the other, see
            :class:`~trading_torchrl.envs.goals.Goal`.
        strategy: see above.
        k: goals that are replaced for one that stays; 0 replaces none.
        weight: of the stored reward, which is added; it is never made anew.
        terminates: whether reaching a goal ends the episode, so that ``terminated`` of replaced
            goals is made anew too.
        achieved_key: where the environment shows what was achieved.
        desired_key: where the goal is.
        seen_key: where an agent sees both.

    Example:
        >>> from torchrl.data import LazyTensorStorage, ReplayBuffer
        >>> from trading_torchrl.envs.reference import BitFlip, SameBits
        >>> env, storage = BitFlip(num_envs=4, bits=5), LazyTensorStorage(400, ndim=2)
        >>> hindsight = Hindsight(storage, SameBits(), seen_key="observation", terminates=True)
        >>> replay = ReplayBuffer(storage=storage, transform=hindsight, batch_size=32)
        >>> _ = replay.extend(env.rollout(20, break_when_any_done=False))
        >>> replay.sample()["next", "reward"].shape
        torch.Size([32, 1])
    """

    def __init__(
        self,
        storage: Storage,
        goal: Goal,
        *,
        strategy: Strategy = "future",
        k: float = 4.0,
        weight: float = 0.0,
        terminates: bool = False,
        achieved_key: NestedKey = ACHIEVED,
        desired_key: NestedKey = DESIRED,
        seen_key: NestedKey = SEEN,
    ) -> None:
        super().__init__()
        if strategy not in get_args(Strategy):
            raise ValueError(
                f"strategy must be one of {', '.join(get_args(Strategy))}, got {strategy!r}"
            )
        if not 0 <= k < math.inf:
            raise ValueError(f"k must not be negative, got {k}")
        if storage.ndim != 2:
            raise ValueError(
                "hindsight needs a storage of accounts and time: LazyTensorStorage(size, ndim=2),"
                f" got ndim={storage.ndim}"
            )
        self.storage, self.goal, self.strategy = storage, goal, strategy
        self.share, self.weight, self.terminates = k / (k + 1), weight, terminates
        self.achieved_key, self.desired_key, self.seen_key = achieved_key, desired_key, seen_key
        self._later = unravel_key(("next", achieved_key))
        self.head = 0
        """steps that ever went in, of each account"""
        self._rows = 0
        self._begin = self._first = self._last = torch.zeros(0, dtype=torch.int64)

    @property
    def reads(self) -> list[NestedKey]:
        """Keys that rows must have to be stored."""
        then = (self.achieved_key, "reward", "done")
        return [self.achieved_key, self.desired_key, *(unravel_key(("next", k)) for k in then)]

    def _inv_call(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Rows learn when and whose they are; the first and last step of their episode is noted."""
        if tensordict.ndim != 2:
            raise ValueError(
                "hindsight takes batches [accounts, time], got one of shape"
                f" {list(tensordict.shape)}: do not flatten it"
            )
        accounts, steps = tensordict.shape
        if not self._rows:
            self._rows = -(self.storage.max_size // -accounts)  # as the storage rounds
            self._begin = torch.zeros(accounts, dtype=torch.int64)
            self._first, self._last = (
                torch.full((self._rows, accounts), -1, dtype=torch.int64) for _ in range(2)
            )
        if accounts != self._begin.shape[0] or steps > self._rows:
            raise ValueError(
                f"this buffer has {self._rows} rows of {self._begin.shape[0]} accounts, a batch of"
                f" shape {list(tensordict.shape)} does not fit"
            )
        time = torch.arange(self.head, self.head + steps).expand(accounts, steps)
        tensordict.set(TIME, time.contiguous())
        account = torch.arange(accounts, dtype=torch.int32)[:, None]
        tensordict.set(ACCOUNT, account.expand(accounts, steps).contiguous())
        for done in tensordict.get(("next", "done"))[..., 0].unbind(1):
            self._note(done)
        return tensordict

    def _note(self, done: Tensor) -> None:
        """One step of all accounts; where an episode ends all its rows learn so."""
        slot = self.head % self._rows
        self._first[slot] = self._begin
        self._last[slot] = -1
        ended = done.nonzero()[:, 0]
        if len(ended):
            length = (self.head + 1 - self._begin[ended]).clamp(max=self._rows)
            whose = ended.repeat_interleave(length)
            back = torch.arange(len(whose)) - (length.cumsum(0) - length).repeat_interleave(length)
            self._last[(self.head - back) % self._rows, whose] = self.head
            self._begin[ended] = self.head + 1
        self.head += 1

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """A batch with its goals replaced, and paid for."""
        tensordict = tensordict.copy()  # and all that is nested in it
        following = tensordict.get("next")
        asked = tensordict.get(self.desired_key)
        time, account = tensordict.get(TIME), tensordict.get(ACCOUNT).long()
        goal_time, goal_account, there = self._elsewhere(time, account)
        replaced = there & (torch.rand(time.shape) < self.share)
        reached = self.storage._storage.get(self._later)[goal_time % self._rows, goal_account]
        desired = torch.where(replaced[..., None], reached.to(asked.dtype), asked)

        for place in (tensordict, following):
            place.set(self.desired_key, desired)
            place.set(self.seen_key, self.goal.seen(place.get(self.achieved_key), desired))
        now = following.get(self.achieved_key)
        arrived = self.goal.reached(now, desired)
        reward = self.goal.reward(now, desired)
        if self.weight:
            reward = reward + self.weight * following.get("reward")
        following.set("reward", reward)
        following.set(REACHED, arrived)
        if self.terminates:
            over = torch.where(replaced[..., None], arrived, following.get("terminated"))
            following.set("terminated", over)
        return tensordict.set(RELABELED, replaced)

    def _elsewhere(self, time: Tensor, account: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Step and account whose goal a row could take, and whether there is one."""
        oldest = max(self.head - self._rows, 0)
        slot = time % self._rows
        last = self._last[slot, account]
        last = torch.where(last < 0, self.head - 1, last)
        low = time
        if self.strategy == "final":
            low = last
        elif self.strategy == "episode":
            low = self._first[slot, account]
        elif self.strategy == "random":
            low, last = torch.zeros_like(time), torch.full_like(last, self.head - 1)
            account = torch.randint_like(account, self._begin.shape[0])
        low = low.clamp(min=oldest)
        span = last - low + 1
        drawn = low + (torch.rand(time.shape, dtype=torch.float64) * span).long()
        return drawn.clamp(min=0), account, span > 0

    def get_extra_state(self) -> dict[str, Any]:
        """Where episodes begin and end."""
        named = {"begin": self._begin, "first": self._first, "last": self._last}
        return {"head": self.head, "rows": self._rows, **{n: t.clone() for n, t in named.items()}}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Goes on where :meth:`get_extra_state` left off."""
        self.head, self._rows = state["head"], state["rows"]
        self._begin, self._first, self._last = (
            state[name].clone() for name in ("begin", "first", "last")
        )
