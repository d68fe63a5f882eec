"""Options of trading against plain rules for one account."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trading_torchrl.modules.options import SHARES, Levels, Scene, acted, allowed, ending, ends
from trading_torchrl.modules.trading_options import trading_options

BY_VOLATILITY = Levels(trend=1.2, stop=2.0)
LONGEST = {
    "OPEN_LONG": 20, "OPEN_SHORT": 20, "CLOSE_POSITION": 20, "TREND_FOLLOW": 20, "SCALP": 15,
    "WAIT": 30,
}  # fmt: skip
SHORTEST = dict(zip(LONGEST, (5, 5, 3, 10, 5, 5), strict=True))
SCALES = dict(zip(LONGEST, (0.8, 0.8, 1.0, 0.6, 1.0, 0.0), strict=True))


def sigmoid(name, steps):
    """As the specification words it."""
    if steps < SHORTEST[name]:
        return 0.0
    if steps >= LONGEST[name]:
        return 1.0
    if name == "CLOSE_POSITION":
        return 0.02
    steepness = 0.6 if name == "SCALP" else 0.5
    value = 0.8 / (1 + math.exp(-10 * steepness * (steps / LONGEST[name] - 0.5)))
    return min(value, {"TREND_FOLLOW": 0.15, "WAIT": 0.5}.get(name, 1.0))


def one(name, s, levels, short=True):
    """May it start, what does it do, how likely does it end, of one account: dict of numbers."""
    unit = s["volatility"] if levels.in_volatility else 1.0
    stop, target, trend_from = levels.stop * unit, 2 * levels.stop * unit, levels.trend * unit
    held, steps = s["held"], s["steps"]
    side = (held > 0) - (held < 0)
    won = side * s["earned"]
    up = (s["trend"] > 0) - (s["trend"] < 0)
    quick = (s["momentum"] > 0) - (s["momentum"] < 0)
    quick = max(quick, 0) if not short else quick
    confident = s.get("confidence")
    if name in ("OPEN_LONG", "OPEN_SHORT"):
        way = 1 if name == "OPEN_LONG" else -1
        start = held == 0 and (confident is None or confident >= 0.5)
        if steps == 0:
            act = 0.3
        elif steps <= 2:
            act = 0.5 if way * s["earned"] < stop else 0.0
        else:
            act = 0.2
        act *= way
        met = 1.0 if way * held >= 0.9 else 0.0
        if way < 0 and s.get("sentiment", 0) > 0.60:
            met = max(met, 0.8)
    elif name == "CLOSE_POSITION":
        start = held != 0
        if won < -stop:
            act = -side
        elif won > target:
            act = -0.8 * side
        elif won > target / 2:
            act = -0.3 * side
        else:
            act = 0.0
        met = 1.0 if held == 0 else 0.0
    elif name == "TREND_FOLLOW":
        start = abs(s["trend"]) > trend_from and (short or up > 0 or held > 0)
        up = 0 if not short and up < 0 and held <= 0 else up
        act = 0.6 * up if held * up < 0 else 0.4 * up if held * up < 0.9 else 0.0
        met = 0.85 if abs(s["trend"]) < trend_from / 2 else 0.0
    elif name == "SCALP":
        start = s["volatility_rank"] > 0.7 and (short or quick > 0 or held > 0)
        if held == 0:
            act = 0.0 if s["entered"] else 0.3 * quick
        else:
            act = -side if won > 0.4 * target or won < -0.4 * stop else 0.0
        met = 1.0 if held == 0 and s["entered"] else 0.0
    else:
        start, act, met = True, 0.0, 0.0
        if "sentiment" in s and (s["sentiment"] < 0.30 or s["sentiment"] > 0.75):
            met = 0.85
        elif abs(s["trend"]) > 2 * trend_from:
            met = 0.75
        elif (confident or 0) > 0.75:
            met = 0.65
    met = met if steps >= SHORTEST[name] else 0.0
    return {"start": start, "act": act, "met": met, "ends": max(met, sigmoid(name, steps))}


def drawn(count, *known):
    """Accounts of all kinds, float64: rules have edges, and both sides must see the same one."""
    held = torch.rand(count, dtype=torch.float64) * 2.2 - 1.1
    held[torch.rand(count) < 0.3] = 0.0
    values = {
        "trend": 0.02 * torch.randn(count, dtype=torch.float64),
        "volatility": 0.001 + 0.02 * torch.rand(count, dtype=torch.float64),
        "volatility_rank": torch.rand(count, dtype=torch.float64),
        "momentum": torch.randn(count, dtype=torch.float64).clamp(-1, 1),
        **{name: torch.rand(count, dtype=torch.float64) for name in known},
    }
    earned = torch.where(held == 0, 0.0, 0.04 * torch.randn(count, dtype=torch.float64))
    entered = (torch.rand(count) < 0.5) | (held != 0)
    return Scene(values, held, earned, torch.randint(0, 35, (count,)), entered)


@pytest.mark.parametrize("levels", [SHARES, BY_VOLATILITY], ids=["shares", "volatility"])
@pytest.mark.parametrize("known", [(), ("sentiment", "confidence")], ids=["bare", "known"])
@pytest.mark.parametrize("short", [True, False])
def test_each_option_is_its_plain_rule(levels, known, short):
    torch.manual_seed(0)
    scene = drawn(3_000, *known)
    options = trading_options(levels, short=short)
    starts = allowed(options, scene)
    seen = {name: column.tolist() for name, column in scene.signals.items()}
    seen |= {name: getattr(scene, name).tolist() for name in Scene._fields[1:]}
    for k, option in enumerate(options):
        index = torch.full_like(scene.steps, k)
        act, found = acted(options, scene, index), ends(options, scene, index)
        found = {"start": starts[:, k], "act": act, "met": found.met, "ends": found.timed}
        rows = [
            one(option.name, {name: column[i] for name, column in seen.items()}, levels, short)
            for i in range(len(scene.held))
        ]
        for what, values in found.items():
            wanted = torch.tensor([float(row[what]) for row in rows], dtype=torch.float64)
            torch.testing.assert_close(values.double(), wanted, atol=1e-6, rtol=0)
            assert wanted.unique().numel() > 1 or option.name == "WAIT", (option.name, what)


def test_durations_and_scales_are_those_promised():
    options = trading_options(SHARES)
    assert {each.name: each.least for each in options} == SHORTEST
    assert {each.name: each.most for each in options} == LONGEST
    assert {each.name: each.scale for each in options} == SCALES
    assert "OPEN_SHORT" not in [each.name for each in trading_options(SHARES, short=False)]


@given(
    least=st.integers(1, 20), more=st.integers(1, 40), steepness=st.floats(0.1, 2.0),
    cap=st.floats(0.01, 1.0),
)  # fmt: skip
@settings(max_examples=100, deadline=None)
def test_an_end_becomes_likelier_and_is_sure_at_last(least, more, steepness, cap):
    most = least + more
    likely = ending(torch.arange(most + 3), least, most, steepness=steepness, likeliest=cap)
    assert (likely[:least] == 0).all()
    assert (likely[most:] == 1).all()
    between = likely[least:most]
    assert (between > 0).all()
    assert (between <= min(cap, 0.8) + 1e-6).all()
    assert (likely.diff() >= -1e-7).all()


def test_the_sides_mirror_each_other():
    torch.manual_seed(0)
    scene = drawn(2_000)
    turned = {"trend", "momentum"}
    mirrored = scene._replace(
        signals={name: -v if name in turned else v for name, v in scene.signals.items()},
        held=-scene.held,
        earned=-scene.earned,
    )
    options = trading_options(BY_VOLATILITY)
    twin = torch.tensor([1, 0, 2, 3, 4, 5])
    index = torch.randint(0, 6, scene.steps.shape)
    assert torch.equal(allowed(options, mirrored)[:, twin], allowed(options, scene))
    act = acted(options, scene, index)
    assert (act != 0).any()
    assert torch.equal(acted(options, mirrored, twin[index]), -act)


def test_levels_make_trends_as_frequent_as_asked():
    torch.manual_seed(0)
    trend, volatility = torch.randn(5_000) * 0.01, torch.rand(5_000) * 0.01 + 0.005
    levels = Levels.fit(trend, volatility, often=0.3)
    often = float((trend.abs() > levels.trend * volatility).float().mean())
    assert often == pytest.approx(0.3, abs=0.001)
