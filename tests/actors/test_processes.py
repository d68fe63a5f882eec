"""Actors in processes: what they deliver, what becomes of those that die, what is left."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import torch
from making import ACCOUNTS, STEPS, die, fail, learner, make

from trading_torchrl.actors import ActorError, Processes, seed_of
from trading_torchrl.objectives.on_policy import policy_of

AHEAD = 2


def crew_of(actor, made=make, count=2, **about):
    return Processes(made, count, actor, make(0).collect(), ahead=AHEAD, **about)


@pytest.fixture(scope="module")
def told():
    return []


@pytest.fixture(scope="module")
def crew(told):
    actor, _ = learner()
    found = crew_of(actor, tell=told.append)
    found.take(2)
    yield found
    found.close()


def settled(crew):
    """All that may wait does."""
    until = time.monotonic() + 20
    while crew.waiting() < 2 * AHEAD and time.monotonic() < until:
        crew._listen(0.1)


def test_stretches_are_of_the_weights_that_were_handed_on(crew):
    settled(crew)
    crew.take(2 * AHEAD)
    with torch.no_grad():
        for each in crew.actor.parameters():
            each.add_(0.1)
    crew.publish()
    lags = []
    while not lags or max(lags) > 0:
        rows, lags = crew.take(2)
    assert rows.shape == (2 * ACCOUNTS, STEPS)
    likely = policy_of(crew.actor, rows).log_prob(rows["action"])
    assert torch.allclose(rows["action_log_prob"], likely, atol=1e-5)
    assert lags == [0, 0]


def test_nobody_runs_further_ahead_than_allowed(crew):
    settled(crew)
    time.sleep(0.5)
    crew._listen(0.1)
    assert crew.waiting() == 2 * AHEAD
    crew.publish()
    assert crew.take(2 * AHEAD).lags == [1] * (2 * AHEAD)


def test_what_is_older_than_allowed_is_dropped(crew):
    settled(crew)
    crew.max_lag, before = 1, crew.dropped
    for _ in range(3):
        crew.publish()
    try:
        assert max(crew.take(1).lags) <= 1
        assert crew.dropped - before == 2 * AHEAD
    finally:
        crew.max_lag = None


def test_an_actor_that_is_killed_is_replaced_and_draws_anew(crew, told):
    settled(crew)
    first = crew.processes[0]
    drawn = make(seed_of(0, 0)).collect()["observation"][:, 0]
    os.kill(first, signal.SIGKILL)
    began, anew = time.monotonic(), []
    while crew.replaced < 1 or crew.actors[0].failures:
        anew.append(crew.take(1).rows["observation"][:, 0])
        assert time.monotonic() - began < 30
    assert crew.processes[0] != first
    assert crew.begun == 3
    ended, again = told
    assert ended == f"actor 0 (process {first}) ended with exit code -9; another takes its place"
    assert re.fullmatch(r"actor 0 delivers again, [\d.]+ seconds later", again)
    assert not any(torch.equal(each, drawn) for each in anew)
    assert len(set(map(float, (each[0, 0] for each in anew)))) == len(anew)


def test_an_update_may_take_more_than_may_wait(crew):
    rows, lags = crew.take(4 * AHEAD + 1)
    assert rows.shape == ((4 * AHEAD + 1) * ACCOUNTS, STEPS)
    assert len(lags) == 4 * AHEAD + 1


def test_who_goes_back_starts_its_actors_anew_by_the_weights_of_then(crew):
    state = crew.state_dict() | {"begun": 1, "replaced": 0}
    before = {name: each.clone() for name, each in crew.actor.state_dict().items()}
    with torch.no_grad():
        for each in crew.actor.parameters():
            each.add_(7.0)
    crew.publish()
    crew.take(1)
    processes, begun, replaced = crew.processes, crew.begun, crew.replaced
    crew.actor.load_state_dict(before)
    crew.load_state_dict(state)
    assert crew.processes == []
    rows, lags = crew.take(2)
    assert lags == [0, 0]
    likely = policy_of(crew.actor, rows).log_prob(rows["action"])
    assert torch.allclose(rows["action_log_prob"], likely, atol=1e-5)
    assert not set(crew.processes) & set(processes)
    assert crew.begun == begun + 2  # and so nobody draws what another drew
    assert crew.replaced == replaced


def test_signals_to_the_whole_group_are_for_the_learner():
    script = (
        "import sys; sys.path.insert(0, 'tests/actors')\n"
        "from making import *\n"
        "from trading_torchrl.actors import Processes\n"
        "from trading_torchrl.resume import StopRequest\n"
        "if __name__ == '__main__':\n"
        "    actor, _ = learner()\n"
        "    crew = Processes(make, 1, actor, make(0).collect())\n"
        "    with StopRequest() as request:\n"
        "        crew._begin(crew.actors[0]); crew.running = True\n"
        "        print('begun', flush=True)\n"
        "        while not request.asked: crew.take(1)\n"
        "        crew.take(3)\n"
        "    print(request.asked, crew.replaced)\n"
        "    crew.close()\n"
    )
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "learner.py"
        path.write_text(script)
        process = subprocess.Popen(
            [sys.executable, str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip
        assert process.stdout.readline() == "begun\n"
        time.sleep(0.5)  # the actor is still importing
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert out == "SIGINT 0\n", err
    assert err == ""


def test_nothing_is_left_behind():
    actor, _ = learner()
    found = crew_of(actor, count=1)
    found.take(1)
    (process,) = found.processes
    mapped = Path(f"/proc/{os.getpid()}/maps")
    assert "torch" in mapped.read_text()  # memory that both see has no name anybody could leave
    assert not [name for name in os.listdir("/dev/shm") if "torch" in name]
    found.close()
    found.close()  # a second time it does nothing
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def test_a_mistake_in_an_actor_is_told_with_its_traceback():
    actor, _ = learner()
    found = crew_of(actor, fail, count=1)
    with pytest.raises(ActorError, match=r"(?s)actor 0 failed:.*no actor can be made of seed 1"):
        found.take(1)
    found.close()


def test_an_actor_that_never_gets_anywhere_is_given_up():
    actor, _ = learner()
    found = crew_of(actor, die, count=1)
    with pytest.raises(ActorError, match=r"exit code -9, for the 3\. time"):
        found.take(1)
    assert found.replaced == 2
    found.close()


@pytest.mark.parametrize(
    ("about", "said"),
    [
        ({"count": 0}, "count must be at least 1"),
        ({"max_lag": -1}, "max_lag must not be negative"),
    ],
)
def test_what_makes_no_sense_is_refused(about, said):
    with pytest.raises(ValueError, match=said):
        crew_of(learner()[0], **about)


def test_seeds_of_actors_are_far_from_each_other_and_from_those_that_judge():
    seeds = {seed_of(seed, begun) for seed in range(50) for begun in range(50)}
    assert len(seeds) == 2_500
    assert min(seeds) > 50_000_000
