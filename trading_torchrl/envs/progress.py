"""Where an environment stands: all that changes while it runs, to be saved and gone on with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from trading_torchrl.envs.memory import Memory
from trading_torchrl.envs.packing import Packs, unpack


class Progress:
    """What changes while an environment runs; a plain object, as modules are slow to write to."""

    def __init__(self, account: Tensor, mode: str | None) -> None:
        self.mode = mode
        self.held: Packs[str] = {}
        self.memory: Memory | None = None
        self.episode = torch.full_like(account, -1)
        self.any_ended = False

    @property
    def accounts(self) -> dict[str, Tensor]:
        """The accounts' fields by name."""
        return unpack(self.held)

    def state(self) -> dict[str, Any]:
        """All of it, copied, for :meth:`restore`."""
        return {
            "accounts": {names: tensor.clone() for names, tensor in self.held.items()},
            "memory": None if self.memory is None else self.memory.state(),
            "episode": self.episode.clone(),
            "mode": self.mode,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Goes on where :meth:`state` left off."""
        device, memory = self.episode.device, state["memory"]
        self.held = {
            names: tensor.to(device, copy=True) for names, tensor in state["accounts"].items()
        }
        self.memory = None if memory is None else Memory.of(memory, device)
        self.episode = state["episode"].to(device, copy=True)
        self.mode = state["mode"]


HINTS = {
    "compiled": (
        "; step as then by compiled={was}. Where that follows from whether a C++ compiler is found,"
        " the environment variable CXX names one, and CXX=none hides it"
    )
}
"""What to do where these differ."""


def check_fit(saved: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    """Refuses accounts saved under other settings, which would mean something else here."""
    for name, value in saved.items():
        if own.get(name) != value:
            raise ValueError(
                f"the saved accounts do not fit this environment: {name} was {value} there and is"
                f" {own.get(name)} here{HINTS.get(name, '').format(was=value)}"
            )
