"""IMPALA: actors collect, a learner learns from what comes in, by V-trace or another loss.

    python recipes/impala.py                            # this process collects as well
    python recipes/impala.py actors=2                   # processes on this machine collect
    python recipes/impala.py actors=2 distributed=ray   # on a Ray cluster, or one begun here
    python recipes/impala.py env=garleanu_pedersen lag=16 loss=a2c
    python recipes/impala.py resume=outputs/impala/...  # where it stopped; see --help

Actors act by weights that may be some updates old, which V-trace allows for. One that dies is
replaced. Ctrl-C saves and stops. The run's folder holds what one of `recipes/offpolicy.py` does.
"""

import gc
import time
from copy import deepcopy
from math import isfinite, isnan
from statistics import fmean
from typing import Any

import hydra
from agents import make_agent, needs_newest, scale_of
from checks import plainly
from crews import make_crew
from earlier import begin_from, earlier_run
from launch import finish, runtime, set_machine, start
from learning import ActorsRun
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
from newest import makes_sense_apart
from omegaconf import DictConfig
from tasks import make_task
from tasks.task import seen_by
from tqdm import tqdm

from trading_torchrl.actors import ActorError
from trading_torchrl.checkpoint import Checkpoints
from trading_torchrl.descent import Adam, differentiate, norm_of
from trading_torchrl.modules import follow_slowly, moving
from trading_torchrl.modules.networks import joined
from trading_torchrl.monitoring import ActionWatch, broken
from trading_torchrl.resume import StopRequest, parameters_sha256
from trading_torchrl.state_file import CheckpointError


@hydra.main(version_base="1.3", config_path="conf", config_name="impala")
@plainly(CheckpointError, ActorError)
def main(config: DictConfig) -> None:
    """Trains, and reports."""
    # Settings, and what is trained on.
    began = time.perf_counter()
    run, settings, folder, resumed = start(config, ActorsRun)
    makes_sense_apart(settings)
    machine = set_machine(run.threads, run.matmul_precision, run.seed)
    old = earlier_run(folder if resumed else run.init)
    task = make_task(settings, old)

    # The agent: an actor and a critic, and an averaged actor to evaluate.
    scale = scale_of(settings, task)
    actor, loss = make_agent(settings["loss"], settings["network"], task, run.hidden, scale=scale)
    needs_newest(loss, "recipes/impala.py")
    begin_from(old, actor, loss, settings)
    summed = [key for key in loss.out_keys if key.startswith("loss_")]
    averaged = deepcopy(actor, {id(scale): scale}).requires_grad_(False).eval()
    both = moving(averaged), moving(actor)
    trained = [each for each in loss.parameters() if each.requires_grad]
    optimizer = Adam(trained, lr=run.lr, eps=1e-5)

    # Where experience comes from.
    crew = make_crew(run, settings, task, actor, loss, tqdm.write)
    deliveries = run.batch_size // run.num_envs

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
    lately, lags = Lately(), list[int]()

    parts = {"task": task, "loss": loss, "averaged": averaged, "optimizer": optimizer}
    parts |= {"watch": watch, "alerts": alerts, "lately": lately, "crew": crew}
    parts |= {"visits": visits} if visits else {}
    held = parts, None, None, count, evaluations
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
                # Take what actors delivered.
                batch, behind = crew.take(deliveries)
                lags += behind
                count["frames"] += run.batch_frames
                frames = count["frames"]
                bar.update(run.batch_frames)
                wrong = broken({"reward": batch["next", "reward"]})
                actions, traded, done = task.watched(batch)
                done = done.clone()
                done[:, -1] = True  # what follows there is of other accounts
                watch.see(actions, traded, done)
                if visits:
                    visits.see(task.place_of(batch))

                # Learn, and hand the policy on.
                optimizer.lr = run.learning_rate(frames)
                rows = batch.copy()
                rows["next", "reward"] = batch["next", "reward"] * run.reward_scale
                rows = loss.estimate(rows).select(*loss.in_keys)
                losses = loss(rows if loss.sequences else rows.reshape(-1))
                norm = differentiate(
                    sum(losses[each] for each in summed), trained, run.max_grad_norm
                )
                if not wrong and isnan(norm):
                    wrong = broken(losses) or ["gradient norm"]
                if not wrong:
                    lately.see(losses, norm, rows)
                    optimizer.step()
                    loss.next_batch()
                    if scale is not None:
                        scale.see(joined([batch[key] for key in seen_by(task)]))
                    follow_slowly(*both, run.actor_average)
                    count["updates"] += 1
                    wrong = [] if isfinite(norm_of(trained)) else ["parameters"]
                if not wrong:
                    crew.publish()

                # Watch.
                figures: dict[str, float] = {}
                if wrong:
                    figures[f"train/{wrong[0]}"] = float("nan")
                elif lately.norms and due(frames, run.log_every, run.batch_frames):
                    figures, histograms = lately.figures(optimizer.lr, batch, watch)
                    figures |= {"train/state_coverage": visits.coverage} if visits else {}
                    figures |= {
                        "actors/lag": fmean(lags), "actors/lag_max": float(max(lags)),
                        "actors/waiting": float(crew.waiting()),
                        "actors/replaced": float(crew.replaced),
                        "actors/dropped": float(crew.dropped),
                    }  # fmt: skip
                    for name, values in histograms.items():
                        writer.add_histogram(name, values, frames)
                    lately.norms.clear()
                    lags.clear()

                # Evaluate.
                judged: dict[str, float] = {}
                if not wrong and due(frames, run.evaluate_every, run.batch_frames):
                    judged = evaluate(task, averaged, run.seed)
                    evaluations.append({"frames": float(frames), **judged})
                    figures |= {f"eval/{name}": value for name, value in judged.items()}

                # Tell, heed alerts, save.
                stopped = course.goes_on(figures, judged, wrong, request.asked)
    finally:
        bar.close()
        crew.close()
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
        "parameters_sha256": parameters_sha256(loss, averaged),
        "runtime": runtime(began, trained_for, first, count)
        | machine
        | {"replaced": crew.replaced, "dropped": crew.dropped},
    }
    finish(folder, metrics, writer)


if __name__ == "__main__":
    main()
