"""Problems with known answers, judged by the share of the optimum."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tensordict import TensorDictBase
from torch import Tensor

from tasks.task import ROW, Figures, Policy
from trading_torchrl.envs import reference
from trading_torchrl.envs.reference import optimum_share
from trading_torchrl.evaluation import (
    write_report,
)

PROBLEMS = ("GarleanuPedersen", "Merton", "OUSpread", "PlantedLeak", "Martingale")


class Reference:
    """A problem with a known answer; judged by the share of the optimum, on common noise."""

    score = "optimum_share"
    kind = "target"
    in_keys: tuple[str, ...] = ("observation",)
    stored: tuple[Any, ...] = ROW

    def __init__(self, env: Mapping[str, Any], num_envs: int, seed: int) -> None:
        settings = dict(env)
        name = settings.pop("problem")
        if name not in PROBLEMS:
            raise ValueError(f"env.problem is one of {', '.join(PROBLEMS)}; got {name!r}")
        self.name = name
        self.env = getattr(reference, name)(num_envs, seed=seed, **settings)
        self.inputs = self.env.observation_spec["observation"].shape[-1]
        self.actions = 1

    def watched(self, batch: TensorDictBase) -> tuple[Tensor, Tensor | None, Tensor]:
        """Actions and ends."""
        return batch["action"], None, batch["next", "done"]

    def replay_transform(self) -> None:
        """Rows are stored as they are."""

    def evaluate(self, policy: Policy, episodes: int = 64, seed: int = 1_000_000) -> Figures:
        """The share of the optimum; where that is 0, as in a martingale, the score."""
        found = optimum_share(policy, self.env, episodes=episodes, seed=seed)
        return {"optimum_share": found.share, "optimum_share_error": found.error,
                "score": found.score}  # fmt: skip

    def report(
        self, policy: Policy, split: str, folder: Path, facts: Mapping[str, str], log: list[Figures]
    ) -> Figures:
        """The share of the optimum on fresh noise."""
        seed = {"validation": 1_000_000, "test": 4_000_000}[split]
        final = self.evaluate(policy, 256, seed)
        title = f"{self.name}: share of the optimum"
        facts = {**facts, "split": f"{split}: 256 episodes from seed {seed:,}"}
        write_report(
            folder / "report.html", title, facts=facts, rows={"agent": final}, accounts=None,
            training=log,
        )  # fmt: skip
        return final
