"""Rewards of one's own: numbers by hand, compiled and not, what is refused, figures untouched."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from trading_torchrl.data import synthetic_market
from trading_torchrl.envs import Bar, TradingEnv
from trading_torchrl.risk import drawdown

MARKET = synthetic_market(symbols=4, bars=700, seed=0)


@dataclass(frozen=True)
class Steady:
    fear: float = 0.5

    def __call__(self, bar: Bar) -> Tensor:
        growth = bar.equity.clamp(min=bar.floor) / bar.equity_before.clamp(min=bar.floor)
        return growth.log() - self.fear * drawdown(bar.equity, bar.peak)


def build(reward, accounts=4, **settings):
    options = {"compiled": False, "emit": "all", "episode_bars": 60, **settings}
    return TradingEnv(MARKET, accounts, reward=reward, **options)


def rollout(env, steps=50):
    torch.manual_seed(0)
    return env.rollout(steps)


@pytest.mark.parametrize("assets", [1, 2])
def test_it_is_paid_for_every_bar(assets):
    played = rollout(build(Steady(), assets=assets, short=True, actions="target"))
    equity = played["next", "account", "equity"][..., 0]
    begin = torch.full_like(equity[:, :1], 10_000.0)
    before = torch.cat([begin, equity[:, :-1]], 1)
    peak = torch.cat([begin, equity], 1).cummax(1).values[:, 1:]
    wanted = (equity / before).log() - 0.5 * (1 - equity / peak)
    torch.testing.assert_close(played["next", "reward"][..., 0], wanted.float())
    assert played["next", "reward"].std() > 1e-4


def test_fields_are_what_the_environment_emits():
    fields = {
        "fees": lambda bar: bar.fees,
        "realised": lambda bar: bar.realised.sum(-1),
        "units": lambda bar: bar.units.sum(-1),
        "volatility": lambda bar: bar.price["volatility"].sum(-1),
    }
    for name, read in fields.items():
        played = rollout(build(read, assets=2))
        emitted = played["next", "account", name].sum(-1, keepdim=True)
        torch.testing.assert_close(played["next", "reward"], emitted.float(), msg=name)


def test_what_happens_does_not_depend_on_it():
    own, plain = rollout(build(Steady())), rollout(build("growth"))
    for key in ("observation", "account"):
        assert (own["next", key] == plain["next", key]).all()


def test_compiled_is_the_same():
    eager = rollout(build(Steady(), emit=("equity",)))
    env = build(Steady(), emit=("equity",), compiled=True)
    assert env.compiled
    torch.testing.assert_close(rollout(env)["next", "reward"], eager["next", "reward"])


def test_what_cannot_be_compiled_steps_uncompiled():
    def numbered(bar):
        return torch.as_tensor([float(each) for each in bar.equity.tolist()])

    with pytest.warns(UserWarning, match="numbered cannot be compiled: .*; the environment steps"):
        env = build(numbered, compiled=True)
    assert not env.compiled
    assert rollout(env, 3)["next", "reward"].isfinite().all()


calls = []


def later(bar):
    calls.append(0)
    return bar.equity * 0 + len(calls)


def greedy(bar):
    bar.equity.clamp_(min=1.0)
    return bar.equity


@dataclass
class Changeable:
    def __call__(self, bar: Bar) -> Tensor:
        return bar.equity


@pytest.mark.parametrize(
    ("reward", "said"),
    [
        ("profits", "reward='profits' is not known; allowed are growth"),
        (7, "reward must be a name or a function of a bar, got 7"),
        (lambda bar: bar.equity.mean(), r"one number for each of 6 accounts, \[6\], got \[\]"),
        (lambda bar: bar.realised, r"got \[6, 1\]; values of assets \[6, 1\] are summed"),
        (lambda bar: 1.0, "got float"),
        (lambda bar: (bar.equity / bar.equity_before).log(), "is nan for an account whose equity"),
        (lambda bar: 1 / bar.traded.sum(-1), "is inf for an account"),
        (lambda bar: torch.randn(len(bar.equity)), "says something else of the same bar"),
        (later, "later says something else of the same bar"),
        (greedy, "greedy changes the bar it is given"),
        (lambda bar: bar.equity - bar.equity.mean(), "mixes accounts"),
        (lambda bar: bar.equity.cumsum(0), "mixes accounts"),
        (Changeable(), r"@dataclass\(frozen=True\)"),
    ],
)
def test_what_is_refused(reward, said):
    with pytest.raises(ValueError, match=said):
        build(reward)


def test_what_is_not_finite_in_the_market_is_named():
    tried = torch.tensor([100.0, 101, 97, 103, 10], dtype=torch.float64)

    def strange(bar):
        known = (bar.price["close"].sum(-1)[:, None] == tried).any(-1)
        return torch.where(known, 0.0, torch.nan).double()

    env = build(strange)
    before = env.get_extra_state()
    seen = env.reset()
    with pytest.raises(ValueError, match=r"strange is nan for account 0 after bar \d+"):
        env.step(seen.set("action", torch.zeros(4, 1)))
    assert before["settings"]["reward"].endswith("strange")


def test_accounts_are_not_gone_on_with_under_another_reward():
    env = build(Steady(fear=0.5))
    rollout(env, 3)
    saved = env.get_extra_state()
    build(Steady(fear=0.5)).set_extra_state(saved)
    with pytest.raises(ValueError, match=r"reward was .*Steady\(fear=0.5\) there and is .*0.7"):
        build(Steady(fear=0.7)).set_extra_state(saved)
