"""Losses of newest steps: by hand, as TorchRL has them, masked, on choices and on numbers."""

import math

import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torchrl.envs.utils import ExplorationType, set_exploration_type
from torchrl.objectives import A2CLoss as TheirA2C
from torchrl.objectives import ClipPPOLoss

from trading_torchrl.modules import make_actor, make_discrete_actor, make_value
from trading_torchrl.modules.discrete import MASK
from trading_torchrl.objectives import (
    A2CLoss,
    PPOKLLoss,
    PPOLoss,
    ReinforceLoss,
    VTraceLoss,
)

GAMMA = 0.9
KINDS = [PPOLoss, PPOKLLoss, A2CLoss, ReinforceLoss, VTraceLoss]


def networks(discrete=False, dtype=torch.float64, seed=0):
    torch.manual_seed(seed)
    if discrete:
        actor = make_discrete_actor(3, 4, [16], ["observation", MASK])
    else:
        actor = make_actor(3, 2, [16])
    return actor.to(dtype), make_value(3, 1, [16]).to(dtype)


def batch_of(discrete=False, accounts=6, steps=8, dtype=torch.float64, seed=0):
    draw = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(accounts, steps, *shape, generator=draw, dtype=dtype)

    def rare(share):
        return torch.rand(accounts, steps, 1, generator=draw) < share

    now = normal(3)
    done = rare(0.2)
    after = torch.where(done, normal(3), torch.cat([now[:, 1:], normal(3)[:, :1]], 1))
    following = {"observation": after, "reward": normal(1), "done": done}
    following["terminated"] = done & rare(0.5)
    taken = {"observation": now, "action": normal(2).tanh()}
    if discrete:
        mask = torch.rand(accounts, steps, 4, generator=draw) < 0.6
        mask[..., 1] = True
        taken[MASK] = mask
        weights = mask.reshape(-1, 4).float()
        taken["action"] = torch.multinomial(weights, 1, generator=draw).view(accounts, steps)
        following[MASK] = mask
    return TensorDict({**taken, "next": following}, [accounts, steps])


def of_older(discrete, batch):
    """As an actor with other weights would have done it."""
    older, _ = networks(discrete, seed=1)
    likely = older.get_dist(batch.select(*older.in_keys)).log_prob(batch["action"])
    return batch.set("action_log_prob", likely.detach())


def gradients(loss, value):
    named = {name: each for name, each in loss.named_parameters() if each.requires_grad}
    found = torch.autograd.grad(value, list(named.values()), allow_unused=True, retain_graph=True)
    return {name: each for name, each in zip(named, found, strict=True) if each is not None}


def total(out):
    return sum(each for name, each in out.items() if name.startswith("loss_"))


@pytest.mark.parametrize("discrete", [False, True])
def test_clipped_ratios_are_torchrls(discrete):
    actor, critic = networks(discrete)
    ours = PPOLoss(actor, critic, gamma=GAMMA, clip=0.1, value=0.7, normalise=True)
    rows = ours.estimate(of_older(discrete, batch_of(discrete))).reshape(-1)
    theirs = ClipPPOLoss(
        actor, critic, clip_epsilon=0.1, entropy_bonus=False, critic_coeff=0.7,
        normalize_advantage=True, loss_critic_type="l2",
    )  # fmt: skip
    said, wanted = ours(rows), theirs(rows.copy())
    torch.testing.assert_close(said["loss_objective"], wanted["loss_objective"])
    torch.testing.assert_close(said["loss_critic"], wanted["loss_critic"])
    torch.testing.assert_close(said["clipped"], wanted["clip_fraction"].to(said["clipped"].dtype))
    grads = gradients(ours, said["loss_objective"] + said["loss_critic"])
    found = gradients(theirs, wanted["loss_objective"] + wanted["loss_critic"])
    assert len(grads) == len(found)
    by_name = {name.split(".")[0]: 0.0 for name in grads}
    assert set(by_name) == {"actor_network", "critic_network"}
    for one, other in zip(grads.values(), found.values(), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("discrete", [False, True])
def test_plain_advantages_are_torchrls(discrete):
    actor, critic = networks(discrete)
    ours = A2CLoss(actor, critic, gamma=GAMMA, normalise=False, value=1.0)
    rows = ours.estimate(batch_of(discrete)).reshape(-1)
    theirs = TheirA2C(actor, critic, entropy_bonus=False, critic_coeff=1.0, loss_critic_type="l2")
    said, wanted = ours(rows), theirs(rows.copy())
    torch.testing.assert_close(said["loss_objective"], wanted["loss_objective"])
    torch.testing.assert_close(said["loss_critic"], wanted["loss_critic"])


@pytest.mark.parametrize("kind", [PPOLoss, PPOKLLoss])
def test_the_first_step_is_a_plain_policy_gradient(kind):
    """Before anything has moved all ratios are 1, and divergence has no slope."""
    actor, critic = networks()
    batch = batch_of()
    proximal, plain = kind(actor, critic, gamma=GAMMA), A2CLoss(actor, critic, gamma=GAMMA)
    rows = plain.estimate(batch).reshape(-1)
    one = gradients(proximal, proximal(rows)["loss_objective"])
    other = gradients(plain, plain(rows)["loss_objective"])
    for name, each in other.items():
        torch.testing.assert_close(one[name], each)


def plain_vtrace(rho, c, log_ratio, value, ahead, reward, done, terminated):
    """Remark 1 of the paper, a sum over all later steps for each: ``[N, T]`` each."""
    accounts, steps = reward.shape
    weight = log_ratio.exp().clamp(max=rho)
    hands_on = log_ratio.exp().clamp(max=c)
    delta = weight * (reward + GAMMA * torch.where(terminated, 0.0, ahead) - value)
    targets = value.clone()
    for n in range(accounts):
        for s in range(steps):
            for t in range(s, steps):
                if done[n, s:t].any():
                    break
                targets[n, s] += GAMMA ** (t - s) * hands_on[n, s:t].prod() * delta[n, t]
    advantages = torch.empty_like(value)
    for n in range(accounts):
        for s in range(steps):
            ends = done[n, s] or s == steps - 1
            then = ahead[n, s] if ends else targets[n, s + 1]
            then = 0.0 if terminated[n, s] else then
            advantages[n, s] = weight[n, s] * (reward[n, s] + GAMMA * then - value[n, s])
    return targets, advantages


@pytest.mark.parametrize("discrete", [False, True])
@pytest.mark.parametrize(("rho", "c"), [(1.0, 1.0), (1.5, 0.7), (12.0, 12.0)])
def test_vtrace_is_the_sum_of_the_paper(discrete, rho, c):
    actor, critic = networks(discrete)
    batch = of_older(discrete, batch_of(discrete))
    loss = VTraceLoss(actor, critic, gamma=GAMMA, rho=rho, c=c, value=0.5, entropy=0.0)
    said = loss(batch)
    log_prob = actor.get_dist(batch.select(*actor.in_keys)).log_prob(batch["action"])
    value = critic.module(batch["observation"])[..., 0]
    after = batch["next"]
    ahead = critic.module(after["observation"])[..., 0]
    log_ratio = (log_prob - batch["action_log_prob"]).detach()
    flags = (after[name][..., 0] for name in ("done", "terminated"))
    targets, advantages = plain_vtrace(
        rho, c, log_ratio, value.detach(), ahead.detach(), after["reward"][..., 0], *flags
    )
    objective = -(log_prob * advantages).mean()
    misfit = 0.5 * (value - targets).square().mean()
    assert abs(float(said["loss_objective"].detach() - objective)) < 1e-10
    assert abs(float(said["loss_critic"] - misfit)) < 1e-10
    ours, theirs = gradients(loss, total(said)), gradients(loss, objective + misfit)
    for name, each in theirs.items():
        torch.testing.assert_close(ours[name], each, rtol=0, atol=1e-10)
    ratio = log_ratio.exp()
    torch.testing.assert_close(said["rho_mean"], ratio.mean())
    torch.testing.assert_close(said["rho_cut"], (ratio > rho).double().mean())


def test_on_policy_vtrace_is_the_return_over_all_steps():
    actor, critic = networks()
    batch = batch_of()
    loss = VTraceLoss(actor, critic, gamma=GAMMA, value=1.0)
    batch = loss.estimate(batch)
    long = ReinforceLoss(actor, critic, gamma=GAMMA, value=1.0, normalise=False)
    rows = long.estimate(batch.copy())
    torch.testing.assert_close(loss(batch)["loss_critic"], long(rows)["loss_critic"])


def test_a_reward_after_a_truncation_changes_nothing_before():
    actor, critic = networks()
    batch = of_older(False, batch_of(accounts=1))
    batch["next", "done"][:, 3] = True
    batch["next", "terminated"][:, 3] = False
    loss = VTraceLoss(actor, critic, gamma=GAMMA, reduction="none")
    before = loss(batch)["loss_critic"]
    batch["next", "reward"][:, 4] += 100
    after = loss(batch)["loss_critic"]
    assert torch.equal(before[:, :4], after[:, :4])
    assert not torch.allclose(before[:, 4], after[:, 4])


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_mask_leaves_out_counts_in_no_loss(kind):
    actor, critic = networks()
    loss = kind(actor, critic, gamma=GAMMA, entropy=0.01)
    batch = loss.estimate(of_older(False, batch_of()))
    some = torch.ones(batch.shape, dtype=torch.bool)
    some[-2:] = False
    kept = batch[:-2]
    spoilt = batch.clone()
    spoilt["action"][-2:] = math.nan
    spoilt["next", "reward"][-2:] = math.nan
    spoilt["collector", "mask"] = some
    torch.manual_seed(5)
    masked = loss(spoilt)
    torch.manual_seed(5)
    alone = loss(kept)
    for name in ("loss_objective", "loss_critic", "kl"):
        torch.testing.assert_close(masked[name], alone[name])
    assert all(bool(each.isfinite().all()) for each in masked.values())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("discrete", [False, True])
def test_each_loss_teaches_its_own_network_and_bonuses_have_a_slope(kind, discrete):
    actor, critic = networks(discrete)
    loss = kind(actor, critic, gamma=GAMMA, entropy=0.01)
    said = loss(loss.estimate(of_older(discrete, batch_of(discrete))))
    assert set(said.keys()) == set(loss.out_keys)
    for name, taught in (
        ("loss_objective", "actor_network"),
        ("loss_entropy", "actor_network"),
        ("loss_critic", "critic_network"),
    ):
        grads = gradients(loss, said[name])
        assert {each.split(".")[0] for each in grads} == {taught}
        assert any(bool((each != 0).any()) for each in grads.values())
    assert not any(said[name].requires_grad for name in ("entropy", "kl", "ess", "explained"))


def test_the_price_of_divergence_adapts():
    actor, critic = networks()
    loss = PPOKLLoss(actor, critic, gamma=GAMMA, aim=0.01, price=1.0)
    rows = loss.estimate(batch_of()).reshape(-1)
    loss(rows)  # nothing has moved
    loss.next_batch()
    assert float(loss.price) == 0.5
    rows["action_log_prob"] += 0.5
    said = loss(rows)
    assert said["kl"] == pytest.approx(math.exp(-0.5) - 1 + 0.5)
    loss.next_batch()
    assert float(loss.price) == 1.0
    rows["action_log_prob"] += 0.139 - 0.5  # half of its square is what is aimed at, nearly
    loss(rows)
    loss.next_batch()
    assert float(loss.price) == 1.0
    torch.testing.assert_close(loss.state_dict()["price"], torch.tensor(1.0))


def test_a_bandit_is_solved_by_all():
    """One step; the best action is 0.4, and the second of four."""
    for kind in KINDS:
        for discrete in (False, True):
            torch.manual_seed(0)
            actor, critic = networks(discrete, dtype=torch.float32)
            loss = kind(actor, critic, gamma=0.0)
            optimizer = torch.optim.Adam(loss.parameters(), lr=2e-2)
            for _ in range(250):
                seen = {"observation": torch.zeros(256, 1, 3)}
                if discrete:
                    seen[MASK] = torch.ones(256, 1, 4, dtype=torch.bool)
                with set_exploration_type(ExplorationType.RANDOM):
                    batch = actor(TensorDict(seen, [256, 1]))
                if discrete:
                    reward = (batch["action"] == 1).float()[..., None]
                else:
                    reward = -(batch["action"] - 0.4).square().sum(-1, keepdim=True)
                over = torch.ones(256, 1, 1, dtype=torch.bool)
                batch["next"] = {**seen, "reward": reward, "done": over, "terminated": over}
                rows = loss.estimate(batch.detach())
                for _ in range(1 if kind in (A2CLoss, ReinforceLoss, VTraceLoss) else 3):
                    optimizer.zero_grad()
                    total(loss(rows)).backward()
                    optimizer.step()
                loss.next_batch()
                policy = actor.get_dist(TensorDict(seen, [256, 1]))
                solved = (
                    policy.probs[0, 0, 1] > 0.9
                    if discrete
                    else (policy.mode[0, 0] - 0.4).abs().max() < 0.05 and policy.scale.max() < 0.3
                )
                if solved:
                    break
            assert solved, (kind, discrete)


@pytest.mark.parametrize(
    ("kind", "settings", "said"),
    [
        (PPOLoss, {"gamma": 1.5}, "gamma"),
        (PPOLoss, {"lmbda": -0.1}, "lmbda"),
        (PPOLoss, {"clip": 0.0}, "clip must lie between 0 and 1"),
        (PPOLoss, {"entropy": -1.0}, "entropy must not be negative"),
        (PPOKLLoss, {"aim": 0.0}, "aim must be above 0"),
        (PPOKLLoss, {"price": math.inf}, "price must be above 0"),
        (ReinforceLoss, {"lmbda": 0.9}, "lmbda is 1"),
        (VTraceLoss, {"lmbda": 0.9}, "V-trace has no lmbda"),
        (VTraceLoss, {"c": 2.0, "rho": 1.0}, "0 < c <= rho"),
    ],
)
def test_settings_that_do_not_fit_are_refused(kind, settings, said):
    with pytest.raises(ValueError, match=said):
        kind(*networks(), **settings)


def test_several_objectives_are_refused():
    loss = PPOLoss(*networks(), gamma=GAMMA)
    batch = batch_of()
    batch["next", "reward"] = torch.zeros(6, 8, 5)
    with pytest.raises(ValueError, match=r"one reward, \[\*, 1\], got \[6, 8, 5\]"):
        loss.estimate(batch)


def test_keys_can_be_renamed():
    actor, critic = networks()
    batch = of_older(False, batch_of())
    loss = PPOLoss(actor, critic, gamma=GAMMA)
    wanted = loss(loss.estimate(batch.clone()))
    loss.set_keys(sample_log_prob="then", reward="paid", advantage=("mine", "better"))
    batch.rename_key_("action_log_prob", "then")
    batch.rename_key_(("next", "reward"), ("next", "paid"))
    rows = loss.estimate(batch)
    assert ("mine", "better") in rows.keys(True)
    torch.testing.assert_close(loss(rows)["loss_objective"], wanted["loss_objective"])
    assert isinstance(critic, TensorDictModule)


def test_the_price_never_becomes_nothing_nor_more_than_can_be_counted():
    loss = PPOKLLoss(*networks(), price=2.0)
    for last, bound in ((0.0, 2e-8), (1.0, 2e8)):
        loss._last.fill_(last)
        for _ in range(300):
            loss.next_batch()
        assert float(loss.price) == pytest.approx(bound)


@pytest.mark.parametrize("kind", KINDS)
def test_one_row_alone_is_learned_from(kind):
    loss, batch = kind(*networks(), gamma=GAMMA), batch_of(accounts=1, steps=1)
    rows = loss.estimate(batch).select(*loss.in_keys)
    said = loss(rows if loss.sequences else rows.reshape(-1))
    assert all(bool(each.isfinite()) for name, each in said.items() if name != "explained")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("discrete", [False, True], ids=["numbers", "choices"])
def test_what_is_collected_is_all_that_a_loss_needs(kind, discrete):
    loss, batch = kind(*networks(discrete), gamma=GAMMA), of_older(discrete, batch_of(discrete))
    whole = loss.estimate(batch.clone()).select(*loss.in_keys)
    handed_on = loss.estimate(batch.select(*loss.collected)).select(*loss.in_keys)
    for key in whole.keys(True, True):
        assert torch.equal(whole[key], handed_on[key]), key


def test_figures_of_impossible_steps_stay_finite():
    loss, batch = VTraceLoss(*networks(), gamma=GAMMA), batch_of()
    batch = loss.estimate(batch)
    batch["action_log_prob"] = batch["action_log_prob"] - 500.0
    said = loss(batch.select(*loss.in_keys))
    assert all(bool(each.isfinite()) for each in said.values())
