"""Evolution: a population tries, what did better moves the policy; alone, or in turns with RL.

    python recipes/evolve.py                           # the synthetic market
    python recipes/evolve.py env=garleanu_pedersen     # cartpole, long_only, ou_spread...
    python recipes/evolve.py init=outputs/offpolicy/... # from a policy that was trained already
    python recipes/evolve.py hybrid=sac                # reinforcement learning in between
    python recipes/evolve.py actors=2                  # members try on a Ray cluster
    python recipes/evolve.py resume=outputs/evolve/... # exactly where it stopped; see --help

No gradient of anything is taken. What it ends with another recipe begins with by
`init=outputs/evolve/...`. Ctrl-C saves and stops. The run's folder holds what one of
`recipes/offpolicy.py` does.
"""

import gc
import time
from copy import deepcopy
from math import isfinite
from typing import Any

import hydra
from agents import make_agent
from checks import plainly
from earlier import begin_from, earlier_run
from evolving import EvolvingRun, figures_of, make_strategy
from launch import finish, runtime, set_machine, start
from loop import UNJUDGED, Course, Lately, due, evaluate, judge, restore, state_of
from omegaconf import DictConfig
from tasks import make_task
from tqdm import tqdm
from turns import make_turns

from trading_torchrl.actors import ActorError
from trading_torchrl.checkpoint import Checkpoints
from trading_torchrl.descent import norm_of
from trading_torchrl.evolution import unflatten
from trading_torchrl.modules import follow_slowly, moving
from trading_torchrl.resume import StopRequest, parameters_sha256
from trading_torchrl.state_file import CheckpointError


@hydra.main(version_base="1.3", config_path="conf", config_name="evolve")
@plainly(CheckpointError, ActorError)
def main(config: DictConfig) -> None:
    """Evolves, and reports."""
    # Settings, and what is trained on.
    began = time.perf_counter()
    run, settings, folder, resumed = start(config, EvolvingRun)
    machine = set_machine(run.threads, run.matmul_precision, run.seed)
    old = earlier_run(folder if resumed else run.init)
    task = make_task(settings, old)

    # The policy, a strategy around its parameters, and an averaged copy to evaluate.
    actor, loss = make_agent(settings["loss"], settings["network"], task, run.hidden)
    begin_from(old, actor, loss, settings)
    averaged = deepcopy(actor).requires_grad_(False).eval()
    both = moving(averaged), moving(actor)
    strategy, population, tries = make_strategy(run, settings, task, actor, tqdm.write)
    turns = make_turns(settings, run, task, actor, loss, population)

    # What watches it, and what is kept of it.
    checkpoints = Checkpoints(folder / "checkpoints", run.keep)
    saved = checkpoints.newest()[1] if resumed else None
    run.keep_lengths(folder)
    known = saved["count"]["updates"] if saved else 0
    writer = run.writer(folder, purge_step=known + 1 if saved else None)
    alerts = run.alerts_to(folder, writer)
    count: dict[str, Any] = {"frames": 0, "updates": 0, "best": float("-inf")}
    evaluations: list[dict[str, float]] = []
    lately = Lately()

    parts = {"task": task, "loss": loss, "averaged": averaged, "strategy": strategy}
    parts |= {"alerts": alerts, "lately": lately} | ({"turns": turns} if turns else {})
    learns_from = (turns.collector, turns.acting.replay) if turns else (None, None)
    held = parts, *learns_from, count, evaluations
    if saved:
        restore(saved, *held)
    else:
        checkpoints.save(0, state_of(*held))
    gc.freeze()  # what is there by now stays: it need not be looked through again and again
    trains, first = time.perf_counter(), dict(count)
    last = run.stop_at or run.iterations
    stopped = ""
    bar = tqdm(total=last, initial=count["updates"], unit="generation", desc=task.name)
    course = Course(run, task, checkpoints, held, alerts, writer, bar, {})

    try:
        with StopRequest() as request:
            while count["updates"] < last and not stopped:
                generation = count["updates"]
                figures: dict[str, float] = {}
                judged: dict[str, float] = {}
                wrong: list[str] = []

                # Learn by gradients, where it is their turn, and go on from there.
                while turns and turns.goes_on(generation) and not (wrong or request.asked):
                    frames, wrong = turns.learn(lately)
                    count["frames"] += frames
                    if not wrong and not turns.goes_on(generation):
                        turns.hand_over(strategy)
                        figures |= turns.figures(lately)
                        lately.norms.clear()

                # A population tries, all on the same episodes; the centre moves.
                if not wrong and not (turns and turns.goes_on(generation)):
                    strategy.lr = run.learning_rate(generation)
                    found = tries.earned(strategy, run.episodes_of(generation))
                    returns = found.returns.mean(-1)
                    moved = strategy.tell(returns)
                    unflatten(strategy.centre, population.parameters)
                    count["frames"] += found.frames
                    count["updates"] += 1
                    bar.update()
                    wrong = [] if bool(returns.isfinite().any()) else ["returns"]
                    wrong = wrong or (
                        [] if isfinite(norm_of([strategy.centre])) else ["parameters"]
                    )
                    if not wrong and turns and turns.ends(generation):
                        figures["hybrid/better"] = turns.take_back(strategy, generation)
                    follow_slowly(*both, run.actor_average)

                    # Watch.
                    if wrong:
                        figures[f"train/{wrong[0]}"] = float("nan")
                    elif due(count["updates"], run.log_every, 1):
                        figures |= figures_of(returns, moved, strategy)

                    # Evaluate.
                    if not wrong and due(count["updates"], run.evaluate_every, 1):
                        judged = evaluate(task, averaged, run.seed)
                        clocks = {name: float(count[name]) for name in ("updates", "frames")}
                        evaluations.append({**clocks, **judged})
                        figures |= {f"eval/{name}": value for name, value in judged.items()}

                # Tell, heed alerts, save.
                stopped = course.goes_on(figures, judged, wrong, request.asked)
    finally:
        bar.close()
        tries.close()
        if turns:
            turns.collector.shutdown()
        writer.close()

    # Report.
    trained_for = time.perf_counter() - trains
    final = UNJUDGED
    split = settings["market"]["report_split"]
    if count["updates"] >= run.iterations and not stopped:
        facts = {
            "seed": str(run.seed),
            "generations": f"{count['updates']:,} of {run.population} members",
            "frames": f"{count['frames']:,}",
            "in turns with": type(loss).__name__ if turns else "nothing",
        }
        final = judge(task, averaged, split, run.seed, evaluations, folder, facts)
    metrics = {
        **final,
        "evaluations": evaluations,
        "seed": run.seed,
        "frames": count["frames"],
        "updates": count["updates"],
        "hybrid": dict(turns.count) if turns else None,
        "stopped": stopped,
        "parameters_sha256": parameters_sha256(loss, averaged),
        "runtime": runtime(began, trained_for, first, count)
        | machine
        | {"replaced": tries.replaced},
    }
    finish(folder, metrics, writer)


if __name__ == "__main__":
    main()
