"""Options carried out on a market: durations, time-outs and masks, step by step."""

from functools import cache

import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torchrl.envs import Compose, TransformedEnv
from torchrl.envs.utils import ExplorationType, check_env_specs, set_exploration_type

from trading_torchrl.data import synthetic_market
from trading_torchrl.envs import TradingEnv
from trading_torchrl.envs.running_option import (
    ALLOWED,
    AT_FIRST,
    ENTERED,
    INDEX,
    LASTED,
    LOG_PROB,
    STEPS,
    RunningOption,
)
from trading_torchrl.envs.signals import Signals, signals_of
from trading_torchrl.modules.controller import Controller
from trading_torchrl.modules.option_policy import (
    BY_PURPOSE,
    ENDED,
    GOES_ON,
    RULE,
    OptionPolicy,
)
from trading_torchrl.modules.options import Levels, Option, trading_options

LEVELS = Levels(trend=1.0, stop=2.0)


@cache
def market():
    return synthetic_market(symbols=8, bars=3_000, seed=0)


def traded(accounts, bars=120, short=True):
    env = TradingEnv(
        market(), accounts, actions="continuous", short=short, max_position=1.0, smoothing=1,
        emit=["index", "share", "equity", "unrealised"], episode_bars=bars, compiled=False,
    )  # fmt: skip
    return TransformedEnv(env, Compose(Signals.of(env), RunningOption(accounts)))


def at_random(options):
    """A controller that wants something else every time."""
    return TensorDictModule(
        lambda seen: 2 * torch.randn(*seen.shape[:-1], options),
        in_keys=["observation"],
        out_keys=[("option", "logits")],
    )


def policy_of(env, options=None, **settings):
    options = trading_options(LEVELS) if options is None else options
    return OptionPolicy(options, at_random(len(options)), cap=1.0, **settings)


def test_specs():
    check_env_specs(traded(4))


def test_durations_time_outs_and_masks_hold_on_a_million_steps():
    torch.manual_seed(0)
    accounts, bars = 2_000, 500
    env = traded(accounts)
    policy = policy_of(env)
    least, most = (
        torch.tensor([getattr(each, name) for each in policy.options]) for name in ("least", "most")
    )
    now = env.reset()
    index, steps = now[INDEX][:, 0], now[STEPS][:, 0]
    fresh = torch.ones(accounts, dtype=torch.bool)
    used, purposes = torch.zeros(6), torch.zeros(6)
    for _ in range(bars):
        now = policy(now)
        chosen, lasts, ended = (now[key][:, 0] for key in (INDEX, STEPS, ENDED))
        chose = lasts == 0
        assert torch.equal(chose, fresh | (ended != GOES_ON))
        assert torch.equal(chosen[~chose], index[~chose])
        assert torch.equal(lasts[~chose], steps[~chose])
        over = ended != GOES_ON
        assert (steps[over] >= least[index[over]]).all()
        assert (lasts < most[chosen]).all()
        assert now[ALLOWED][chose].gather(-1, chosen[chose, None]).all()
        assert (now[LOG_PROB][:, 0][~chose] == 0).all()
        assert (now[LOG_PROB][:, 0][chose] <= 0).all()
        assert torch.equal(now["action"], now[RULE])
        held = now["account", "share"][:, 0] != 0
        assert torch.equal(now[ENTERED][chose, 0], held[chose])
        used += torch.bincount(chosen[chose], minlength=6)
        purposes += torch.bincount(index[ended == BY_PURPOSE], minlength=6)
        after, now = env.step_and_maybe_reset(now)
        fresh = after["next", "done"][:, 0]
        assert torch.equal(after["next", INDEX][:, 0], chosen)
        assert torch.equal(after["next", STEPS][:, 0], lasts + 1)
        assert torch.equal(now[INDEX][fresh, 0], torch.full_like(chosen[fresh], -1))
        index, steps = now[INDEX][:, 0], now[STEPS][:, 0]
    assert (used > 1_000).all(), used
    assert (purposes > 100).all(), purposes


def test_ends_are_as_frequent_as_their_likelihood_says():
    torch.manual_seed(0)
    policy = policy_of(None)
    option = [each.name for each in policy.options].index("WAIT")
    count = 200_000
    state = {
        **{key: torch.full((count, 1), value) for key, value in AT_FIRST.items()},
        INDEX: torch.full((count, 1), option), STEPS: torch.full((count, 1), 8),
    }  # fmt: skip
    zero = torch.zeros(count, 1)
    signals = {name: zero for name in ("trend", "momentum", "volatility_rank")}
    rows = TensorDict(
        {
            "observation": zero,
            "signals": {**signals, "volatility": zero + 0.01},
            "account": {"share": zero, "equity": zero + 1.0, "unrealised": zero},
        },
        [count],
    )
    for key, value in state.items():
        rows.set(key, value)
    ended = policy(rows)[ENDED]
    wanted = 0.8 / (1 + torch.tensor(-5 * (8 / 30 - 0.5)).exp())
    assert float((ended != GOES_ON).float().mean()) == pytest.approx(float(wanted), abs=0.004)


def test_without_exploring_options_last_as_long_as_they_usually_do():
    torch.manual_seed(0)
    rule = [Waits()]
    env = traded(500, bars=100)
    policy = policy_of(env, rule)
    with set_exploration_type(ExplorationType.DETERMINISTIC):
        rows = env.rollout(60, policy, break_when_any_done=False)
        again = env.rollout(60, policy, break_when_any_done=False)
    ended = (rows[ENDED] != GOES_ON)[..., 0]
    lengths = ended.nonzero()[:, 1].view(500, -1).diff(dim=-1)
    assert lengths.unique().numel() == 1
    torch.manual_seed(1)
    drawn = env.rollout(100, policy)
    first = (drawn[ENDED] != GOES_ON)[..., 0].long().argmax(-1)
    assert float(first.float().median()) == float(lengths[0, 0])
    assert torch.equal(rows[ENDED], again[ENDED])


class Waits(Option):
    """One's own: three functions."""

    name, least, most = "WAITS", 2, 12

    def may_start(self, scene):
        return torch.ones_like(scene.held, dtype=torch.bool)

    def act(self, scene):
        return torch.zeros_like(scene.held)

    def met(self, scene):
        return torch.zeros_like(scene.held)


class Never(Waits):
    """An option that nobody may take."""

    def may_start(self, scene):
        return torch.zeros_like(scene.held, dtype=torch.bool)


def test_an_option_is_always_to_be_had():
    env = traded(4)
    with pytest.raises(ValueError, match="no option may start in some scene; give one"):
        policy_of(env, [Never()])(env.reset())


def test_what_was_earned_is_the_price_over_the_entry():
    env = traded(64)
    torch.manual_seed(0)
    rows = env.rollout(100, policy_of(env), break_when_any_done=False)
    accounts = env.base_env._now.accounts
    scene = policy_of(env).scene(env.step_mdp(rows[:, -1]))
    held = accounts["units"][:, 0] != 0
    wanted = torch.where(held, accounts["price"][:, 0] / accounts["entry"][:, 0] - 1, 0.0)
    assert held.any()
    assert (~held).any()
    torch.testing.assert_close(scene.earned.double(), wanted, atol=2e-6, rtol=0)


def test_an_agent_acts_at_the_scale_of_the_option():
    torch.manual_seed(0)
    env = traded(64)

    def half(seen):
        return torch.full((*seen.shape[:-1], 1), 0.5)

    actor = TensorDictModule(half, in_keys=["observation"], out_keys=["action"])
    scaled = policy_of(env, action="scaled", actor=actor)
    rows = env.rollout(60, scaled, break_when_any_done=False)
    scales = torch.tensor([option.scale for option in scaled.options])
    torch.testing.assert_close(rows["action"], 0.5 * scales[rows[INDEX]])
    blend = policy_of(env, action="blend", actor=actor, blend=0.25)
    rows = env.rollout(60, blend, break_when_any_done=False)
    wanted = 0.75 * rows[RULE] + 0.25 * 0.5 * scales[rows[INDEX]]
    torch.testing.assert_close(rows["action"], wanted)


def test_accounts_that_end_an_episode_begin_anew_and_the_others_go_on():
    torch.manual_seed(0)
    env = traded(6)
    policy = policy_of(env)
    now = env.reset()
    for _ in range(7):
        now = env.step_and_maybe_reset(policy(now))[1]
    some = torch.tensor([True, False, True, False, False, False])[:, None]
    again = env.reset(now.clone().set("_reset", some))
    for key, value in AT_FIRST.items():
        assert (again[key][some] == value).all()
        assert torch.equal(again[key][~some], now[key][~some])
    assert (again[INDEX][~some] >= 0).all()
    assert again[ENTERED].dtype == torch.bool
    assert again[LASTED].dtype == torch.float32


def test_a_controller_is_undecided_at_first():
    torch.manual_seed(0)
    logits, values, ends = Controller(5, 6, learns_ends=True).eval()(torch.randn(100, 5))
    for each in (logits, values, ends):
        assert each.shape == (100, 6)
        assert each.abs().max() < 0.1


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"action": "best"}, "action must be rule, scaled or blend"),
        ({"action": "scaled"}, "action=scaled needs an actor"),
        ({"temperature": 0.0}, "temperature must be above 0, got 0.0"),
        ({"blend": 2.0}, "blend must lie in"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings, said):
    with pytest.raises(ValueError, match=said):
        policy_of(None, **settings)


def test_signals_are_those_of_the_bar():
    env = traded(16)
    torch.manual_seed(0)
    rows = env.rollout(30, policy_of(env))
    symbol, bar = rows["market", "symbol"], rows["market", "bar"]
    for name, wanted in signals_of(market()).items():
        torch.testing.assert_close(rows["signals", name], wanted[bar, symbol].float())
    stored = rows.exclude("signals", ("next", "signals"))
    sampled = Signals(signals_of(market()))(stored.clone())  # as a replay buffer does
    assert not {"signals"} & set(stored.keys())
    assert (sampled["signals"] == rows["signals"]).all()
    assert (sampled["next", "signals"] == rows["next", "signals"]).all()


def test_volatility_is_ranked_among_the_bars_before():
    values = signals_of(market())
    at, volatility = 1_000, values["volatility"][:, 3]
    before = volatility[at - 249 : at]
    wanted = float((before < volatility[at]).float().mean())
    assert float(values["volatility_rank"][at, 3]) == pytest.approx(wanted)
    assert float(values["volatility_rank"][0, 3]) == 0.5


@pytest.mark.parametrize(
    ("signals", "said"),
    [
        ({}, "no signal: give at least one"),
        ({"one": torch.zeros(3)}, "all of one shape; one is"),
        ({"one": torch.full((3, 2), torch.nan)}, "signal one is not finite at bar 0, symbol 0"),
    ],
)
def test_signals_that_cannot_be_shown_are_refused(signals, said):
    with pytest.raises(ValueError, match=said):
        Signals(signals)
