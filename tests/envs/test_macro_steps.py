"""One action is one option: the same as stepping it by hand."""

import pytest
import torch
from tensordict.nn import TensorDictModule
from torchrl.collectors import Collector
from torchrl.envs import ObservationNorm, TransformedEnv
from torchrl.envs.utils import ExplorationType, check_env_specs, set_exploration_type

from trading_torchrl.data import synthetic_market
from trading_torchrl.envs import MacroEnv, RunningOption, Signals, TradingEnv
from trading_torchrl.modules import Levels, OptionPolicy, make_q_actor, trading_options
from trading_torchrl.modules.options import acted, allowed, ending, scene_of
from trading_torchrl.objectives import DQNLoss

EMIT = ["index", "share", "equity", "unrealised"]
OPTIONS = trading_options(Levels(trend=1.0, stop=2.0))
GAMMA = 0.97


@pytest.fixture(scope="module")
def market():
    return synthetic_market(symbols=6, bars=2_000, seed=0)


def by_bars(market, accounts, first=0, emit=EMIT):
    env = TradingEnv(
        market, accounts, short=True, max_position=1.0, smoothing=1, emit=emit, episode_bars=70,
        first_account=first, compiled=False,
    )  # fmt: skip
    return TransformedEnv(env, Signals.of(env))


def by_options(market, accounts):
    return MacroEnv(by_bars(market, accounts), OPTIONS, gamma=GAMMA)


def stepped_by_hand(env, now, k):
    """One option of one account, bar after bar: earnings, bars, where it ends."""
    option, earned, bars, lasted = OPTIONS[k], 0.0, 0, 1.0
    entered = bool(now["account", "share"] != 0)
    while True:
        scene = scene_of(now, 1.0, torch.tensor([bars]), torch.tensor([entered]))
        now = now.set("action", acted(OPTIONS, scene, torch.tensor([k])).float()[:, None])
        after = env.step(now)["next"]
        earned += GAMMA**bars * float(after["reward"])
        bars += 1
        entered = entered or bool(after["account", "share"] != 0)
        if bool(after["done"]):
            return earned, bars, after
        scene = scene_of(after, 1.0, torch.tensor([bars]), torch.tensor([entered]))
        likely = float(
            ending(
                scene.steps,
                option.least,
                option.most,
                steepness=option.steepness,
                likeliest=option.likeliest,
            )
        )
        if bars >= option.least:
            likely = max(likely, float(option.met(scene)))
        lasted *= 1 - likely
        if lasted <= 0.5:
            return earned, bars, after
        now = after.exclude("reward")


def test_an_option_is_what_its_bars_are_by_hand(market):
    torch.manual_seed(0)
    accounts = 6
    env = by_options(market, accounts)
    hands = [by_bars(market, 1, first=n) for n in range(accounts)]
    now, alone = env.reset(), [each.reset() for each in hands]
    used, cut = set(), 0
    with set_exploration_type(ExplorationType.DETERMINISTIC):
        for _ in range(14):
            scene = scene_of(
                now, 1.0, torch.zeros(accounts).long(), torch.zeros(accounts, dtype=torch.bool)
            )
            assert torch.equal(now["action_mask"], allowed(OPTIONS, scene))
            env.rand_action(now)
            chosen = now["action"].tolist()
            assert now["action_mask"].gather(-1, now["action"][:, None]).all()
            after, now = env.step_and_maybe_reset(now)
            then = after["next"]
            for n, k in enumerate(chosen):
                earned, bars, end = stepped_by_hand(hands[n], alone[n], k)
                assert float(then["reward"][n]) == pytest.approx(earned, abs=1e-6)
                assert int(then["option", "duration"][n]) == bars
                assert torch.equal(then["observation"][n], end["observation"][0])
                assert bool(then["done"][n]) == bool(end["done"])
                used.add(k)
                cut += bool(end["done"])
                alone[n] = hands[n].reset() if end["done"] else end.exclude("reward")
    assert used == set(range(6))
    assert cut > 3


def test_specs(market):
    check_env_specs(by_options(market, 4))


def test_a_loss_of_a_few_choices_chooses_options(market):
    torch.manual_seed(0)
    env = by_options(market, 8)
    width = env.observation_spec["observation"].shape[-1]
    actor = make_q_actor(width, len(OPTIONS), [16], ["observation", "action_mask"])
    loss = DQNLoss(actor, gamma=GAMMA)
    loss.set_keys(steps_to_next_obs=("next", "option", "duration"))
    collector = Collector(
        env, actor, frames_per_batch=64, total_frames=128, init_random_frames=64,
        auto_register_policy_transforms=False,
    )  # fmt: skip
    for batch in collector:
        assert batch["action_mask"].gather(-1, batch["action"][..., None]).all()
        rows = batch.reshape(-1)
        loss(rows)["loss_qvalue"].backward()
        after = rows["next"]
        values = loss.target_qvalue_network(after.clone())["action_value"][..., 0, :]
        best = values.gather(-1, loss._best(after)[:, None])
        ahead = GAMMA ** after["option", "duration"] * best * ~after["terminated"]
        torch.testing.assert_close(loss._wanted(rows), after["reward"].float() + ahead)
        assert (after["option", "duration"] > 1).any()
    assert any((each.grad != 0).any() for each in loss.parameters() if each.grad is not None)


def test_environments_without_what_options_read_are_refused(market):
    with pytest.raises(ValueError, match=r"does not show; build it with emit=\[..., 'share'\]"):
        MacroEnv(by_bars(market, 2, emit=["index"]), OPTIONS, gamma=GAMMA)
    bare = TradingEnv(market, 2, emit=EMIT, smoothing=1, compiled=False)
    with pytest.raises(ValueError, match="options read signals"):
        MacroEnv(bare, OPTIONS, gamma=GAMMA)
    smoothed = TradingEnv(market, 2, emit=EMIT, compiled=False)
    with pytest.raises(ValueError, match="carried out with smoothing=1, got 3"):
        MacroEnv(smoothed, OPTIONS, gamma=GAMMA)


WAIT, LONG, SHORT, CLOSE = 5, 0, 1, 2


@pytest.mark.parametrize("below", [False, True])
def test_whoever_is_through_waits_for_the_others(market, below):
    """What an account goes through does not depend on how long others take."""

    def built():
        env = by_bars(market, 3)
        if below:  # it is no longer the same where it is applied twice
            env.append_transform(ObservationNorm(0.0, 2.0, in_keys=["observation"]))
        return MacroEnv(env, OPTIONS, gamma=GAMMA)

    torch.manual_seed(0)
    together, alone = built(), built()
    with set_exploration_type(ExplorationType.DETERMINISTIC):
        first = together.step(together.reset().set("action", torch.tensor([WAIT, LONG, SHORT])))
        again = alone.step(alone.reset().set("action", torch.tensor([WAIT, WAIT, WAIT])))
        long = alone.step(alone.reset().set("action", torch.tensor([LONG, LONG, LONG])))
    bars = first["next", "option", "duration"][:, 0]
    assert bars.unique().numel() > 1
    assert not torch.equal(long["next", "observation"][0], again["next", "observation"][0])
    for key in ("observation", "reward", ("option", "duration"), ("account", "equity")):
        assert torch.equal(first["next"].get(key)[0], again["next"].get(key)[0])


def test_accounts_that_sit_a_step_out_stay_where_they_are(market):
    env = by_options(market, 3)
    now = env.reset().set("action", torch.tensor([LONG, LONG, WAIT]))
    some = torch.tensor([True, False, True])
    after = env.step(now.clone().set("_step", some))["next"]
    for key in ("observation", ("account", "equity"), ("market", "bar"), ("option", "duration")):
        assert torch.equal(after.get(key)[1], now.get(key)[1])
    assert float(after["reward"][1]) == 0
    assert (after["option", "duration"][some] >= 5).all()


def test_options_that_may_not_start_are_refused(market):
    env = by_options(market, 3)
    now = env.reset().set("action", torch.tensor([WAIT, CLOSE, WAIT]))
    with pytest.raises(ValueError, match="account 1 is to carry out CLOSE_POSITION, which may not"):
        env.step(now)


def test_durations_hold_where_ends_are_drawn(market):
    torch.manual_seed(0)
    env = by_options(market, 200)
    rows = env.rollout(20, break_when_any_done=False)
    bars, index = rows["next", "option", "duration"][..., 0], rows["action"]
    least, most = (
        torch.tensor([getattr(each, name) for each in OPTIONS])[index] for name in ("least", "most")
    )
    done = rows["next", "done"][..., 0]
    assert (bars <= most).all()
    assert (bars[~done] >= least[~done]).all()
    assert done.any()
    assert all(bars[index == k].unique().numel() > 3 for k in range(len(OPTIONS)))


def test_a_policy_of_options_and_the_environment_of_options_agree(market):
    """The same choices, bar by bar and option by option."""
    torch.manual_seed(0)
    bars = TransformedEnv(by_bars(market, 8), RunningOption())
    favourites = torch.randn(8, len(OPTIONS))

    def wants(seen):
        return favourites[seen.long().flatten()]

    def numbered(env):
        number = torch.arange(8.0)[:, None]
        return lambda tensordict: tensordict.set("number", number)

    controller = TensorDictModule(wants, in_keys=["number"], out_keys=[("option", "logits")])
    policy = OptionPolicy(OPTIONS, controller, cap=1.0)
    number, macro = numbered(bars), by_options(market, 8)

    def choice(tensordict):
        wanted = favourites.masked_fill(~tensordict["action_mask"], -torch.inf)
        return tensordict.set("action", wanted.argmax(-1))

    with set_exploration_type(ExplorationType.DETERMINISTIC):
        steps = bars.rollout(69, lambda tensordict: policy(number(tensordict)))
        chosen = macro.rollout(40, choice)
    for n in range(8):
        began = steps["option", "steps"][n, :, 0] == 0
        by_bar = steps["option", "index"][n, began, 0]
        by_option, took = chosen["action"][n], chosen["next", "option", "duration"][n, :, 0]
        count = min(len(by_bar), len(by_option)) - 1
        assert count > 2
        assert torch.equal(by_bar[:count], by_option[:count])
        assert torch.equal(began.nonzero()[:, 0].diff()[:count], took[:count])


def test_policies_of_names_see_the_mask(market):
    env = by_options(market, 4)
    seen = TensorDictModule(
        lambda mask: mask.float().argmax(-1), in_keys=["action_mask"], out_keys=["action"]
    )
    rows = env.rollout(5, seen, break_when_any_done=False)
    assert rows["action"].shape == (4, 5)
    assert (rows["next", "option", "duration"] > 0).all()
