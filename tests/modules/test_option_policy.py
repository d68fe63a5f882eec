"""Options carried out on a market: durations, time-outs and masks, step by step."""

from functools import cache, partial

import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torchrl.collectors import Collector
from torchrl.envs import Compose, SerialEnv, TransformedEnv
from torchrl.envs.utils import ExplorationType, check_env_specs, set_exploration_type

from trading_torchrl.data import synthetic_market
from trading_torchrl.envs import TradingEnv
from trading_torchrl.envs.compiling import compiles
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
from trading_torchrl.modules.carried_out import FACTOR, OFFSET, carried_out
from trading_torchrl.modules.controller import Controller
from trading_torchrl.modules.networks import make_actor
from trading_torchrl.modules.option_policy import CODE, ENDED, OptionPolicy
from trading_torchrl.modules.option_turns import BY_PURPOSE, GOES_ON
from trading_torchrl.modules.options import Levels, Option, acted
from trading_torchrl.modules.trading_options import trading_options
from trading_torchrl.objectives import OptionsLoss
from trading_torchrl.replay import Segments
from trading_torchrl.resume import collector_state, restore_collector

LEVELS = Levels(trend=1.0, stop=2.0)


@cache
def market():
    return synthetic_market(symbols=8, bars=3_000, seed=0)


def traded(accounts, bars=120, short=True):
    env = TradingEnv(
        market(), accounts, actions="continuous", short=short, max_position=1.0, smoothing=1,
        emit=["index", "share", "equity", "unrealised"], episode_bars=bars, compiled=False,
    )  # fmt: skip
    return TransformedEnv(env, Compose(Signals.of(env), RunningOption()))


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
        assert torch.equal(now["action"], now[OFFSET])
        assert (now[FACTOR] == 0).all()
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


@pytest.mark.parametrize(("action", "part"), [("scaled", 1.0), ("blend", 0.25)])
def test_an_agent_sees_its_option_and_acts_through_it(action, part):
    torch.manual_seed(0)
    env = traded(64)
    width = env.observation_spec["observation"].shape[-1]
    agent = make_actor(width + 7, 1, [16], ["observation", CODE])
    policy = policy_of(env, action=action, actor=carried_out(agent), blend=0.25)
    rows = env.rollout(60, policy, break_when_any_done=False)
    index, steps = rows[INDEX], rows[STEPS]
    scales = torch.tensor([option.scale for option in policy.options])
    torch.testing.assert_close(rows[FACTOR], part * scales[index])
    most = torch.tensor([option.most for option in policy.options])
    torch.testing.assert_close(rows[CODE][..., :6].argmax(-1, keepdim=True), index)
    torch.testing.assert_close(rows[CODE][..., 6:], steps / most[index])
    wanted = (rows["action"] - rows[OFFSET]) / rows[FACTOR]
    assert (wanted[rows[FACTOR] > 0].abs() <= 1 + 1e-5).all()
    assert torch.equal(rows["action"][rows[FACTOR] == 0], rows[OFFSET][rows[FACTOR] == 0])
    with set_exploration_type(ExplorationType.DETERMINISTIC):
        rows = env.rollout(60, policy, break_when_any_done=False)
        wanted = agent(rows.select(*agent.in_keys))["action"]
    torch.testing.assert_close(rows["action"], rows[OFFSET] + rows[FACTOR] * wanted)
    scene = policy.seen(rows, rows[STEPS][..., 0], rows[ENTERED][..., 0])
    rule = acted(policy.options, scene, index=rows[INDEX][..., 0])
    torch.testing.assert_close(rows[OFFSET][..., 0], (1 - part) * rule.float())


def test_an_actor_that_options_do_not_work_through_is_refused():
    with pytest.raises(ValueError, match="made carried_out"):
        policy_of(None, action="scaled", actor=make_actor(4, 1, [16]))


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


def learning(options, dropout=0.1):
    """A controller as it learns: it leaves some units out."""
    env = traded(1)
    width = env.observation_spec["observation"].shape[-1]
    network = Controller(width, options, (32,), dropout=dropout)
    for each in network.heads.parameters():
        torch.nn.init.normal_(each)
    keys = [("option", "logits"), ("option", "values")]
    return TensorDictModule(network, in_keys=["observation"], out_keys=keys).train()


def test_choices_leave_nothing_out_and_are_the_same_again():
    torch.manual_seed(0)
    options = trading_options(LEVELS)
    policy = OptionPolicy(options, learning(len(options), dropout=0.5), cap=1.0)
    rows = traded(300).reset()
    for kind in (ExplorationType.DETERMINISTIC, ExplorationType.MODE, ExplorationType.MEAN):
        with set_exploration_type(kind):
            first, again = policy(rows.clone()), policy(rows.clone())
        assert torch.equal(first[INDEX], again[INDEX])
    assert first[INDEX].unique().numel() > 1
    assert policy.controller.training
    with set_exploration_type(ExplorationType.RANDOM):
        assert not torch.equal(policy(rows.clone())[INDEX], policy(rows.clone())[INDEX])


def collected(batch, frames, workers=False):
    """Steps of a collector, batch after batch, and the options that ended in them."""
    torch.manual_seed(0)
    options = trading_options(LEVELS)
    policy = OptionPolicy(options, learning(len(options)), cap=1.0)
    env = SerialEnv(2, partial(traded, 3)) if workers else traded(6)
    env.set_seed(0)
    collector = Collector(
        env, policy, frames_per_batch=6 * batch, total_frames=6 * frames, track_traj_ids=False,
        auto_register_policy_transforms=False, trust_policy=True,
    )  # fmt: skip
    segments = Segments(policy.may, gamma=0.9)
    return [(rows, segments(rows)) for rows in collector]


def test_a_collector_may_cut_options_wherever_it_likes():
    short, long = collected(8, 160), collected(160, 160)
    together = torch.cat([rows for rows, _ in short], -1)
    for key in (INDEX, STEPS, ENDED, LOG_PROB, "action", ("next", "reward")):
        assert torch.equal(together.get(key), long[0][0].get(key))
    pieces, whole = torch.cat([each for _, each in short]), long[0][1]
    assert len(pieces) == len(whole) > 100
    for key in ("observation", INDEX, ("next", "reward"), ("next", "option", "duration")):
        assert torch.equal(pieces.get(key), whole.get(key))
    losses = OptionsLoss(learning(6), gamma=0.9)(whole)
    assert all(torch.isfinite(each) for each in losses.values())


def test_options_run_in_worker_environments():
    (rows, segments), *_ = collected(150, 150, workers=True)
    assert rows.shape == (2, 3, 150)
    assert len(segments) > 50
    lasts, ended = rows[STEPS][..., 0], rows[ENDED][..., 0]
    over = (ended[..., 1:] != GOES_ON).nonzero()
    least = torch.tensor([each.least for each in trading_options(LEVELS)])
    for worker, account, t in over.tolist():
        index = rows[INDEX][worker, account, t, 0]
        assert lasts[worker, account, t] + 1 >= least[index]


def test_an_option_that_runs_is_carried_on_from_a_saved_collector():
    options = trading_options(LEVELS)

    def built():
        torch.manual_seed(0)
        env = traded(6)
        return Collector(
            env, OptionPolicy(options, learning(len(options)), cap=1.0), frames_per_batch=42,
            total_frames=-1, track_traj_ids=False, auto_register_policy_transforms=False,
            trust_policy=True,
        )  # fmt: skip

    first = built()
    batches = iter(first)
    for _ in range(4):
        next(batches)
    saved, drawn = collector_state(first), torch.get_rng_state()
    wanted = [next(batches).clone() for _ in range(3)]
    assert (wanted[0][STEPS][:, 0] > 0).any()  # in the middle of options
    other = built()
    again = iter(other)
    next(again)
    restore_collector(other, saved)
    torch.set_rng_state(drawn)
    for rows in wanted:
        found = next(again)
        for key in rows.keys(True, True):
            assert torch.equal(found.get(key), rows.get(key)), key


def test_levels_go_with_the_policy():
    policy = policy_of(None)
    other = policy_of(None, trading_options(Levels(trend=9.0, stop=9.0)))
    other.load_state_dict(policy.state_dict())
    assert {each.levels for each in other.options} == {LEVELS}
    fewer = policy_of(None, trading_options(LEVELS, short=False))
    with pytest.raises(ValueError, match="build it with the same options, in the same order"):
        fewer.load_state_dict(policy.state_dict(), strict=False)


def test_each_option_may_start_often_enough():
    """In a fifth of the bars of its kind, with levels chosen on the market."""
    torch.manual_seed(0)
    signals = signals_of(market())
    options = trading_options(Levels.fit(signals["trend"], signals["volatility"]))
    env = traded(200)
    rows = env.rollout(100, policy_of(env, options))
    flat = rows["account", "share"][..., 0] == 0
    may = rows[ALLOWED]
    for k, option in enumerate(options):
        kind = flat if option.name.startswith("OPEN") else torch.ones_like(flat)
        kind = ~flat if option.name == "CLOSE_POSITION" else kind
        assert float(may[..., k][kind].float().mean()) >= 0.2, option.name


def test_a_policy_says_what_it_needs():
    env = TradingEnv(market(), 4, compiled=False)
    with pytest.raises(ValueError, match="options read 'signals', which is not there"):
        policy_of(env)(env.reset())


def test_options_that_cannot_be_carried_out_are_refused():
    class Endless(Waits):
        least, most = 10, 5

    class Nameless(Option):
        may_start = act = met = Waits.act

    for options, said in (
        ([], "at least 1 option"),
        ([Endless()], "least must be at least 1 and no more than most, got least=10, most=5"),
        ([Nameless()], "option Nameless has no name"),
        ([Waits(), Waits()], "two options are named WAITS"),
    ):
        with pytest.raises(ValueError, match=said):
            policy_of(None, options)


def test_a_controller_is_undecided_at_first():
    torch.manual_seed(0)
    for each in Controller(5, 6).eval()(torch.randn(100, 5)):
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


@pytest.mark.skipif(not compiles(), reason="no C++ compiler")
def test_compiled_it_decides_the_same():
    """For any number of accounts, exploring and not."""
    options = trading_options(LEVELS)
    controller = learning(len(options))
    usual, fast = (
        OptionPolicy(options, controller, cap=1.0, compiled=compiled) for compiled in (False, True)
    )
    for accounts, kind in ((40, ExplorationType.RANDOM), (7, ExplorationType.DETERMINISTIC)):
        found = []
        for policy in (usual, fast):
            env = traded(accounts)
            torch.manual_seed(0)
            with set_exploration_type(kind):
                found.append(env.rollout(50, policy, break_when_any_done=False))
        one, other = found
        for key in (INDEX, STEPS, ENDED, ENTERED, ALLOWED, CODE, "action"):
            assert torch.equal(one.get(key), other.get(key)), key
        for key in (LASTED, LOG_PROB):
            torch.testing.assert_close(one.get(key), other.get(key))
