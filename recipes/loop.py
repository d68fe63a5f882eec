"""What the loops of the recipes have in common: their state, and what they tell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from checks import plainly
from learning import Learning
from tasks import Task
from tasks.task import Figures, Policy
from tensordict import TensorDict, TensorDictBase
from torch import Tensor
from torch.utils.tensorboard import SummaryWriter
from torchrl.collectors import Collector
from torchrl.data import ReplayBuffer
from tqdm import tqdm

from trading_torchrl.checkpoint import Checkpoints
from trading_torchrl.evaluation.tables import PATHS
from trading_torchrl.monitoring import ActionWatch, Alerts, Verdict, Visits
from trading_torchrl.replay.hindsight import RELABELED
from trading_torchrl.resume import (
    collector_state,
    replay_state,
    restore_collector,
    restore_replay,
)

UNJUDGED: dict[str, Any] = {"figures": {}, "symbols": {}, "split": None}
"""What a run reports that did not come to its end."""

Parts = Mapping[str, Any]
"""What has a ``state_dict``, by name."""

Held = tuple[Parts, Collector | None, ReplayBuffer | None, dict[str, Any], list[dict[str, float]]]
"""What :func:`state_of` and :func:`restore` take: all that a run goes on from."""


def due(frames: int, every: int, batch: int) -> bool:
    """Whether the last ``batch`` frames passed a multiple of ``every``."""
    return frames // every > (frames - batch) // every


def highlights(figures: Mapping[str, float], score: str) -> dict[str, str]:
    """Those of the figures that stand beside the progress bar."""
    named = {
        score: f"eval/{score}",
        "reward": "train/reward",
        "td_error": "train/td_error",
        "alpha": "train/ent_coef",
        "entropy": "train/action_entropy_continuous",
    }
    return {name: f"{figures[key]:.3g}" for name, key in named.items() if key in figures}


class Lately:
    """What updates came to since figures were last written down.

    Where updates are rarer than batches, a run that goes on may write figures before its first.
    """

    def __init__(self) -> None:
        self.norms: list[float] = []
        """of the gradients of each update"""
        self.losses: TensorDictBase = TensorDict()
        """of the last update"""
        self.sample: TensorDictBase = TensorDict()
        """that it learned from"""

    def see(self, losses: TensorDictBase, norm: float, sample: TensorDictBase) -> None:
        """One update."""
        self.norms.append(norm)
        self.losses, self.sample = losses, sample

    def figures(
        self, rate: float, batch: TensorDictBase, watch: ActionWatch
    ) -> tuple[Figures, dict[str, Tensor]]:
        """And histograms: of updates, of rewards of a batch, of what the exploring policy did."""
        renamed = {"loss_actor": "actor_loss", "loss_objective": "actor_loss", "alpha": "ent_coef"}
        renamed |= dict.fromkeys(("loss_qvalue", "loss_critic"), "critic_loss")
        shown = {
            **{renamed.get(str(name), str(name)): value for name, value in self.losses.items()},
            "reward": batch["next", "reward"].mean(),
        }
        figures = {name: float(value.detach()) for name, value in shown.items()} | watch.figures()
        figures |= {"grad_norm": max(self.norms)} if self.norms else {}
        figures["learning_rate"] = rate
        histograms = {
            "actions/continuous_distribution": batch["action"],
            "rewards/component_histogram": batch["next", "reward"],
        }
        if self.norms:
            histograms["gradients/norm_distribution"] = torch.tensor(self.norms)
        return {f"train/{name}": value for name, value in figures.items()}, histograms

    def state_dict(self) -> dict[str, Any]:
        """All that figures are made of."""
        return {
            "norms": list(self.norms),
            "losses": self.losses.detach().to_dict(),
            "sample": self.sample.select(RELABELED, strict=False).to_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where :meth:`state_dict` left off."""
        self.norms[:] = state["norms"]
        self.losses, self.sample = TensorDict(state["losses"]), TensorDict(state["sample"])


def state_of(
    parts: Parts,
    collector: Collector | None,
    replay: ReplayBuffer | None,
    count: Mapping[str, Any],
    evaluations: list[dict[str, float]],
) -> dict[str, Any]:
    """All that a run needs to go on bit for bit; without rows where these stand elsewhere."""
    return {
        **{name: part.state_dict() for name, part in parts.items()},
        "collector": None if collector is None else collector_state(collector),
        "replay": None if replay is None else replay_state(replay),
        "random": torch.get_rng_state(),
        "count": dict(count),
        "evaluations": list(evaluations),
    }


@plainly(ValueError)
def restore(
    saved: Mapping[str, Any],
    parts: Parts,
    collector: Collector | None,
    replay: ReplayBuffer | None,
    count: dict[str, Any],
    evaluations: list[dict[str, float]],
) -> None:
    """Goes on where :func:`state_of` left off."""
    lacking = [name for name in parts if name not in saved]
    if lacking:
        raise SystemExit(
            f"this checkpoint knows nothing of {', '.join(lacking)}: another version wrote it,"
            " which can go on with it; start a new run, with init= to begin with its networks"
        )
    for name, part in parts.items():
        part.load_state_dict(saved[name])
    if collector is not None:
        restore_collector(collector, saved["collector"])
    if replay is not None and saved["replay"] is not None:
        restore_replay(replay, saved["replay"])
    torch.set_rng_state(saved["random"])
    count.update(saved["count"])
    evaluations[:] = saved["evaluations"]


def evaluate(task: Task, policy: Policy, seed: int) -> Figures:
    """Figures of a policy, by draws of their own: training draws what it would have drawn."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return {name: value for name, value in task.evaluate(policy).items() if name != PATHS}


def judge(
    task: Task,
    policy: Policy,
    split: str,
    seed: int,
    evaluations: list[dict[str, float]],
    folder: Path,
    facts: Mapping[str, str],
) -> dict[str, Any]:
    """At its end: leaves ``report.html``; figures, those of each symbol, and what they are of."""
    torch.manual_seed(seed)
    judged = replace(task.judge(policy, split), training=evaluations)
    written = judged.write(folder, facts)
    of_options = {} if judged.options is None else {"by_option": judged.options}
    return {"figures": written, "symbols": judged.symbols, "split": split, **of_options}


def tell(
    figures: Figures, at: int, writer: SummaryWriter, bar: tqdm, shown: dict[str, str], score: str
) -> None:
    """Writes figures down, and the most telling ones beside the progress bar."""
    for name, value in figures.items():
        writer.add_scalar(name, value, at)
    if figures:
        shown |= highlights(figures, score)
        bar.set_postfix(shown)


def visits_of(task: Task, count: bool) -> Visits | None:
    """What counts the places that are explored, if that is asked for."""
    if count and not task.places:
        raise SystemExit(
            f"count_places=true: {task.name} has no places to count; markets and mazes have"
        )
    return Visits(task.places) if count else None


def roll_back(
    run: Learning,
    checkpoints: Checkpoints,
    held: Held,
    why: str,
    bar: tqdm,
    *,
    stops: bool,
) -> None:
    """Says why, and takes a run back to its last good checkpoint, but for one that ``stops``."""
    good, saved = checkpoints.newest()
    count = held[3]
    where = f"update {count['updates']}, {count['frames']:,} frames"
    tqdm.write(f"{why} at {where}; the last good checkpoint is {good}")
    if stops:
        return
    after = count[run.clock]
    restore(saved, *held)
    torch.manual_seed(run.seed + after)  # other draws, or it happens again
    checkpoints.save(count[run.clock], state_of(*held))
    bar.n = count[run.clock]


class Course(NamedTuple):
    """What a run goes by after each batch."""

    run: Learning
    task: Task
    checkpoints: Checkpoints
    held: Held
    alerts: Alerts
    writer: SummaryWriter
    bar: tqdm
    shown: dict[str, str]
    """beside the bar"""

    def goes_on(self, figures: Figures, judged: Figures, wrong: list[str], asked: str) -> str:
        """Tells of a batch, heeds alerts, goes back where it must, saves; why it stops, if it does.

        Args:
            figures: to write down.
            judged: of an evaluation, if there was one.
            wrong: what is not finite; then the run goes back to its last good checkpoint.
            asked: by what signal to stop.
        """
        run, count = self.run, self.held[3]
        now = count[run.clock]
        tell(figures, now, self.writer, self.bar, self.shown, self.task.score)
        told = wrong or now >= run.watch_from  # an untrained policy may look collapsed
        verdict = self.alerts.check(figures if told else {}, now)
        stopped = ""
        if verdict.then == "stop":
            stopped = next(each.message for each in verdict.alerts if each.then == "stop")
        if wrong or verdict.then == "roll_back":
            why = reason(wrong, verdict)
            roll_back(run, self.checkpoints, self.held, why, self.bar, stops=bool(stopped))
            return stopped
        stopped = stopped or asked
        better = judged.get(self.task.score, float("-inf")) > count["best"]
        count["best"] = judged[self.task.score] if better else count["best"]
        late = stopped or now >= (run.stop_at or run.length)
        if better or late or due(now, run.checkpoint_every, run.stride):
            self.checkpoints.save(now, state_of(*self.held), best=better)
        return stopped


def reason(wrong: list[str], verdict: Verdict) -> str:
    """Why a run goes back."""
    return f"{' and '.join(wrong)} not finite" if wrong else verdict.alerts[0].message
