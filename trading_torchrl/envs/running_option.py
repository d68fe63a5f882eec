"""Which option an account is carrying out: it travels with the rows, from step to step."""

from __future__ import annotations

import torch
from tensordict import TensorDict, TensorDictBase
from torch import Tensor
from torchrl.data import Categorical, Composite, TensorSpec, Unbounded
from torchrl.envs import Transform

INDEX, STEPS = ("option", "index"), ("option", "steps")
ENTERED, LASTED = ("option", "entered"), ("option", "lasted")
ALLOWED, LOG_PROB = ("option", "allowed"), ("option", "log_prob")

NONE = -1
"""Index before the first choice of an episode."""

AT_FIRST = {INDEX: NONE, STEPS: 0, ENTERED: False, LASTED: 1.0}
TYPES = {
    INDEX: torch.int64,
    STEPS: torch.int64,
    ENTERED: torch.bool,
    LASTED: torch.float32,
}


class RunningOption(Transform):
    """Carries the option of each account on to its next step, and lets it go at a reset.

    A policy finds in the root, ``[N, 1]`` each, and writes anew:

    - ``("option", "index")``, int64: which option runs; -1 before the first choice;
    - ``("option", "steps")``, int64: bars it has acted on; one more in ``next``;
    - ``("option", "entered")``, bool: whether there has been a position since it began;
    - ``("option", "lasted")``, float32: how likely it was to last until now.

    Nothing of it lives in the environment or in the policy, so that worker processes, replay
    buffers and checkpoints handle it as any other value.
    """

    def __init__(self) -> None:
        super().__init__(in_keys=[], out_keys=list(AT_FIRST))

    def _reset(
        self, tensordict: TensorDictBase | None, tensordict_reset: TensorDictBase
    ) -> TensorDictBase:
        # Of accounts that are not reset the environment keeps what they had.
        for key, value in AT_FIRST.items():
            shape = (*tensordict_reset.shape, 1)
            first = torch.full(shape, value, dtype=TYPES[key], device=tensordict_reset.device)
            tensordict_reset.set(key, first)
        return tensordict_reset

    def _step(self, tensordict: TensorDictBase, next_tensordict: TensorDictBase) -> TensorDictBase:
        option = tensordict.get("option")
        now = {name: option.get(name) for _, name in AT_FIRST}
        steps = tensordict.get("_step", None)  # of accounts that do not sit this one out
        now["steps"] = now["steps"] + (
            1 if steps is None else steps.reshape(*tensordict.shape, 1).long()
        )
        whole = {"batch_size": next_tensordict.batch_size, "device": next_tensordict.device}
        return next_tensordict.set("option", TensorDict._new_unsafe(now, **whole))

    def let_go(self, option: TensorDictBase, ended: Tensor) -> TensorDict:
        """The running options ``[N]`` without those of accounts whose episode ended, ``[N, 1]``."""
        now = {
            name: torch.where(ended, AT_FIRST["option", name], each)
            for name, each in option.items()
        }
        whole = {"batch_size": option.batch_size, "device": option.device}
        return TensorDict._new_unsafe(now, **whole)

    def transform_observation_spec(self, observation_spec: TensorSpec) -> TensorSpec:
        """Adds all four."""
        assert isinstance(observation_spec, Composite)
        shape, device = (*observation_spec.shape, 1), observation_spec.device
        for key, dtype in TYPES.items():
            flag = dtype == torch.bool
            observation_spec[key] = (
                Categorical(2, shape, device=device, dtype=dtype)
                if flag
                else Unbounded(shape, device=device, dtype=dtype)
            )
        return observation_spec
