"""What actors of the tests collect with; in a module of its own, as other processes import it."""

import os
import signal

import torch

from trading_torchrl.actors import Stretches
from trading_torchrl.envs.reference import GarleanuPedersen
from trading_torchrl.modules import make_actor, make_value
from trading_torchrl.objectives import VTraceLoss

ACCOUNTS, STEPS = 4, 8


def policy(seed=0):
    torch.manual_seed(seed)
    return make_actor(2, 1, [8], std=0.5)


def learner():
    actor = policy()
    return actor, VTraceLoss(actor, make_value(2, 1, [8]), gamma=0.9)


def make(seed):
    torch.manual_seed(seed)
    return Stretches(GarleanuPedersen(ACCOUNTS, seed=seed, steps=20), policy(), STEPS)


def fail(seed):
    raise ValueError(f"no actor can be made of seed {seed}")


def refuse(seed):
    raise SystemExit(f"no actor can be made of seed {seed}")


def die(seed):
    os.kill(os.getpid(), signal.SIGKILL)
