"""On-policy training, with PPO or another loss: collect, learn from that alone, watch, evaluate.

    python recipes/onpolicy.py                               # PPO on the synthetic market
    python recipes/onpolicy.py loss=vtrace                   # ppo_kl, a2c, reinforce
    python recipes/onpolicy.py env=cartpole                  # garleanu_pedersen, pendulum...
    python recipes/onpolicy.py env.actions=discrete          # names of trades, with their mask
    python recipes/onpolicy.py resume=outputs/onpolicy/...   # exactly where it stopped; see --help

Ctrl-C saves and stops. The run's folder holds what one of `recipes/offpolicy.py` does.
"""

import gc
import time
from copy import deepcopy
from math import isfinite, isnan
from typing import Any

import hydra
import torch
from agents import discount, make_agent, needs_newest, scale_of
from checks import plainly
from earlier import begin_from, earlier_run
from launch import finish, runtime, set_machine, start
from learning import NewestRun
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
from newest import makes_sense, steps_of
from omegaconf import DictConfig
from rewarding import make_paying
from tasks import make_task
from tasks.task import seen_by
from torchrl.collectors import Collector
from tqdm import tqdm

from trading_torchrl.checkpoint import Checkpoints
from trading_torchrl.descent import Adam, differentiate, norm_of
from trading_torchrl.modules import RewardScale, follow_slowly, moving
from trading_torchrl.modules.networks import joined
from trading_torchrl.monitoring import ActionWatch, broken
from trading_torchrl.resume import StopRequest, parameters_sha256
from trading_torchrl.state_file import CheckpointError


@hydra.main(version_base="1.3", config_path="conf", config_name="onpolicy")
@plainly(CheckpointError)
def main(config: DictConfig) -> None:
    """Trains, and reports."""
    # Settings, and what is trained on.
    began = time.perf_counter()
    run, settings, folder, resumed = start(config, NewestRun)
    makes_sense(settings)
    machine = set_machine(run.threads, run.matmul_precision, run.seed)
    old = earlier_run(folder if resumed else run.init)
    task = make_task(settings, old)

    # The agent: an actor and a critic, and an averaged actor to evaluate.
    scale = scale_of(settings, task)
    actor, loss = make_agent(settings["loss"], settings["network"], task, run.hidden, scale=scale)
    needs_newest(loss, "recipes/onpolicy.py")
    begin_from(old, actor, loss, settings)
    paying = make_paying(settings, task, loss, run)
    summed = [key for key in loss.out_keys if key.startswith("loss_")]
    averaged = deepcopy(actor, {id(scale): scale}).requires_grad_(False).eval()
    both = moving(averaged), moving(actor)
    trained = [each for each in loss.parameters() if each.requires_grad]
    optimizer = Adam(trained, lr=run.lr, eps=1e-5)
    paid = RewardScale(run.num_envs, discount(settings))

    # Where experience comes from.
    batch_frames = run.batch_frames
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
    run.keep_lengths(folder)
    known = saved["count"]["frames"] if saved else 0
    writer = run.writer(folder, purge_step=known + 1 if saved else None)
    watch, visits = ActionWatch(task.kind), visits_of(task, run.count_places)
    alerts = run.alerts_to(folder, writer)
    count: dict[str, Any] = {"frames": 0, "updates": 0, "best": float("-inf")}
    evaluations: list[dict[str, float]] = []
    lately = Lately()

    parts = {"task": task, "loss": loss, "averaged": averaged, "optimizer": optimizer}
    parts |= {"watch": watch, "alerts": alerts, "lately": lately, "paid": paid}
    parts |= paying.parts() | ({"visits": visits} if visits else {})
    held = parts, collector, None, count, evaluations
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
                if paying.objectives:
                    paying.objectives.see(batch)

                # Pay.
                rows = steps_of(batch)
                rewards, done = rows["next", "reward"] * run.reward_scale, rows["next", "done"]
                if settings["normalise"]["rewards"] and not wrong:
                    rewards = paid(rewards, done)
                rows["next", "reward"] = rewards
                before, rows = rows, paying.paid(rows, frames)

                # Learn.
                optimizer.lr = run.learning_rate(frames)
                learned = loss.estimate(rows).select(*loss.in_keys)
                if not loss.sequences:
                    before, rows, learned = (each.reshape(-1) for each in (before, rows, learned))
                size = max(run.batch_size // (run.steps_per_batch if loss.sequences else 1), 1)
                moved = 0.0
                for _ in range(run.epochs):
                    for some in torch.randperm(len(learned)).split(size):
                        if wrong or (run.max_kl is not None and moved > run.max_kl):
                            break
                        sample = learned[some]
                        losses = loss(sample)
                        total = sum(losses[each] for each in summed)
                        norm = differentiate(total, trained, run.max_grad_norm)
                        if paying.learns:
                            wrong = paying.learn(before[some], rows[some], count["updates"])
                        if wrong or isnan(norm):
                            wrong = wrong or broken(losses) or ["gradient norm"]
                            break
                        lately.see(losses, norm, sample)
                        optimizer.step()
                        follow_slowly(*both, run.actor_average)
                        count["updates"] += 1
                        moved = float(losses["kl"])
                loss.next_batch()
                if scale is not None:  # by what collects next: ratios of this batch began at 1
                    scale.see(joined([batch[key] for key in seen_by(task)]))
                if not wrong and not isfinite(norm_of(trained)):
                    wrong = ["parameters"]

                # Watch.
                figures: dict[str, float] = {}
                if wrong:
                    figures[f"train/{wrong[0]}"] = float("nan")
                elif lately.norms and due(frames, run.log_every, batch_frames):
                    figures, histograms = lately.figures(optimizer.lr, batch, watch)
                    figures |= paying.figures()
                    figures |= {"train/state_coverage": visits.coverage} if visits else {}
                    for name, values in histograms.items():
                        writer.add_histogram(name, values, frames)
                    lately.norms.clear()

                # Evaluate.
                judged: dict[str, float] = {}
                if not wrong and due(frames, run.evaluate_every, batch_frames):
                    judged = evaluate(task, averaged, run.seed)
                    objectives = paying.objectives
                    parts_now = objectives.parts_and_weights() if objectives else {}
                    evaluations.append({"frames": float(frames), **judged, **parts_now})
                    figures |= {f"eval/{name}": value for name, value in judged.items()}
                    if paying.shaping:
                        paying.shaping.judged(judged)

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
    finish(folder, metrics, writer)


if __name__ == "__main__":
    main()
