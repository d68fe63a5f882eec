"""Options: a controller chooses plans of several bars, and an agent may act within them.

    python recipes/options.py                              # the plans' own rules
    python recipes/options.py options.action=scaled        # SAC within the plans; blend of both
    python recipes/options.py options.controller=option_critic options.ends=true
    python recipes/options.py resume=outputs/options/...   # exactly where it stopped; see --help

The controller learns from options that ended, the agent from bars that are stored. Ctrl-C saves and
stops. The run's folder holds what one of `recipes/offpolicy.py` does; its report has a table of the
options.
"""

import gc
import time
from copy import deepcopy
from math import isfinite
from typing import Any

import hydra
from acting import make_acting, make_agent_within
from agents import discount
from checks import plainly
from controlling import make_controlling, make_option_policy, make_options
from earlier import begin_from, earlier_run
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
from tasks import make_task
from tasks.trading import Trading
from torch import nn
from torchrl.collectors import Collector
from tqdm import tqdm

from trading_torchrl.checkpoint import Checkpoints
from trading_torchrl.descent import norm_of
from trading_torchrl.modules import follow_slowly, moving
from trading_torchrl.monitoring import ActionWatch, OptionUse, broken
from trading_torchrl.resume import StopRequest, parameters_sha256
from trading_torchrl.state_file import CheckpointError


@hydra.main(version_base="1.3", config_path="conf", config_name="options")
@plainly(CheckpointError)
def main(config: DictConfig) -> None:
    """Trains, and reports."""
    # Settings, and what is trained on.
    began = time.perf_counter()
    run, settings, folder, resumed = start(config, Run)
    machine = set_machine(run.threads, run.matmul_precision, run.seed)
    old = earlier_run(folder if resumed else run.init)
    task = make_task(settings, old)
    assert isinstance(task, Trading)

    # Two levels: a controller of options, an agent that acts within them unless rules do; and slow
    # copies of both to evaluate.
    options = make_options(settings["options"], task)
    actor, loss = make_agent_within(settings, task, run.hidden, len(options))
    policy = make_option_policy(settings["options"], task, options, actor)
    controlling = make_controlling(
        settings["options"], policy, gamma=discount(settings), scale=run.reward_scale
    )
    levels = nn.ModuleList([controlling.loss] if loss is None else [controlling.loss, loss])
    plainly(ValueError)(begin_from)(old, policy, levels, settings)
    policy.temperature.fill_(settings["options"]["temperature"]["start"])
    averaged = deepcopy(policy).requires_grad_(False).eval()
    both = moving(averaged), moving(policy)
    acting = make_acting(settings, task, run, policy, loss)

    # Where experience comes from.
    batch_frames = run.batch_frames
    collector = Collector(
        task.env,
        policy,
        frames_per_batch=batch_frames,
        total_frames=-1,
        trust_policy=True,
        track_traj_ids=False,
        auto_register_policy_transforms=False,
    )
    batches = iter(collector)
    replay = acting.replay if acting else None

    # What watches it, and what is kept of it.
    checkpoints = Checkpoints(folder / "checkpoints", run.keep)
    saved = checkpoints.newest()[1] if resumed else None
    run.keep_lengths(folder)
    known = saved["count"]["frames"] if saved else 0
    writer = run.writer(folder, purge_step=known + 1 if saved else None)
    watch, visits = ActionWatch(task.kind), visits_of(task, run.count_places)
    use, alerts = OptionUse(options), run.alerts_to(folder, writer)
    count: dict[str, Any] = {"frames": 0, "updates": 0, "owed": 0.0, "best": float("-inf")}
    evaluations: list[dict[str, float]] = []
    lately = Lately()

    parts = {"task": task, "loss": levels, "averaged": averaged, "policy": policy}
    parts |= {"watch": watch, "alerts": alerts, "lately": lately, "use": use}
    parts |= controlling.parts() | (acting.parts() if acting else {})
    parts |= {"visits": visits} if visits else {}
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
                use.see(batch)
                if visits:
                    visits.see(task.place_of(batch))

                # Learn, on both levels.
                before = count["updates"]
                wrong = wrong or controlling.learn(batch, frames)
                if acting:
                    wrong = wrong or acting.learn(batch, count, lately)
                steps = max(count["updates"] - before, 1)
                follow_slowly(*both, 1 - (1 - run.actor_average) ** steps)
                averaged.temperature.copy_(policy.temperature)
                if not wrong and not isfinite(norm_of(list(policy.parameters()))):
                    wrong = ["parameters"]

                # Watch.
                figures: dict[str, float] = {}
                if wrong:
                    figures[f"train/{wrong[0]}"] = float("nan")
                elif due(frames, run.log_every, batch_frames):
                    figures, histograms = lately.figures(run.learning_rate(frames), batch, watch)
                    figures |= controlling.figures() | use.figures() | use.of_each()
                    figures |= acting.figures(batch, lately) if acting else {}
                    figures |= {"train/state_coverage": visits.coverage} if visits else {}
                    for name, values in histograms.items():
                        writer.add_histogram(name, values, frames)
                    writer.add_histogram("options/selection_distribution", use.chosen(), frames)
                    lately.norms.clear()
                    controlling.forget(frames)
                    use.forget()

                # Evaluate.
                judged: dict[str, float] = {}
                if not wrong and due(frames, run.evaluate_every, batch_frames):
                    judged = evaluate(task, averaged, run.seed)
                    evaluations.append({"frames": float(frames), **judged})
                    figures |= {f"eval/{name}": value for name, value in judged.items()}
                    if acting and acting.paying.shaping:
                        acting.paying.shaping.judged(judged)

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
        chosen = settings["options"]
        facts = {
            "seed": str(run.seed),
            "frames": f"{count['frames']:,}",
            "options": f"{chosen['action']}, {chosen['controller']}",
        }
        final = judge(task, averaged, split, run.seed, evaluations, folder, facts)
    paid = acting.paying.told() if acting else {}
    beside = acting.paying.losses if acting else []
    metrics = {
        **final,
        "evaluations": evaluations,
        "seed": run.seed,
        "frames": count["frames"],
        "updates": count["updates"],
        "stopped": stopped,
        "state_coverage": visits.coverage if visits else None,
        "controller": controlling.course,
        **paid,
        "parameters_sha256": parameters_sha256(levels, averaged, *beside),
        "runtime": runtime(began, trained_for, first, count) | machine,
    }
    finish(folder, metrics, writer)


if __name__ == "__main__":
    main()
