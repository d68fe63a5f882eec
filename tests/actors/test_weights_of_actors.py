"""Weights as bytes, and the board that they are read from."""

import threading

import pytest
import torch
from torch import nn

from trading_torchrl.actors import packed, unpack
from trading_torchrl.actors.processes import Board
from trading_torchrl.modules import RunningScale


class Mixed(nn.Module):
    """Numbers of several types, of odd counts, one after the other."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3))
        self.scale = RunningScale(1)
        self.register_buffer("flag", torch.tensor([True, False, True]))
        self.register_buffer("count", torch.tensor(2**40 + torch.randint(9, ()).item()))


def test_every_bit_comes_over():
    one, other = Mixed(), Mixed()
    one.scale.see(torch.randn(7, 1))
    unpack(packed(one), other)
    for name, each in one.state_dict().items():
        assert torch.equal(each, other.state_dict()[name]), name
    one.weight.data.zero_()
    assert not torch.equal(one.weight, other.weight)


def test_weights_of_other_networks_are_refused():
    with pytest.raises(ValueError, match=r"these weights have .* bytes and the policy"):
        unpack(packed(nn.Linear(2, 2)), nn.Linear(2, 3))


def test_who_reads_while_another_writes_reads_one_version_whole():
    size, version = 200_000, 0
    board = Board(torch.zeros(size, dtype=torch.uint8))
    torn, seen, over = [], set(), threading.Event()

    def read():
        while not over.is_set():
            version, weights = board.read()
            seen.add(version)
            if not bool((weights == version % 251).all()):
                torn.append(version)

    reader = threading.Thread(target=read)
    reader.start()
    while version < 300 or len(seen) < 5:
        version += 1
        board.write(torch.full((size,), version % 251, dtype=torch.uint8))
    over.set()
    reader.join()
    assert not torn
