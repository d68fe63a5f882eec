"""Use of options, counted in batches, against a plain count of the same steps."""

import math

import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule

from trading_torchrl.data import synthetic_market
from trading_torchrl.envs import RunningOption, Showing, Signals, TradingEnv
from trading_torchrl.modules import Controller, Levels, OptionPolicy
from trading_torchrl.modules.options import SHARES
from trading_torchrl.modules.trading_options import trading_options
from trading_torchrl.monitoring import OF_OPTIONS, OptionUse, alerts_from

OPTIONS = trading_options(SHARES)
NAMES = [option.name for option in OPTIONS]


def drawn(accounts=5, bars=200, seed=0):
    """Steps as a policy of options writes them: plans of some bars, now and then a new episode."""
    torch.manual_seed(seed)
    index, steps, ended = (torch.zeros(accounts, bars, 1, dtype=torch.int64) for _ in range(3))
    for account in range(accounts):
        length, now, which = 0, 0, 0
        for bar in range(bars):
            fresh = bar == 0 or bool(torch.rand(()) < 0.02)
            if fresh or now == length:
                ended[account, bar] = 0 if fresh else int(torch.randint(1, 3, ()))
                which, length = int(torch.randint(0, 6, ())), int(torch.randint(1, 9, ()))
                now = 0
            index[account, bar], steps[account, bar] = which, now
            now += 1
    may = torch.rand(accounts, bars, 6) < 0.7
    may.scatter_(-1, index, True)
    equity = (0.01 * torch.randn(accounts, bars, 1)).cumsum(1).exp()
    option = {"index": index, "steps": steps, "ended": ended, "allowed": may}
    rows = TensorDict({"option": option, "account": {"equity": equity}}, [accounts, bars])
    return rows, torch.randint(-1, 4, (accounts, bars))


def counted(rows, regime):
    """Step after step, account after account."""
    found = {
        name: {key: 0.0 for key in ("chosen", "could", "bars", "ended", "lasted", "instant", "met",
                                    "earned")} | {"regimes": [0, 0, 0, 0]}
        for name in NAMES
    }  # fmt: skip
    for account in range(rows.shape[0]):
        for bar in range(rows.shape[1]):
            now = rows[account, bar]
            one = found[NAMES[int(now["option", "index"])]]
            steps, ended = int(now["option", "steps"]), int(now["option", "ended"])
            one["bars"] += 1
            if regime[account, bar] >= 0:
                one["regimes"][int(regime[account, bar])] += 1
            if steps == 0:
                one["chosen"] += 1
                for k, name in enumerate(NAMES):
                    found[name]["could"] += bool(now["option", "allowed"][k])
            if bar == 0 or (steps == 0 and ended == 0):
                continue
            then = rows[account, bar - 1]
            other = found[NAMES[int(then["option", "index"])]]
            worth = [float(each["account", "equity"].double().log()) for each in (then, now)]
            other["earned"] += worth[1] - worth[0]
            if ended:
                lasted = int(then["option", "steps"]) + 1
                other["ended"] += 1
                other["lasted"] += lasted
                other["instant"] += lasted == 1
                other["met"] += ended == 2
    return found


@pytest.mark.parametrize("cut", [200, 7])
def test_counts_are_those_of_a_plain_count_however_batches_cut_them(cut):
    rows, regime = drawn()
    use = OptionUse(OPTIONS, regimes=4)
    for at in range(0, 200, cut):
        use.see(rows[:, at : at + cut], regime[:, at : at + cut])
    wanted = counted(rows, regime)
    for k, name in enumerate(NAMES):
        for key, values in use.counts.items():
            assert float(values[k]) == pytest.approx(wanted[name][key], abs=1e-9), (name, key)
        assert use.by_regime[:, k].tolist() == wanted[name]["regimes"]
    table = use.table(["a", "b", "c", "d"], years=2.0)
    for name, option in zip(NAMES, OPTIONS, strict=True):
        one, row = wanted[name], table[name]
        assert row["of_allowed"] == pytest.approx(one["chosen"] / one["could"])
        assert row["duration"] == pytest.approx(one["lasted"] / one["ended"])
        assert row["of_least"] == pytest.approx(one["lasted"] / one["ended"] / option.least)
        assert row["purpose_met"] == pytest.approx(one["met"] / one["ended"])
        years = 2.0 * one["bars"] / 1_000
        assert row["growth_while"] == pytest.approx(one["earned"] / years)
        assert row["bars_c"] == pytest.approx(
            one["regimes"][2] / sum(each["regimes"][2] for each in wanted.values())
        )


def test_figures_by_hand():
    rows, _ = drawn()
    use = OptionUse(OPTIONS)
    use.see(rows)
    found, count = use.figures(), use.counts
    share = (count["bars"] / count["bars"].sum()).tolist()
    assert found["options/usage_entropy"] == pytest.approx(-sum(p * math.log(p) for p in share))
    assert found["options/max_usage_pct"] == pytest.approx(
        100 * float(count["chosen"].max() / count["chosen"].sum())
    )
    assert found["options/min_of_allowed"] == pytest.approx(
        float((count["chosen"] / count["could"]).min())
    )
    least = [option.least for option in OPTIONS]
    mean = sum(lasted / most for lasted, most in zip(count["lasted"].tolist(), least, strict=True))
    assert found["options/average_of_least"] == pytest.approx(mean / float(count["ended"].sum()))
    assert found["options/num_used_options"] == 6
    each = use.of_each()
    for k, option in enumerate(OPTIONS):
        assert each[f"options/{option.name}_share"] == pytest.approx(share[k])
        ended, lasted, met = (float(count[name][k]) for name in ("ended", "lasted", "met"))
        assert each[f"options/{option.name}_duration"] == pytest.approx(lasted / ended)
        assert each[f"options/{option.name}_purpose_met"] == pytest.approx(met / ended)
    assert use.chosen().bincount(minlength=6).tolist() == count["chosen"].tolist()


def test_what_runs_is_known_after_forgetting_and_after_a_resume():
    rows, _ = drawn()
    whole, first = OptionUse(OPTIONS), OptionUse(OPTIONS)
    whole.see(rows[:, :90])
    first.see(rows[:, :90])
    other = OptionUse(OPTIONS)
    other.load_state_dict(first.state_dict())
    for each in (whole, other):
        each.see(rows[:, 90:])
    assert all(torch.equal(whole.counts[key], other.counts[key]) for key in whole.counts)
    ended = float(first.counts["ended"].sum())
    first.forget()
    assert first.figures() == {}
    first.see(rows[:, 90:])
    assert float(first.counts["ended"].sum()) == float(whole.counts["ended"].sum()) - ended


def test_a_window_without_choices_tells_what_it_can():
    rows, _ = drawn()
    rows = rows[:, rows["option", "steps"][0, :, 0] > 0][:1]
    use = OptionUse(OPTIONS)
    use.see(rows[:, :1])
    found = use.figures()
    assert found["options/num_used_options"] == 1
    assert not {"options/max_usage_pct", "options/min_of_allowed"} & found.keys()


def test_ends_at_once_are_told_where_shortest_durations_are_lifted():
    torch.manual_seed(0)
    env = TradingEnv(
        synthetic_market(4, 600), 32, short=True, max_position=1.0, smoothing=1, compiled=False,
        emit=("index", "share", "equity", "unrealised"), episode_bars=100,
    )  # fmt: skip
    env = Showing(env, Signals.of(env), RunningOption())
    options = trading_options(Levels(trend=1.0, stop=2.0))
    for option in options:
        option.least = 1
    network = Controller(env.observation_spec["observation"].shape[-1], 6, [8], ends=True)
    with torch.no_grad():
        network.heads.bias[12:] = 20.0  # everything ends as soon as it may
    keys = [("option", name) for name in ("logits", "values", "end_logits")]
    controller = TensorDictModule(network, in_keys=["observation"], out_keys=keys)
    use = OptionUse(options)
    use.see(env.rollout(90, OptionPolicy(options, controller, cap=1.0)))
    found = use.figures()
    assert found["options/instant"] == 1
    verdict = alerts_from("options").check(found, 1_000)
    assert "options/shortest_of_least" in [each.metric for each in verdict.alerts]


def test_what_was_never_chosen_is_not_a_number():
    rows, _ = drawn(bars=1)
    use = OptionUse(OPTIONS)
    use.see(rows)
    assert all(math.isnan(row["duration"]) for row in use.table().values())
    assert "options/shortest_of_least" not in use.figures()


@pytest.mark.parametrize(
    ("figures", "said"),
    [
        ({"options/max_usage_pct": 61.0}, "options/max_usage_pct is 61, above 60"),
        ({"options/shortest_of_least": 0.4}, "options/shortest_of_least is 0.4, below 0.5"),
    ],
)
def test_alerts_tell_of_one_that_takes_over_and_of_ends_too_early(figures, said):
    alerts = alerts_from("options")
    verdict = alerts.check(figures, 1_000)
    assert next(each.message for each in verdict.alerts).startswith(f"warning: {said}")
    assert verdict.then == "go_on"
    assert not any(rule.metric == "train/exact_repeats" for rule in OF_OPTIONS)
