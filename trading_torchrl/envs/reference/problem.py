"""What small problems with known answers have in common: N of them stepped as one batch."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from inspect import signature
from operator import index
from typing import Any, ClassVar

import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import TensorDictModule
from torch import Tensor
from torchrl.data import Binary, Bounded, Categorical, Composite, Unbounded
from torchrl.data.tensor_specs import TensorSpec
from torchrl.envs import EnvBase

from trading_torchrl.envs import draws
from trading_torchrl.envs.progress import check_fit
from trading_torchrl.envs.settings import at_least

Fields = dict[str, Tensor]

STREAMS = 256
"""Independent numbers an account can draw in one step."""


class ReferenceProblem(EnvBase, ABC):
    """N accounts in a problem whose best policy and its value are known.

    A problem is three functions over fields ``[N, ...]``: how an episode starts, what is seen, and
    one step. All noise is keyed by (seed, account, episode, step), so it is the same whatever the
    actions are: policies compare on common noise. An episode of ``steps`` steps is truncated.

    Keys: ``observation`` float32 ``[N, D]``, ``action`` float32 ``[N, 1]`` in [-1, 1] or int64
    ``[N]``, ``("next", "reward")`` ``[N, 1]``, and the usual flags.

    Args:
        num_envs: number of accounts N.
        observed: width D of the observation.
        choices: number of discrete actions; ``None`` for a continuous one.
        steps: length of an episode.
        seed: of all noise.
        first_account: number of the first account; account k of a batch is account 0 of one with
            ``first_account=k``.
        device: where it runs.
    """

    continuing: ClassVar[bool] = True
    """Whether an episode is scored by its mean reward, else by its discounted return."""

    discount: float = 1.0

    def __init__(
        self,
        num_envs: int,
        *,
        observed: int,
        choices: int | None,
        steps: int,
        seed: int,
        first_account: int,
        device: torch.device | str,
    ) -> None:
        at_least("num_envs", num_envs, 1)
        at_least("steps", steps, 1)
        at_least("first_account", first_account, 0)
        device = torch.device(device)
        super().__init__(device=device, batch_size=torch.Size([num_envs]))
        self.steps = steps
        self._choices = choices
        self._seed = index(seed)
        self._account = torch.arange(first_account, first_account + num_envs, device=device)
        self._episode = torch.full_like(self._account, -1)
        self._fields: Fields = {}
        self.earned = torch.zeros(num_envs, dtype=torch.float64, device=device)
        """reward [N] of the last step, before any transform"""
        self.ended = torch.zeros(num_envs, dtype=torch.bool, device=device)
        """whether the last step ended an episode [N]"""

        n = num_envs
        whole = {"device": device}
        self.observation_spec = Composite(
            {"observation": Unbounded((n, observed), dtype=torch.float32, **whole)}, shape=(n,)
        )
        action: TensorSpec
        if choices is None:
            action = Bounded(-1.0, 1.0, shape=(n, 1), dtype=torch.float32, **whole)
        else:
            action = Categorical(choices, shape=(n,), dtype=torch.int64, **whole)
        self.action_spec = action
        self.reward_spec = Unbounded((n, 1), dtype=torch.float32, **whole)
        flags = {
            name: Binary(n=1, shape=(n, 1), dtype=torch.bool, **whole)
            for name in ("done", "terminated", "truncated")
        }
        self.full_done_spec = Composite(flags, shape=(n,), **whole)

    @abstractmethod
    def start(self) -> Fields:
        """Fields of a new episode for every account."""

    @abstractmethod
    def observe(self, fields: Fields) -> Tensor:
        """The observation ``[N, D]``."""

    @abstractmethod
    def advance(self, fields: Fields, action: Tensor) -> tuple[Fields, Tensor, Tensor]:
        """One step of float64 or int64 ``action`` ``[N]``: fields, reward ``[N]``, terminated."""

    @abstractmethod
    def best_action(self, observation: Tensor) -> Tensor:
        """The best action for observations ``[*, D]``, as the action spec has it."""

    @property
    @abstractmethod
    def value(self) -> float:
        """Exact expected score of an episode under :meth:`best_action`."""

    def best_policy(self) -> TensorDictModule:
        """:meth:`best_action` as a policy."""
        return TensorDictModule(self.best_action, in_keys=["observation"], out_keys=["action"])

    def shown(self, fields: Fields) -> dict[str, Any]:
        """What is shown of the accounts; more than the observation where a problem adds to it."""
        return {"observation": self.observe(fields).float()}

    def normal(self, stream: int = 0) -> Tensor:
        """Standard normal noise ``[N]`` of this step, its own for each ``stream``."""
        return draws.normal(self._seed, self._account, self._episode, self._place(stream))

    def uniform(self, stream: int = 0) -> Tensor:
        """Numbers in (0, 1), like :meth:`normal`."""
        return draws.uniform(self._seed, self._account, self._episode, self._place(stream))

    def _place(self, stream: int) -> Tensor:
        if not 0 <= stream < STREAMS:
            raise ValueError(f"a step has noise streams 0 to {STREAMS - 1}, got {stream}")
        step = self._fields.get("step", torch.zeros_like(self._account))
        return STREAMS * step + stream

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDictBase:
        mask = None if tensordict is None else tensordict.get("_reset", None)
        if mask is None or not self._fields:
            mask = torch.ones(self.batch_size, dtype=torch.bool, device=self.device)
        mask = mask.reshape(self.batch_size)
        before = self._fields
        self._episode = self._episode + mask
        # Streams of step 0 belong to the start, so the steps count from 1.
        self._fields = {"step": torch.zeros_like(self._account)}
        fresh = {"step": torch.ones_like(self._account), **self.start()}
        self._fields = _where(mask, fresh, before) if before else fresh
        return self._show(torch.zeros_like(mask), torch.zeros_like(mask), {})

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        if not self._fields:
            raise RuntimeError("no episode is running; call reset() before step()")
        stepping = tensordict.get("_step", None)
        stepping = None if stepping is None else stepping.reshape(self.batch_size)
        action = self._read(tensordict.get("action"), stepping)
        before = self._fields
        changed, reward, terminated = self.advance(before, action)
        step = before["step"] + 1
        after = before | changed | {"step": step}
        truncated = (step > self.steps) & ~terminated
        if stepping is not None:
            after = _where(stepping, after, before)
            reward = torch.where(stepping, reward, 0.0)
            # Accounts that sit out show the flags they showed.
            terminated, truncated = (
                torch.where(stepping, flag, _flag_of(tensordict, name, flag))
                for name, flag in (("terminated", terminated), ("truncated", truncated))
            )
        self._fields = after
        self.earned, self.ended = reward.double(), terminated | truncated
        return self._show(terminated, truncated, {"reward": reward.float()[:, None]})

    def _read(self, given: Tensor, stepping: Tensor | None) -> Tensor:
        """The actions [N], refused where an account that takes part cannot act on its own."""
        action = given.reshape(self.batch_size)
        if self._choices is None:
            action = action.double()
            readable, allowed = action == action, "numbers"
        else:
            readable = (action >= 0) & (action < self._choices) & (action == action.floor())
            allowed = f"whole numbers from 0 to {self._choices - 1}"
        if stepping is not None:
            readable = readable | ~stepping
        if not bool(readable.all()):
            account = int((~readable).nonzero()[0, 0])
            raise ValueError(
                f"account {account} got the action {given[account].tolist()}; actions are {allowed}"
            )
        if self._choices is None:
            return action.clamp(-1, 1)
        return action.long().clamp(0, self._choices - 1)

    def _show(self, terminated: Tensor, truncated: Tensor, more: dict[str, Tensor]) -> TensorDict:
        flags = {
            "terminated": terminated[:, None],
            "truncated": truncated[:, None],
            "done": (terminated | truncated)[:, None],
        }
        entries = {**self.shown(self._fields), **flags, **more}
        return TensorDict(entries, batch_size=self.batch_size, device=self.device)

    def _set_seed(self, seed: int | None) -> None:
        self._seed = 0 if seed is None else seed
        self._episode = torch.full_like(self._account, -1)

    def draw_alike(self, copies: int) -> None:
        """Makes the batch so many copies of its first accounts, with the same noise, anew."""
        self._account = draws.alike(self._account, copies)
        self._set_seed(self._seed)

    def to(self, device: torch.device | str) -> ReferenceProblem:
        """Only to where it is: accounts live where the problem was built."""
        if torch.device(device).type != self.device.type:
            raise ValueError(
                f"this problem lives on {self.device}; build one with device={str(device)!r}"
            )
        return self

    def get_extra_state(self) -> dict[str, Any]:
        """Accounts and draws as they stand: with them a problem goes on bit for bit."""
        return {
            "settings": self._settings(),
            "fields": {name: field.clone() for name, field in self._fields.items()},
            "episode": self._episode.clone(),
            "seed": self._seed,
        }

    def _settings(self) -> dict[str, Any]:
        """What accounts depend on; those saved under other settings would mean something else."""
        taken = signature(type(self).__init__).parameters
        chosen = {name: getattr(self, name, None) for name in taken if name not in ("self", "seed")}
        plain = {k: v for k, v in chosen.items() if isinstance(v, (int, float, str))}
        return {"problem": type(self).__name__, "accounts": self._account.tolist(), **plain}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Goes on where :meth:`get_extra_state` left off."""
        check_fit(state["settings"], self._settings())
        self._fields = {n: field.to(self.device, copy=True) for n, field in state["fields"].items()}
        self._episode = state["episode"].to(self.device, copy=True)
        self._seed = state["seed"]


def above(name: str, value: float, bound: float) -> None:
    """Refuses a number that is not larger than ``bound``, NaN and infinity."""
    if not bound < value < math.inf:
        raise ValueError(f"{name} must be larger than {bound:g} and finite, got {value!r}")


def _flag_of(tensordict: TensorDictBase, name: str, like: Tensor) -> Tensor:
    shown = tensordict.get(name, None)
    return torch.zeros_like(like) if shown is None else shown.reshape(like.shape)


def _where(mask: Tensor, new: Fields, old: Fields) -> Fields:
    return {
        name: torch.where(mask.view(-1, *[1] * (field.ndim - 1)), new[name], field)
        for name, field in old.items()
    }
