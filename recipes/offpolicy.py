"""Off-policy training, with SAC or another loss: collect, replay, learn, watch, evaluate, save.

    python recipes/offpolicy.py                              # the synthetic market
    python recipes/offpolicy.py env=garleanu_pedersen        # merton, ou_spread, planted_leak...
    python recipes/offpolicy.py market=csv market.path=prices/ env=long_only
    python recipes/offpolicy.py resume=outputs/offpolicy/... # exactly where it stopped; see --help

Ctrl-C saves and stops. The run's folder holds its settings, checkpoints, TensorBoard events,
alerts, metrics.json and report.html.
"""

import gc
import time
from copy import deepcopy
from math import isfinite, isnan
from typing import Any

import hydra
from agents import keys_to_store, make_agent, needs_rewards
from checks import plainly
from earlier import begin_from, earlier_run
from hindsight import hindsight_figures, make_hindsight
from launch import finish, runtime, set_machine, start
from learning import Run
from loop import (
    UNJUDGED,
    Course,
    Lately,
    due,
    evaluate,
    judge,
    restore,
    state_of,
    visits_of,
)  # fmt: skip
from omegaconf import DictConfig
from rewarding import make_paying
from stored import keep_replay
from tasks import make_task
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, ReplayBuffer
from torchrl.envs import Compose
from tqdm import tqdm

from trading_torchrl.checkpoint import Checkpoints
from trading_torchrl.descent import Adam, differentiate, norm_of
from trading_torchrl.modules import follow_slowly, moving
from trading_torchrl.monitoring import ActionWatch, broken
from trading_torchrl.resume import StopRequest, parameters_sha256
from trading_torchrl.state_file import CheckpointError


@hydra.main(version_base="1.3", config_path="conf", config_name="offpolicy")
@plainly(CheckpointError)
def main(config: DictConfig) -> None:
    """Trains, and reports."""
    # Settings, and what is trained on.
    began = time.perf_counter()
    run, settings, folder, resumed = start(config, Run)
    machine = set_machine(run.threads, run.matmul_precision, run.seed)
    old = earlier_run(folder if resumed else run.init)
    task = make_task(settings, old)

    # The agent: an actor, an ensemble of critics, and a slow copy of the actor to evaluate.
    actor, loss = make_agent(settings["loss"], settings["network"], task, run.hidden)
    needs_rewards(loss, "recipes/offpolicy.py")
    begin_from(old, actor, loss, settings)
    summed = [key for key in loss.out_keys if key.startswith("loss_")]
    averaged = deepcopy(actor).requires_grad_(False).eval()
    both = moving(averaged), moving(actor)
    trained = [each for each in loss.parameters() if each.requires_grad]
    optimizer = Adam(trained, lr=run.lr)
    paying = make_paying(settings, task, loss, run)
    shaping, objectives = paying.shaping, paying.objectives

    # Where experience comes from, and where it is kept.
    batch_frames = run.batch_frames
    collector = Collector(
        task.env,
        actor,
        frames_per_batch=batch_frames,
        total_frames=-1,
        init_random_frames=-(run.warmup_frames // -batch_frames) * batch_frames,
        trust_policy=True,
        track_traj_ids=False,
        auto_register_policy_transforms=False,
    )
    batches = iter(collector)
    storage = LazyTensorStorage(run.buffer_size, ndim=2 if settings.get("her") else 1)
    hindsight = make_hindsight(settings.get("her"), task, storage)
    transforms = [each for each in (hindsight, task.replay_transform()) if each is not None]
    replay = ReplayBuffer(
        storage=storage, batch_size=run.batch_size, transform=Compose(*transforms)
    )
    kept = keys_to_store(task, loss, hindsight, shaping, objectives)

    # What watches it, and what is kept of it.
    checkpoints = Checkpoints(folder / "checkpoints", run.keep)
    saved = checkpoints.newest()[1] if resumed else None
    run.keep_lengths(folder)
    known = saved["count"]["frames"] if saved else 0
    writer = run.writer(folder, purge_step=known + 1 if saved else None)
    watch, visits = ActionWatch(task.kind), visits_of(task, run.count_places)
    alerts = run.alerts_to(folder, writer)
    count: dict[str, Any] = {"frames": 0, "updates": 0, "owed": 0.0, "best": float("-inf")}
    evaluations: list[dict[str, float]] = []
    lately = Lately()

    parts = {"task": task, "loss": loss, "averaged": averaged, "optimizer": optimizer}
    parts |= {"watch": watch, "alerts": alerts, "lately": lately}
    parts |= paying.parts() | ({"visits": visits} if visits else {})
    held = parts, collector, replay, count, evaluations
    if saved:
        restore(saved, *held)
    else:
        checkpoints.save(0, state_of(*held))
    gc.freeze()  # what is there by now stays: it need not be looked through again and again
    trains, first = time.perf_counter(), dict(count)
    last = run.stop_at or run.total_frames
    stopped = ""
    bar = tqdm(total=last, initial=count["frames"], unit="frame", desc=task.name, smoothing=0.05)
    course = Course(run, task, checkpoints, held, alerts, writer, bar, {})

    try:
        with StopRequest() as request:
            while count["frames"] < last and not stopped:
                # Collect.
                batch = next(batches)
                count["frames"] += batch_frames
                frames = count["frames"]
                bar.update(batch_frames)
                wrong = broken({"reward": batch["next", "reward"]})
                watch.see(*task.watched(batch))
                if visits:
                    visits.see(task.place_of(batch))
                if objectives:
                    objectives.see(batch)
                rows = batch.select(*kept)
                replay.extend(rows if hindsight else rows.reshape(-1))

                # Learn.
                optimizer.lr = run.learning_rate(frames)
                if frames > run.warmup_frames:
                    count["owed"] += batch_frames * run.updates_per_frame
                while count["owed"] >= 1 and not wrong:
                    sample = replay.sample()
                    sample["next", "reward"].mul_(run.reward_scale)
                    pace = optimizer.lr / run.lr
                    sample, wrong = paying.rewarded(sample, count, pace)
                    losses = loss(sample)
                    total = sum(losses[each] for each in summed)
                    norm = differentiate(total, trained, run.max_grad_norm)
                    if wrong or isnan(norm):
                        wrong = wrong or broken(losses) or ["gradient norm"]
                        break
                    lately.see(losses, norm, sample)
                    optimizer.step()
                    loss.update_targets(run.tau)
                    follow_slowly(*both, run.actor_average)
                    count["updates"] += 1
                    count["owed"] -= 1
                if not wrong and not isfinite(norm_of(trained)):
                    wrong = ["parameters"]

                # Watch.
                figures: dict[str, float] = {}
                if wrong:
                    figures[f"train/{wrong[0]}"] = float("nan")
                elif lately.norms and due(frames, run.log_every, batch_frames):
                    figures, histograms = lately.figures(optimizer.lr, batch, watch)
                    figures |= paying.figures()
                    figures |= hindsight_figures(hindsight, batch, lately.sample, replay)
                    figures |= {"train/state_coverage": visits.coverage} if visits else {}
                    for name, values in histograms.items():
                        writer.add_histogram(name, values, frames)
                    lately.norms.clear()

                # Evaluate.
                judged: dict[str, float] = {}
                if not wrong and due(frames, run.evaluate_every, batch_frames):
                    judged = evaluate(task, averaged, run.seed)
                    parts_now = objectives.parts_and_weights() if objectives else {}
                    evaluations.append({"frames": float(frames), **judged, **parts_now})
                    figures |= {f"eval/{name}": value for name, value in judged.items()}
                    if shaping:
                        shaping.judged(judged)

                # Tell, heed alerts, save.
                stopped = course.goes_on(figures, judged, wrong, request.asked)
    finally:
        bar.close()
        collector.shutdown()
        writer.close()

    # Report.
    trained_for = time.perf_counter() - trains
    final = UNJUDGED
    split = settings["market"]["report_split"]
    if count["frames"] >= run.total_frames and not stopped:
        facts = {
            "seed": str(run.seed),
            "frames": f"{count['frames']:,}",
            "loss": type(loss).__name__,
        }
        final = judge(task, averaged, split, run.seed, evaluations, folder, facts)
    metrics = {
        **final,
        "evaluations": evaluations,
        "seed": run.seed,
        "frames": count["frames"],
        "updates": count["updates"],
        "stopped": stopped,
        "state_coverage": visits.coverage if visits else None,
        **paying.told(),
        "parameters_sha256": parameters_sha256(loss, averaged, *paying.losses),
        "runtime": runtime(began, trained_for, first, count) | machine,
    }
    if settings["replay"]["save"]:
        keep_replay(folder, replay, count["frames"], settings, task)
    finish(folder, metrics, writer)


if __name__ == "__main__":
    main()
