"""Evaluating a population: in one batch, one by one, and in a pool of processes.

    python benchmarks/evolution.py                 # a few minutes
    python benchmarks/evolution.py --quick         # fewer members, for a look

Every way gets the same parameters and the same episodes, and says what each member earned. One by
one each member steps its own few accounts as one batch, as a home-made evolution strategy over a
vector of environments does; the pool of two processes does so with half of the members each. On
Garleanu-Pedersen in float64 returns have to agree to 1e-6; on the synthetic market in float32.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import torch
from report import Report
from tensordict.nn import TensorDictModule
from torch import Tensor, nn
from torchrl.envs import EnvBase
from tqdm import tqdm

from trading_torchrl.data import synthetic_market
from trading_torchrl.envs import TradingEnv
from trading_torchrl.envs.reference import GarleanuPedersen
from trading_torchrl.evolution import EvolutionStrategy, Population, earned, flat, unflatten
