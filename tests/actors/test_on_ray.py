"""Actors on a Ray cluster that is begun here: deliveries, a kill, what is left."""

import os
import signal
import subprocess
import time

import pytest
import torch
from making import ACCOUNTS, STEPS, fail, learner, make, refuse

from trading_torchrl.actors import ActorError
from trading_torchrl.actors.on_ray import OnRay
from trading_torchrl.objectives.on_policy import policy_of

pytest.importorskip("ray", reason="Ray is an extra: pip install 'trading-torchrl[ray]'")


def processes_of_ray():
    said = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True).stdout
    names = ("raylet/raylet", "gcs_server", "ray::", "log_monitor", "dashboard.py")
    return {line.split()[0] for line in said.splitlines() if any(name in line for name in names)}


def test_actors_deliver_are_replaced_and_leave_nothing_behind():
    before, shared = processes_of_ray(), set(os.listdir("/dev/shm"))
    actor, _ = learner()
    told = []
    crew = OnRay(make, 2, actor, tell=told.append, max_lag=50)
    try:
        rows, lags = crew.take(3)
        assert rows.shape == (3 * ACCOUNTS, STEPS)
        assert lags == [0, 0, 0]
        likely = policy_of(actor, rows).log_prob(rows["action"])
        assert torch.allclose(rows["action_log_prob"], likely, atol=1e-5)

        where = crew.ray.get(crew.places[1].where)
        os.kill(int(where.split()[1]), signal.SIGKILL)
        began = time.monotonic()
        while crew.replaced < 1 or crew.places[1].failures:
            crew.publish()
            rows, lags = crew.take(1)
            assert max(lags) <= 50
            assert time.monotonic() - began < 30
        assert told[0].startswith(f"actor 1 ({where}) ended: ")
        assert told[1].startswith("actor 1 delivers again, ")
        assert crew.begun == 3
        assert crew.state_dict() == {"begun": 3, "replaced": 1, "dropped": crew.dropped}
    finally:
        crew.close()
    until = time.monotonic() + 10
    while processes_of_ray() - before and time.monotonic() < until:
        time.sleep(0.2)
    assert not processes_of_ray() - before
    assert not {name for name in set(os.listdir("/dev/shm")) - shared if "plasma" in name}


@pytest.mark.parametrize("made", [fail, refuse], ids=["a mistake", "a refusal"])
def test_what_stops_an_actor_at_once_is_told_at_once(made):
    actor, _ = learner()
    crew = OnRay(made, 1, actor)
    try:
        with pytest.raises(ActorError, match="no actor can be made of seed"):
            crew.take(1)
        assert crew.replaced == 0
    finally:
        crew.close()


@pytest.mark.parametrize(
    ("address", "said"),
    [("127.0.0.1:1", r"Ray at address=127\.0\.0\.1:1"), ("ray://head:10001", "take host:6379")],
)
def test_a_cluster_that_is_not_there_is_named(address, said):
    crew = OnRay(make, 1, learner()[0], address=address)
    with pytest.raises(ActorError, match=said):
        crew.take(1)
    crew.close()
