"""Hybrid environments against pure ones, and policies of one mode in the other."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from test_trading import build, differing, play, script
from torchrl.collectors import Collector

from trading_torchrl.data import Market, synthetic_market
from trading_torchrl.envs import ContinuousInDiscrete, DiscreteInContinuous, TradingEnv
from trading_torchrl.envs import actions as read
from trading_torchrl.envs.migration import EMIT
from trading_torchrl.evaluation import RandomPolicy
from trading_torchrl.risk import Limits

SETTINGS: dict[str, dict[str, Any]] = {
    "long": {"smoothing": 5},
    "short_assets": {"short": True, "assets": 3, "max_position": 0.5, "emit": "all"},
    "objectives": {"reward": "objectives", "short": True, "leverage": 2.0, "emit": "all"},
    "professional": {"reward": "professional", "emit": "all"},
    "limits": {"limits": Limits(daily_trades=3, repeats=2, drawdown=0.02), "fill": "close"},
    "window": {"window": 16, "assets": 2},
}


@pytest.fixture(scope="module")
def market() -> Market:
    return synthetic_market(symbols=4, bars=700, seed=3, volatility=2.0)


def unlike_pure(
    hybrid: TensorDictBase, continuous: TensorDictBase, discrete: TensorDictBase
) -> torch.Tensor:
    """Accounts [N] of a hybrid rollout that differ from those of the mode they were in."""
    named = hybrid["account", "mode"] == read.DISCRETE
    unlike = torch.zeros(len(hybrid), dtype=torch.bool)
    for pure, mine in ((continuous, ~named), (discrete, named)):
        for key in pure.exclude("action").keys(True, True):
            unlike |= ((pure[key] != hybrid[key]) & mine).flatten(1).any(1)
    return unlike


def all_three(
    market: Market, accounts: int, steps: int, reset_at: tuple[int, ...], **settings: Any
) -> tuple[TensorDictBase, TensorDictBase, TensorDictBase]:
    """The same actions in a hybrid, a continuous and a discrete environment."""
    hybrid, continuous, discrete = (
        build(market, accounts, actions=actions, **settings)
        for actions in ("hybrid", "continuous", "discrete")
    )
    actions = script(hybrid, steps)
    named = actions.select("action_name").rename_key_("action_name", "action")
    return (
        play(hybrid, actions, reset_at),
        play(continuous, actions.select("action"), reset_at),
        play(discrete, named, reset_at),
    )


@pytest.mark.parametrize("name", SETTINGS)
def test_hybrid_accounts_are_those_of_the_mode_they_are_in(market: Market, name: str) -> None:
    hybrid, continuous, discrete = all_three(market, 5, 130, (7, 55), **SETTINGS[name])
    assert not unlike_pure(hybrid, continuous, discrete).any()
    mode, done = hybrid["account", "mode"][..., 0], hybrid["next", "done"][..., 0]
    assert (mode == hybrid["next", "account", "mode"][..., 0]).all()
    assert (mode[:, 1:][done[:, :-1]] != mode[:, :-1][done[:, :-1]]).all()
    assert done.sum() >= 12
    assert (continuous["next", "observation"] != discrete["next", "observation"]).any()
    masked = continuous.set("action_mask", discrete["action_mask"])
    assert unlike_pure(hybrid, discrete, masked).all()


def test_episodes_alternate_by_account_and_episode(market: Market) -> None:
    env = build(market, 4, actions="hybrid", first_account=3)
    modes = [env.reset()["account", "mode"][:, 0].tolist() for _ in range(3)]
    assert modes == [[1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0]]


def test_a_mode_asked_for_begins_with_the_next_episode(market: Market) -> None:
    env = build(market, 4, actions="hybrid", mode="continuous")
    seen = env.reset()
    assert (seen["account", "mode"] == 0).all()
    env.next_mode("discrete")
    seen = env.step(env.rand_action(seen))["next"]
    assert (seen["account", "mode"] == 0).all()
    seen["_reset"] = torch.tensor([[True], [False], [True], [False]])
    assert env.reset(seen)["account", "mode"][:, 0].tolist() == [1, 0, 1, 0]
    other = build(market, 4, actions="hybrid")
    other.load_state_dict(env.state_dict())
    assert (other.reset()["account", "mode"] == 1).all()
    with pytest.raises(ValueError, match="mode='both' is not known; allowed are continuous"):
        env.next_mode("both")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="needs actions='hybrid', got actions='target'"):
        build(market, actions="target").next_mode("discrete")


@pytest.mark.parametrize("compiled", [False, True])
def test_only_the_action_of_the_other_mode_may_be_anything(market: Market, compiled: bool) -> None:
    env = build(market, 2, actions="hybrid", compiled=compiled)  # account 0 numbers, 1 names
    seen = env.reset()
    good = {"action": torch.tensor([[0.5], [torch.nan]]), "action_name": torch.tensor([99, 3])}
    after = env.step(seen.clone().update(good))["next"]
    assert after["observation"].isfinite().all()
    before = {name: value.clone() for name, value in env._now.accounts.items()}
    for bad, message in (
        ({"action": torch.tensor([[torch.nan], [0.5]])}, r"account 0 got the action \[nan\]"),
        (
            {"action_name": torch.tensor([1, 7])},
            r"account 1 got the action_name \[7\].*action_names are whole numbers from 0 to 6",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            env.step(seen.clone().update({**good, **bad}))
        assert all((before[name] == value).all() for name, value in env._now.accounts.items())


def test_an_agent_of_numbers_alone_runs_while_all_accounts_take_numbers(market: Market) -> None:
    env = build(market, 3, actions="hybrid", mode="continuous")
    pure = build(market, 3)
    one, two = (
        each.rollout(100, RandomPolicy(pure), break_when_any_done=False) for each in (env, pure)
    )
    assert (one["next", "account", "equity"] == two["next", "account", "equity"]).all()
    env.next_mode("discrete")
    with pytest.raises(ValueError, match=r"account 0 got the action_name \[-1\]"):
        env.rollout(2, RandomPolicy(pure))


def test_observations_show_the_last_action_carried_out(market: Market) -> None:
    for settings in ({"actions": "discrete"}, {"smoothing": 1}, {"actions": "hybrid"}):
        env = build(market, 8, emit=("smoothed_action",), **settings)
        last = env.observation_names.index("smoothed_action")
        seen = env.rollout(30)["next"]
        assert (seen["observation"][..., last, None] == seen["trade", "smoothed_action"]).all()
    alike = ("continuous", "discrete", "hybrid")
    assert len({build(market, actions=actions).observation_names for actions in alike}) == 1


class Chooser(TensorDictModuleBase):
    """Names by what is observed, and by chance; not those the mask forbids, if it is masked."""

    def __init__(self, env: TradingEnv, masked: bool) -> None:
        super().__init__()
        self.in_keys = ["observation", "action_mask"] if masked else ["observation"]
        self.out_keys = ["action"]
        self.generator = torch.Generator().manual_seed(0)
        self.assets = env.rules.assets
        shape = (len(env.observation_names), 7 * self.assets)
        self.weight = torch.randn(shape, generator=self.generator)

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        logits = tensordict["observation"].clamp(-3, 3) @ self.weight
        logits = logits + 8 * torch.randn(logits.shape, generator=self.generator)
        if "action_mask" in self.in_keys:
            logits = logits.masked_fill(~tensordict["action_mask"], -torch.inf)
        name = logits.unflatten(-1, (self.assets, 7)).argmax(-1)
        return tensordict.set("action", name.squeeze(-1) if self.assets == 1 else name)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    "settings",
    [{}, {"short": True, "assets": 3, "max_position": 0.5}, {"fill": "close", "leverage": 2.0}],
    ids=["long", "short_assets", "close"],
)
def test_a_discrete_policy_has_the_same_accounts_among_numbers(
    market: Market, settings: dict[str, Any], masked: bool
) -> None:
    options = {**settings, "emit": "all", "smoothing": 1}
    discrete = build(market, 6, actions="discrete", **options)
    expected = discrete.rollout(150, Chooser(discrete, masked), break_when_any_done=False)
    chosen = expected["action"].reshape(6, 150, -1)
    assert set(chosen.unique().tolist()) == set(range(7))
    for actions in ("continuous", "hybrid"):
        env = build(market, 6, actions=actions, **options)
        policy = DiscreteInContinuous(Chooser(env, masked), env)
        rollout = env.rollout(150, policy, break_when_any_done=False)
        assert (rollout["action_mask"] == expected["action_mask"]).all()
        binned = (chosen == read.ADD_TO_WINNER) & (rollout["action"] != 0)
        named = rollout["next", "trade", "name"]
        if actions == "continuous":
            assert (named == read.name_of(rollout["action"])).all()
        same = named == expected["next", "trade", "name"]
        assert (same | (chosen == read.ADD_TO_WINNER)).all()
        assert masked or binned.any()
        left_out = ("action", "action_name", "action_mask", ("next", "action_mask"))
        left_out += (("account", "mode"), ("next", "account", "mode"))
        left_out += (("trade", "name"), ("next", "trade", "name"))
        assert not differing(expected.exclude(*left_out), rollout.exclude(*left_out))


def test_six_names_come_back_from_a_continuous_environment(market: Market) -> None:
    env = build(market, 6, smoothing=1, emit=("name", *EMIT))

    def every_name(tensordict: TensorDictBase) -> TensorDictBase:
        return tensordict.set("action", torch.arange(6))

    seen = env.rollout(20, DiscreteInContinuous(every_name, env))
    assert (seen["next", "trade", "name"] == torch.arange(6)[:, None, None]).all()


@pytest.mark.parametrize("assets", [1, 2])
def test_a_continuous_policy_has_its_names_carried_out(market: Market, assets: int) -> None:
    env = build(market, 8, actions="discrete", emit=("name", "value"), assets=assets)
    numbers: list[torch.Tensor] = []

    class Noted(RandomPolicy):
        def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
            tensordict = super().forward(tensordict)
            numbers.append(tensordict["action"])
            return tensordict

    policy = Noted(build(market, 8, assets=assets))
    rollout = env.rollout(120, ContinuousInDiscrete(policy, env), break_when_any_done=False)
    given = read.name_of(torch.stack(numbers, 1))
    mask = rollout["action_mask"].unflatten(-1, (assets, 7)).gather(-1, given[..., None])[..., 0]
    done = rollout["next", "trade", "name"]
    assert (done == torch.where(mask, given, read.HOLD)).all()
    assert (done == rollout["action"].reshape(done.shape)).all()
    assert (~mask).any()
    assert (rollout["next", "trade", "value"] != 0).any()

    hybrid = build(market, 8, actions="hybrid", mode="discrete", assets=assets)
    again = ContinuousInDiscrete(RandomPolicy(build(market, 8, assets=assets)), hybrid)
    twin = hybrid.rollout(120, again, break_when_any_done=False)
    assert (twin["next", "observation"] == rollout["next", "observation"]).all()
    assert (twin["action"] == torch.stack(numbers, 1)).all()


def test_a_continuous_policy_without_a_number_is_refused(market: Market) -> None:
    env = build(market, 2, actions="discrete")

    def broken(tensordict: TensorDictBase) -> TensorDictBase:
        return tensordict.set("action", torch.tensor([[0.5], [torch.nan]]))

    with pytest.raises(ValueError, match=r"account 1 got the action \[-1\].*0 to 6"):
        env.rollout(2, ContinuousInDiscrete(broken, env))


def test_migrated_policies_are_collected(market: Market) -> None:
    for env, policy in (
        (build(market, 4, emit=EMIT, smoothing=1), DiscreteInContinuous),
        (build(market, 4, actions="hybrid", emit=EMIT, smoothing=1), DiscreteInContinuous),
        (build(market, 4, actions="discrete", emit=EMIT), ContinuousInDiscrete),
    ):
        other = "discrete" if policy is DiscreteInContinuous else "continuous"
        plain = build(market, 4, actions=other)
        collector = Collector(
            env,
            policy(RandomPolicy(plain), env),
            frames_per_batch=4 * 50,
            total_frames=4 * 100,
            auto_register_policy_transforms=False,
        )
        batches = torch.cat([batch.clone() for batch in collector], 1)
        collector.shutdown()
        assert batches.shape == (4, 100)
        assert batches["next", "account", "equity"].std() > 0


@pytest.mark.parametrize(
    ("wrapper", "settings", "message"),
    [
        (DiscreteInContinuous, {"emit": ("equity", "index")}, "not emit units, unrealised; build"),
        (DiscreteInContinuous, {"actions": "target"}, "continuous or hybrid; .*actions='target'"),
        (ContinuousInDiscrete, {}, "discrete or hybrid; this environment has actions='continuous'"),
    ],
)
def test_environments_that_do_not_fit_are_refused(
    market: Market, wrapper: Any, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        wrapper(RandomPolicy(build(market)), build(market, **settings))
