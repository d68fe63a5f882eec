"""Curiosity: what it learns of a certain world, that it reaches no agent, what it sees."""

import pytest
import torch
from tensordict import TensorDict
from torch.nn.functional import cross_entropy
from torchrl.data import LazyTensorStorage, ReplayBuffer

from trading_torchrl.envs.reference import Chain, SparseMaze
from trading_torchrl.modules import MLP, Curiosity, make_actor, make_critics
from trading_torchrl.objectives import ICMLoss, SACLoss
from trading_torchrl.replay import CuriosityReward


def batch(rows=64, width=4, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return TensorDict(
        {
            "observation": torch.randn(rows, width, generator=draw),
            "action": 2 * torch.rand(rows, 1, generator=draw) - 1,
            "next": {
                "observation": torch.randn(rows, width, generator=draw),
                "reward": torch.randn(rows, 1, generator=draw),
                "terminated": torch.zeros(rows, 1, dtype=torch.bool),
            },
        },
        [rows],
    )


def test_a_certain_world_holds_no_surprise_for_long():
    """On a chain the error falls by 95 % and below 0.01 in a thousand batches."""
    torch.manual_seed(0)
    rows = Chain(16, length=20).rollout(400, break_when_any_done=False).reshape(-1)
    replay = ReplayBuffer(storage=LazyTensorStorage(len(rows)), batch_size=256)
    replay.extend(rows)
    loss = ICMLoss(Curiosity(20, 2, choices=True))
    optimizer = torch.optim.AdamW(loss.parameters(), lr=1e-4, weight_decay=1e-5, fused=True)
    errors = []
    for _ in range(1_000):
        out = loss(replay.sample())
        optimizer.zero_grad()
        (out["loss_forward"] + out["loss_inverse"]).backward()
        torch.nn.utils.clip_grad_norm_(loss.parameters(), 1.0)
        optimizer.step()
        errors.append(float(out["forward_error"]))
    assert errors[-1] < 0.01
    assert errors[-1] < 0.05 * errors[0]
    assert float(out["inverse_error"]) < 0.05


def test_what_was_never_seen_surprises_more_than_what_was_seen_often():
    """Or an agent is paid for any move: models of the recipe's size and rates, in half a maze."""
    torch.manual_seed(0)
    maze = SparseMaze(size=12, observation="cells")
    rows = maze.every_step()
    rows = rows[rows["next", "cell"] != rows["cell"]]  # a wall is no surprise for anyone
    seen, new = rows[rows["cell"] % 2 == 0], rows[rows["cell"] % 2 == 1]
    loss = ICMLoss(Curiosity(len(maze.cells), 4, choices=True))
    optimizer = torch.optim.AdamW(loss.parameters(), lr=1e-3, weight_decay=1e-5, fused=True)
    for _ in range(400):
        out = loss(seen[torch.randint(len(seen), (128,))])
        optimizer.zero_grad()
        (out["loss_forward"] + out["loss_inverse"]).backward()
        torch.nn.utils.clip_grad_norm_(loss.parameters(), 1.0)
        optimizer.step()
    steps = [
        ([some["observation"]], some["action"], [some["next", "observation"]])
        for some in (seen, new)
    ]
    known, unknown = (loss.curiosity.surprise(*step).mean() for step in steps)
    assert unknown > 4 * known


@pytest.mark.parametrize("choices", [False, True])
def test_the_loss_by_hand(choices):
    torch.manual_seed(0)
    given = batch()
    if choices:
        given["action"] = torch.randint(3, (64,))
    models = Curiosity(
        4, 3 if choices else 1, choices=choices, features=8, encoder=[16], change=[16], between=[16]
    )
    out = ICMLoss(models, beta=0.3)(given)
    now, then = (
        models.features([given["observation"]]),
        models.features([given["next", "observation"]]),
    )
    torch.testing.assert_close(now.mean(-1), torch.zeros(64), rtol=0, atol=1e-5)
    torch.testing.assert_close(now.var(-1, correction=0), torch.ones(64), rtol=0, atol=1e-2)
    done = torch.eye(3)[given["action"]] if choices else given["action"]
    ahead = now + models.change(now, done)
    forward = 0.5 * (ahead - then).square().mean()
    guess = models.between(now, then)
    inverse = (
        cross_entropy(guess, given["action"])
        if choices
        else 0.5 * (guess - given["action"]).square().mean()
    )
    torch.testing.assert_close(out["forward_error"], forward.detach())
    torch.testing.assert_close(out["loss_forward"], 0.3 * forward)
    torch.testing.assert_close(out["loss_inverse"], 0.7 * inverse)
    surprise = models.surprise(
        [given["observation"]], given["action"], [given["next", "observation"]]
    )
    torch.testing.assert_close(surprise.mean(), forward.detach())


def test_the_forward_model_does_not_pull_the_features_it_aims_at():
    """With nothing but the forward error, features of next observations get no gradient."""
    models = Curiosity(4, 1, features=8, encoder=[16], change=[16], between=[16])
    given = batch()
    seen = given["next", "observation"].requires_grad_()
    wrong = models([given["observation"]], given["action"], [seen])
    wrong.forward.sum().backward(retain_graph=True)
    assert seen.grad is None or not seen.grad.any()
    wrong.inverse.sum().backward()
    assert seen.grad.any()


def test_gradients_of_agent_and_curiosity_never_meet():
    torch.manual_seed(0)
    actor, critics = make_actor(4, 1, [16]), make_critics(4, 1, [16])
    agent, loss = SACLoss(actor, critics), None
    models = Curiosity(4, 1, features=8, encoder=[16], change=[16], between=[16])
    loss = ICMLoss(models)
    mixed = CuriosityReward(models, warmup_frames=0, warmup_batches=1)
    of_agent = [p for p in agent.parameters() if p.requires_grad]
    of_models = list(loss.parameters())
    assert not {id(p) for p in of_agent} & {id(p) for p in of_models}
    sample = mixed(batch())
    out = agent(sample)
    sum(out[key] for key in ("loss_actor", "loss_qvalue", "loss_alpha")).backward()
    assert all(p.grad is None for p in of_models)
    assert all(p.grad is not None for p in of_agent)
    for each in of_agent:
        each.grad = None
    out = loss(sample)
    (out["loss_forward"] + out["loss_inverse"]).backward()
    assert all(p.grad is None for p in of_agent)
    assert all(p.grad is not None for p in of_models)


def test_it_sees_the_features_of_another_module_and_leaves_it_alone():
    torch.manual_seed(0)
    trunk = MLP(4, [16], 6)
    models = Curiosity(6, 1, features=8, encoder=[16], change=[16], between=[16], body=trunk)
    loss = ICMLoss(models)
    assert not {id(p) for p in loss.parameters()} & {id(p) for p in trunk.parameters()}
    assert not any("body" in name for name in loss.state_dict())
    given = batch()
    out = loss(given)
    (out["loss_forward"] + out["loss_inverse"]).backward()
    assert all(p.grad is None for p in trunk.parameters())
    with torch.no_grad():
        for each in trunk.parameters():
            each.mul_(3.0)
    assert loss(given)["forward_error"] != out["forward_error"]  # it follows the module


def test_several_keys_and_several_dimensions():
    given = batch(24).reshape(4, 6)
    given["window"] = torch.randn(4, 6, 3, 2)
    given["next", "window"] = torch.randn(4, 6, 3, 2)
    loss = ICMLoss(Curiosity(4 + 6, 1), in_keys=["observation", "window"], reduction="none")
    assert loss(given)["forward_error"].shape == (4, 6)


def test_rows_that_a_mask_leaves_out_do_not_count():
    torch.manual_seed(0)
    loss = ICMLoss(Curiosity(4, 1, features=8, encoder=[16], change=[16], between=[16]))
    given = batch()
    kept = loss(given[:40])
    given["mask"] = torch.arange(64)[:, None] < 40
    given["observation"][40:] = torch.nan
    loss.loss_mask_key = "mask"
    masked = loss(given)
    torch.testing.assert_close(masked["loss_forward"], kept["loss_forward"])
    masked["loss_forward"].backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in loss.parameters())


def test_it_is_small():
    models = Curiosity(inputs=64 * 26 + 6, actions=1)
    assert sum(p.numel() for p in models.parameters()) < 500_000


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match=r"beta must lie in \[0, 1\], got 1.2"):
        ICMLoss(Curiosity(4, 1), beta=1.2)
    with pytest.raises(ValueError, match="reduction must be"):
        ICMLoss(Curiosity(4, 1), reduction="all")
