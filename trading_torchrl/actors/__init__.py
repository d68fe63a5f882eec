"""Actors apart from the learner: in its process, in others of this machine, or on a Ray cluster."""

from trading_torchrl.actors.alone import Alone
from trading_torchrl.actors.crew import ActorError, Crew, Delivery, seed_of
from trading_torchrl.actors.processes import Processes
from trading_torchrl.actors.stretches import Stretches
from trading_torchrl.actors.weights import packed, unpack

__all__ = [
    "ActorError",
    "Alone",
    "Crew",
    "Delivery",
    "Processes",
    "Stretches",
    "packed",
    "seed_of",
    "unpack",
]
