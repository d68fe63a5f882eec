"""Offline training: learn from rows that another run stored, then perhaps go on online.

    python recipes/offpolicy.py replay.save=true             # leaves the data
    python recipes/offline.py data=outputs/offpolicy/...     # loss=iql, cql, bc
    python recipes/offline.py data=... fine_tune_frames=100_000
    python recipes/offline.py resume=outputs/offline/...     # exactly where it stopped; see --help

The clock is updates. Ctrl-C saves and stops. The run's folder holds what one of
`recipes/offpolicy.py` does, so `recipes/evaluate.py` judges it, and `init=` begins with it.
"""

import gc
import time
from copy import deepcopy
from math import isfinite, isnan
from pathlib import Path
from typing import Any

import hydra
import torch
from agents import keys_to_store, make_agent, needs_rewards
from checks import plainly
from earlier import begin_from, earlier_run
from hydra.core.hydra_config import HydraConfig
from launch import finish, runtime, set_machine, start
from loop import UNJUDGED, Lately, due, evaluate, judge, reason, restore, state_of, tell
from omegaconf import DictConfig
from stored import OfflineRun, check_sight, keep_replay, read_replay, rows_for, with_data
from tasks import make_task
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, ReplayBuffer
from tqdm import tqdm

from trading_torchrl.checkpoint import Checkpoints
from trading_torchrl.descent import Adam, differentiate, norm_of
from trading_torchrl.modules import follow_slowly, moving
from trading_torchrl.monitoring import ActionWatch, broken
from trading_torchrl.replay import fill
from trading_torchrl.resume import StopRequest, parameters_sha256
from trading_torchrl.state_file import CheckpointError


@hydra.main(version_base="1.3", config_path="conf", config_name="offline")
@plainly(CheckpointError)
def main(config: DictConfig) -> None:
    """Trains, and reports."""
    # Settings, and what is trained on.
    began = time.perf_counter()
    given = with_data(config, HydraConfig.get().overrides.task)
    run, settings, folder, resumed = start(given, OfflineRun)
    machine = set_machine(run.threads, run.matmul_precision, run.seed)
    source = Path(settings["data"])
    stored = read_replay(source, settings)
    task = make_task(settings, stored)

    # The agent: an actor, what judges it, and a slow copy of the actor to evaluate.
    actor, loss = make_agent(settings["loss"], settings["network"], task, run.hidden, stored=True)
    if run.fine_tune_frames:
        needs_rewards(loss, f"fine_tune_frames={run.fine_tune_frames}")
    old = earlier_run(folder if resumed else run.init)
    check_sight(old, stored)
    begin_from(old, actor, loss, settings)
    kept = keys_to_store(task, loss)
    stored = rows_for(task, kept, stored, source)
    summed = [key for key in loss.out_keys if key.startswith("loss_")]
    averaged = deepcopy(actor).requires_grad_(False).eval()
    both = moving(averaged), moving(actor)
    trained = [each for each in loss.parameters() if each.requires_grad]
    optimizer = Adam(trained, lr=run.lr)

    # Stored rows, with room for those of fine-tuning, and where these come from.
    batch_frames = run.num_envs * run.steps_per_batch
    room = stored["filled"] + run.fine_tune_frames + batch_frames
    replay = ReplayBuffer(
        storage=LazyTensorStorage(room),
        batch_size=run.batch_size,
        transform=task.replay_transform(),
    )
    fill(replay, stored)
    data = {name: stored[name] for name in ("checksum", "filled", "frames", "wrapped")}
    data["mean_reward"] = float(stored.pop("rows")["next"]["reward"].mean())
    collector = Collector(
        task.env,
        actor,
        frames_per_batch=batch_frames,
        total_frames=-1,
        trust_policy=True,
        track_traj_ids=False,
        auto_register_policy_transforms=False,
    )
    batches = iter(collector)

    # What watches it, and what is kept of it.
    checkpoints = Checkpoints(folder / "checkpoints", run.keep)
    saved = checkpoints.newest()[1] if resumed else None
    if saved and saved["count"]["data"] != data["checksum"]:
        raise SystemExit(
            f"{source} holds other data than this run began with: bring the file back as it was,"
            " or start a new run"
        )
    if saved and run.fine_tune_frames <= saved["count"]["frames"] - batch_frames:
        raise SystemExit(
            f"fine_tune_frames={run.fine_tune_frames}: this run has collected"
            f" {saved['count']['frames']} already; give as many or more, or start a new run"
        )
    run.keep_lengths(folder)
    known = saved["count"]["updates"] if saved else 0
    writer = run.writer(folder, purge_step=known + 1 if saved else None)
    watch = ActionWatch(task.kind)
    alerts = run.alerts_to(folder, writer)
    count: dict[str, Any] = {"frames": 0, "updates": 0, "owed": 0.0, "best": float("-inf")}
    count["data"] = data["checksum"]
    evaluations: list[dict[str, float]] = []
    lately = Lately()
    shown: dict[str, str] = {}
    parts = {"task": task, "loss": loss, "averaged": averaged, "optimizer": optimizer}
    parts |= {"watch": watch, "alerts": alerts, "lately": lately}
    held = parts, collector, replay, count, evaluations

    def state() -> dict[str, Any]:
        own = replay if count["frames"] else None  # until it collects, the rows are the data's
        return state_of(parts, collector, own, count, evaluations)

    if saved:
        restore(saved, *held)
    else:
        checkpoints.save(0, state())
    gc.freeze()  # what is there by now stays: it need not be looked through again and again
    trains, first = time.perf_counter(), dict(count)
    last = run.stop_at or run.length
    stopped = ""
    bar = tqdm(total=last, initial=count["updates"], unit="update", desc=task.name, smoothing=0.05)

    try:
        with StopRequest() as request:
            while count["updates"] < last and not stopped:
                wrong: list[str] = []

                # Fine-tune: collect beside learning.
                if count["updates"] >= run.updates and count["frames"] < run.fine_tune_frames:
                    count["owed"] += 1 / run.updates_per_frame
                while (
                    count["owed"] >= batch_frames
                    and count["frames"] < run.fine_tune_frames
                    and not wrong
                ):
                    batch = next(batches)
                    count["frames"] += batch_frames
                    count["owed"] -= batch_frames
                    wrong = broken({"reward": batch["next", "reward"]})
                    watch.see(*task.watched(batch))
                    replay.extend(batch.select(*kept).reshape(-1))

                # Learn.
                count["updates"] += 1
                updates = count["updates"]
                bar.update()
                optimizer.lr = run.learning_rate(updates)
                sample = replay.sample()
                scaled = sample.copy()
                scaled["next", "reward"] = run.reward_scale * sample["next", "reward"]
                losses = loss(scaled)
                total = sum(losses[each] for each in summed)
                norm = differentiate(total, trained, run.max_grad_norm)
                if isnan(norm):
                    wrong = wrong or broken(losses) or ["gradient norm"]
                if not wrong:
                    lately.see(losses, norm, sample)
                    optimizer.step()
                    loss.update_targets(run.tau)
                    follow_slowly(*both, run.actor_average)
                    wrong = [] if isfinite(norm_of(trained)) else ["parameters"]

                # Watch.
                figures: dict[str, float] = {}
                if wrong:
                    figures[f"train/{wrong[0]}"] = float("nan")
                elif due(updates, run.log_every, 1):
                    figures, histograms = lately.figures(optimizer.lr, sample, watch)
                    for name, values in histograms.items():
                        writer.add_histogram(name, values, updates)
                    lately.norms.clear()

                # Evaluate.
                judged: dict[str, float] = {}
                if not wrong and due(updates, run.evaluate_every, 1):
                    judged = evaluate(task, averaged, run.seed)
                    seen = {"updates": float(updates), "frames": float(count["frames"])}
                    evaluations.append({**seen, **judged})
                    figures |= {f"eval/{name}": value for name, value in judged.items()}

                tell(figures, updates, writer, bar, shown, task.score)
                told = wrong or updates >= run.watch_from
                verdict = alerts.check(figures if told else {}, updates)
                if verdict.then == "stop":
                    stopped = next(a.message for a in verdict.alerts if a.then == "stop")
                if wrong or verdict.then == "roll_back":
                    good, saved = checkpoints.newest()
                    where = f"update {updates}, {count['frames']:,} frames"
                    why = reason(wrong, verdict)
                    tqdm.write(f"{why} at {where}; the last good checkpoint is {good}")
                    if not stopped:
                        if saved["replay"] is None:
                            again = read_replay(source, settings)
                            fill(replay, rows_for(task, kept, again, source))
                        restore(saved, *held)
                        torch.manual_seed(run.seed + updates)  # other draws, or it happens again
                        checkpoints.save(count["updates"], state())
                        bar.n = count["updates"]
                    continue

                # Save.
                stopped = stopped or request.asked
                better = judged.get(task.score, float("-inf")) > count["best"]
                count["best"] = judged[task.score] if better else count["best"]
                late = stopped or updates >= last
                if better or late or due(updates, run.checkpoint_every, 1):
                    checkpoints.save(updates, state(), best=better)
    finally:
        bar.close()
        collector.shutdown()
        writer.close()

    # Report.
    trained_for = time.perf_counter() - trains
    final = UNJUDGED
    split = settings["market"]["report_split"]
    if count["updates"] >= run.length and not stopped:
        facts = {
            "seed": str(run.seed),
            "data": f"{source.name}: {data['filled']:,} rows",
            "updates": f"{count['updates']:,}",
            "frames": f"{count['frames']:,}",
            "loss": type(loss).__name__,
        }
        final = judge(task, averaged, split, run.seed, evaluations, folder, facts)
    metrics = {
        **final,
        "evaluations": evaluations,
        "seed": run.seed,
        "data": data,
        "frames": count["frames"],
        "updates": count["updates"],
        "stopped": stopped,
        "parameters_sha256": parameters_sha256(loss, averaged),
        "runtime": runtime(began, trained_for, first, count) | machine,
    }
    if settings["replay"]["save"]:
        keep_replay(folder, replay, data["frames"] + count["frames"], settings, task)
    finish(folder, metrics, writer)


if __name__ == "__main__":
    main()
