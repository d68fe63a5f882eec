"""What a controller of a recipe learns from."""

import sys
from pathlib import Path

import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torchrl.data import LazyTensorStorage, ReplayBuffer
from torchrl.envs import Transform

from trading_torchrl.descent import Adam
from trading_torchrl.modules import Controller
from trading_torchrl.modules.option_policy import LOGITS, VALUES
from trading_torchrl.objectives import OptionsLoss

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "recipes"))
from controlling import Controlling

SETTINGS = {
    "keep": 64, "after": 0, "updates": 1, "max_grad_norm": 1.0, "tau": 0.1,
    "temperature": {"decay": 0.5, "least": 0.2},
}  # fmt: skip


class AsTheyAre(Transform):
    """Batches are rows already."""

    def forward(self, tensordict):
        return tensordict


class Chooses(torch.nn.Module):
    """All of a policy that a controller's learning asks for."""

    def __init__(self):
        super().__init__()
        self.temperature = torch.tensor(1.0)


def controlling():
    torch.manual_seed(0)
    network = TensorDictModule(
        Controller(1, 3, (8,)), in_keys=["observation"], out_keys=[LOGITS, VALUES]
    )
    policy, loss = Chooses(), OptionsLoss(network, gamma=0.9)
    newest = ReplayBuffer(storage=LazyTensorStorage(SETTINGS["keep"]), batch_size=16)
    optimizer = Adam(network.parameters(), lr=1e-3)
    return Controlling(policy, loss, optimizer, AsTheyAre(), newest, SETTINGS, scale=100.0)


def ended(accounts):
    """An option of each account, which sees its own number."""
    number = torch.arange(float(accounts))[:, None]
    may, one = torch.ones(accounts, 3, dtype=torch.bool), torch.ones(accounts, 1)
    option = {"index": torch.zeros(accounts, 1, dtype=torch.int64), "allowed": may}
    after = {"observation": number, "reward": number, "terminated": one.bool()}
    after["option"] = {"allowed": may, "duration": one.long()}
    return TensorDict({"observation": number, "option": option, "next": after}, [accounts])


def test_what_is_kept_of_many_rows_is_of_all_accounts():
    learner = controlling()
    learner.learn(ended(1_000), frames=1)
    kept = learner.newest[:]
    assert len(kept) == 64
    account = kept["observation"][:, 0]
    assert len(account.unique()) == 64
    assert account.min() < 200
    assert account.max() > 800
    torch.testing.assert_close(kept["next", "reward"], 100 * kept["observation"])


def test_figures_are_means_of_all_updates_since_the_last():
    learner = controlling()
    said = []
    learner.loss.register_forward_hook(lambda _, rows, losses: said.append(losses.detach()))
    for _ in range(3):
        learner.learn(ended(40), frames=1)
    mean = sum(float(each["loss_value"]) for each in said) / 3
    assert learner.figures()["options/loss_value"] == pytest.approx(mean)
    assert learner.figures()["options/temperature"] == pytest.approx(0.2)
    learner.forget(120)
    learner.learn(ended(40), frames=121)
    last = float(said[-1]["loss_value"])
    assert learner.figures()["options/loss_value"] == pytest.approx(last)
    (before,) = learner.course
    assert before["frames"] == 120
    assert before["options/loss_value"] == pytest.approx(mean)
