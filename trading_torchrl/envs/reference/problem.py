"""What small problems with known answers have in common: N of them stepped as one batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import TensorDictModule
from torch import Tensor
from torchrl.data import Binary, Bounded, Categorical, Composite, Unbounded
from torchrl.data.tensor_specs import TensorSpec
from torchrl.envs import EnvBase

from trading_torchrl.envs import draws
from trading_torchrl.envs.settings import at_least

Fields = dict[str, Tensor]


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
        self._seed = seed
        self._account = torch.arange(first_account, first_account + num_envs, device=device)
        self._episode = torch.full_like(self._account, -1)
        self._fields: Fields = {}

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
        """Standard normal noise ``[N]`` of this step, its own for each ``stream`` below 256."""
        return draws.normal(self._seed, self._account, self._episode, self._place(stream))

    def uniform(self, stream: int = 0) -> Tensor:
        """Numbers in (0, 1), like :meth:`normal`."""
        return draws.uniform(self._seed, self._account, self._episode, self._place(stream))

    def _place(self, stream: int) -> Tensor:
        step = self._fields.get("step", torch.zeros_like(self._account))
        return 256 * step + stream

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
        action = tensordict.get("action")
        if self._choices is None:
            action = action.reshape(self.batch_size).double().clamp(-1, 1)
            readable = action == action
            allowed = "numbers"
        else:
            action = action.reshape(self.batch_size)
            readable = (action >= 0) & (action < self._choices)
            allowed = f"whole numbers from 0 to {self._choices - 1}"
        if not bool(readable.all()):
            account = int((~readable).nonzero()[0, 0])
            given = tensordict.get("action")[account].tolist()
            raise ValueError(f"account {account} got the action {given}; actions are {allowed}")
        changed, reward, terminated = self.advance(self._fields, action)
        step = self._fields["step"] + 1
        after = self._fields | changed | {"step": step}
        stepping = tensordict.get("_step", None)
        truncated = (step > self.steps) & ~terminated
        if stepping is not None:
            stepping = stepping.reshape(self.batch_size)
            after = _where(stepping, after, self._fields)
            reward = torch.where(stepping, reward, 0.0)
            terminated, truncated = terminated & stepping, truncated & stepping
        self._fields = after
        return self._show(terminated, truncated, {"reward": reward.float()[:, None]})

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

    def get_extra_state(self) -> dict[str, Any]:
        """Accounts and draws as they stand: with them a problem goes on bit for bit."""
        fields = {name: field.clone() for name, field in self._fields.items()}
        return {"fields": fields, "episode": self._episode, "seed": self._seed}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Goes on where :meth:`get_extra_state` left off."""
        if state["episode"].shape != self._episode.shape:
            raise ValueError(
                f"the saved state is of {len(state['episode'])} accounts, this problem has"
                f" {len(self._episode)}"
            )
        self._fields = {n: field.to(self.device) for n, field in state["fields"].items()}
        self._episode = state["episode"].to(self.device)
        self._seed = state["seed"]


def above(name: str, value: float, bound: float) -> None:
    """Refuses a number that is not larger than ``bound``, and NaN."""
    if not value > bound:
        raise ValueError(f"{name} must be larger than {bound:g}, got {value!r}")


def _where(mask: Tensor, new: Fields, old: Fields) -> Fields:
    return {
        name: torch.where(mask.view(-1, *[1] * (field.ndim - 1)), new[name], field)
        for name, field in old.items()
    }
