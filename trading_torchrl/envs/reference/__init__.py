"""Problems whose best policy and its value are known: what an agent makes of them is a fact."""

from trading_torchrl.envs.reference.action_grid import ActionGrid, BestOnGrid
from trading_torchrl.envs.reference.bit_flip import BitFlip, SameBits
from trading_torchrl.envs.reference.foresight import Martingale, PlantedLeak
from trading_torchrl.envs.reference.garleanu_pedersen import GarleanuPedersen, Rule
from trading_torchrl.envs.reference.grid import GridWorld
from trading_torchrl.envs.reference.grid_options import GridOptionPolicy
from trading_torchrl.envs.reference.merton import Merton
from trading_torchrl.envs.reference.ou_spread import OUSpread
from trading_torchrl.envs.reference.problem import ReferenceProblem
from trading_torchrl.envs.reference.room_options import room_options, single_moves
from trading_torchrl.envs.reference.share import Share, optimum_share, scores
from trading_torchrl.envs.reference.worlds import Chain, FourRooms, SparseMaze

__all__ = [
    "ActionGrid",
    "BestOnGrid",
    "BitFlip",
    "Chain",
    "FourRooms",
    "GarleanuPedersen",
    "GridOptionPolicy",
    "GridWorld",
    "Martingale",
    "Merton",
    "OUSpread",
    "PlantedLeak",
    "ReferenceProblem",
    "Rule",
    "SameBits",
    "Share",
    "SparseMaze",
    "optimum_share",
    "room_options",
    "scores",
    "single_moves",
]
