"""The names our environments have in Gymnasium; what they stand for is imported when made."""

from __future__ import annotations

import gymnasium

NAMESPACE = "trading_torchrl"
VIEWS = f"{NAMESPACE}.envs.gym"
REFERENCE = f"{NAMESPACE}.envs.reference"

PROBLEMS = (
    ("GarleanuPedersen-v0", f"{REFERENCE}:GarleanuPedersen"),
    ("Merton-v0", f"{REFERENCE}:Merton"),
    ("OUSpread-v0", f"{REFERENCE}:OUSpread"),
    ("PlantedLeak-v0", f"{REFERENCE}:PlantedLeak"),
    ("Martingale-v0", f"{REFERENCE}:Martingale"),
    ("SparseMaze-v0", f"{REFERENCE}:SparseMaze"),
    ("FourRooms-v0", f"{REFERENCE}:FourRooms"),
    ("Chain-v0", f"{REFERENCE}:Chain"),
    ("BitFlip-v0", f"{REFERENCE}:BitFlip"),
)
"""Name and class of each environment that is built as ``Class(num_envs, **settings)``."""


def register() -> None:
    """Makes them known to ``gymnasium.make`` and ``gymnasium.make_vec``."""
    gymnasium.register(
        f"{NAMESPACE}/Trading-v0",
        entry_point=f"{VIEWS}:TradingView",
        vector_entry_point=f"{VIEWS}:trading_vector",
    )
    for name, problem in PROBLEMS:
        gymnasium.register(
            f"{NAMESPACE}/{name}",
            entry_point=f"{VIEWS}:problem",
            vector_entry_point=f"{VIEWS}:problem_vector",
            kwargs={"problem": problem},
        )
