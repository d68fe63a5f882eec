"""The look-ahead check: finds planted leaks, leaves honest functions alone."""

import logging
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from tensordict import TensorDict
from torchrl.data import Binary, Bounded, Composite, Unbounded
from torchrl.envs import EnvBase, TransformedEnv

from trading_torchrl.data import (
    MarketError,
    Scaler,
    slow_features,
    standard_features,
    with_features,
)
from trading_torchrl.data.synthetic import synthetic_market
from trading_torchrl.envs import LONG_SHORT, MarketWindow, TradingEnv, settings
from trading_torchrl.lookahead import MODES, check, find_env_lookahead, find_lookahead, main

MARKET = synthetic_market(symbols=2, bars=400, seed=3)


def in_pandas(function):
    """A feature function from one of a table of closes."""
    return lambda market: {
        "x": torch.from_numpy(np.array(function(pd.DataFrame(market.close.numpy())), dtype=float))
    }


def of(function):
    return lambda market: {"x": function(market)}


def future_mean_by_hour(market):
    close = pd.DataFrame(market.close.numpy())
    hour = market.dates.astype("datetime64[h]").astype(int) % 24
    target = close.pct_change().shift(-1).groupby(hour).transform("mean")
    return {"x": torch.from_numpy(target.fillna(0).to_numpy().copy())}


def every(bars, table):
    return (np.arange(len(table)) % bars == bars - 1)[:, None] & np.ones(table.shape, dtype=bool)


def weekly_close(close):
    """The close of every seventh bar, spread over the bars before it."""
    return close.where(every(7, close)).bfill().fillna(0)


def late_start_filled_back(close):
    return close.rolling(20).mean().bfill().fillna(0)


LEAKS = {
    "shift back": in_pandas(lambda c: c.shift(-1).ffill()),
    "sign of the next return": in_pandas(lambda c: np.sign(c.shift(-1) - c)),
    "next volume is higher": of(lambda m: (m.volume.roll(-1, 0) > m.volume).float()),
    "next user column": of(lambda m: m.columns["signal"].roll(-1, 0)),
    "centred mean": in_pandas(lambda c: c.rolling(5, center=True, min_periods=1).mean()),
    "full-sample z-score": in_pandas(lambda c: (c - c.mean()) / c.std(ddof=0)),
    "full-sample std alone": in_pandas(lambda c: c.pct_change().fillna(0) / c.std(ddof=0)),
    "full-sample max": in_pandas(lambda c: c / c.max()),
    "full-sample min": in_pandas(lambda c: c / c.min()),
    "max of a user column": of(lambda m: m.columns["signal"] / m.columns["signal"].amax(0)),
    "t / T": of(lambda m: torch.arange(len(m))[:, None].expand_as(m.close) / len(m)),
    "backward fill": in_pandas(weekly_close),
    "backward fill of the warm-up": in_pandas(late_start_filled_back),
    "gradient": of(lambda m: torch.from_numpy(np.gradient(m.close.numpy(), axis=0))),
    "global rank": in_pandas(lambda c: c.rank(pct=True)),
    "global quantile": in_pandas(lambda c: (c > c.quantile(0.9)).astype(float)),
    "target encoding": future_mean_by_hour,
    "interpolation": in_pandas(lambda c: c.where(every(5, c)).interpolate(limit_direction="both")),
    "reversed running sum": in_pandas(lambda c: c[::-1].cumsum()[::-1]),
    "smoothing by FFT": of(
        lambda m: torch.from_numpy(
            np.fft.irfft(np.fft.rfft(m.close.numpy(), axis=0)[: len(m) // 8], len(m), axis=0)
        )
    ),
}


def recursive_filter(market):
    out, state = torch.empty_like(market.close), market.close[0]
    for bar in range(len(market)):
        state = 0.7 * state + 0.3 * market.close[bar]
        out[bar] = state
    return out


def causal_fft(market):
    kernel, size = 0.9 ** np.arange(50), 2 * len(market) + 50
    spectrum = np.fft.rfft(market.close.log().diff(dim=0, prepend=market.close[:1].log()), size, 0)
    smooth = np.fft.irfft(spectrum * np.fft.rfft(kernel, size)[:, None], size, 0)
    return torch.from_numpy(smooth[: len(market)].copy())


def causal_convolution(market):
    returns = market.close.log().diff(dim=0, prepend=market.close[:1].log()).float()
    padded = torch.nn.functional.pad(returns.T[:, None], (9, 0))
    return torch.nn.functional.conv1d(padded, torch.ones(1, 1, 10) / 10)[:, 0].T


def causal_fft_in_float32(market):
    size = 2 * len(market) + 50
    kernel = torch.fft.rfft(torch.linspace(1, 0, 50), size)[:, None]
    spectrum = torch.fft.rfft(market.columns["signal"].float(), size, dim=0)
    return torch.fft.irfft(spectrum * kernel, size, dim=0)[: len(market)]


def windows_times_matrix(market):
    padded = torch.cat([market.close[:1].expand(15, -1), market.close])
    weights = torch.linspace(-1, 1, 64, dtype=torch.float64).view(16, 4).cos()
    return (padded.unfold(0, 16, 1) @ weights).sum(-1)


HONEST = {
    "the 23 features": standard_features,
    "the slow features": slow_features,
    "shift": in_pandas(lambda c: c.shift(3)),  # NaN where nothing is known yet
    "percent change": in_pandas(lambda c: c.pct_change()),
    "rolling mean": in_pandas(lambda c: c.rolling(20).mean()),
    "rolling std": in_pandas(lambda c: c.pct_change().rolling(15).std()),
    "rolling skew": in_pandas(lambda c: c.pct_change().rolling(30).skew()),
    "rolling median": in_pandas(lambda c: c.rolling(9, min_periods=1).median()),
    "rolling rank": in_pandas(lambda c: c.rolling(20).rank(pct=True)),
    "rolling quantile": in_pandas(lambda c: c.rolling(20).quantile(0.8)),
    "rolling correlation": in_pandas(lambda c: c.rolling(20).corr(c.shift(1))),
    "adjusted ewm": in_pandas(lambda c: c.ewm(span=10).mean()),
    "ewm deviation": in_pandas(lambda c: c.pct_change().ewm(halflife=5).std()),
    "expanding max": in_pandas(lambda c: c / c.expanding().max()),
    "expanding z-score": in_pandas(lambda c: (c - c.expanding().mean()) / c.expanding().std()),
    "expanding rank": in_pandas(lambda c: c.expanding().rank(pct=True)),
    "forward fill": in_pandas(lambda c: c.where(c > c.shift(1)).ffill()),
    "cumulative max": of(lambda m: m.close / m.close.cummax(0).values),
    "cumulative sum": of(lambda m: m.volume.cumsum(0)),
    "across symbols": of(lambda m: m.close / m.close.mean(1, keepdim=True)),
    "user column": of(lambda m: m.columns["sentiment"] - 0.5),
    "bars so far": of(lambda m: torch.arange(len(m))[:, None].expand_as(m.close)),
    "recursive filter": of(recursive_filter),
    "causal FFT": of(causal_fft),
    "causal FFT in float32": of(causal_fft_in_float32),
    "convolution in float32": of(causal_convolution),
    "windows times a matrix": of(windows_times_matrix),
    "day of the year": of(
        lambda m: (m.days.remainder(365.25) / 365.25)[:, None].expand_as(m.close)
    ),
}


@pytest.mark.parametrize("name", LEAKS)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_planted_leaks_are_found(name, seed):
    assert find_lookahead(LEAKS[name], MARKET, seed=seed) is not None


@pytest.mark.parametrize("name", HONEST)
@pytest.mark.parametrize("seed", [0, 1])
def test_honest_functions_raise_no_alarm(name, seed):
    assert find_lookahead(HONEST[name], MARKET, cuts=12, seed=seed) is None


def test_our_features_keep_every_bit():
    assert find_lookahead(standard_features, MARKET, tolerance=0) is None


def test_the_first_value_that_moved_is_named():
    def features(market):
        late = market.close.clone()
        late[:-3] = market.close[3:]  # knows three bars ahead, so bar cut - 2 moves first
        return {"fine": market.close, "next": market.close.roll(-1, 0), "late": late}

    leak = find_lookahead(features, MARKET, cuts=1)
    assert (leak.what, leak.name, leak.symbol) == ("feature", "late", "SYN000")
    assert leak.bar == leak.cut - 2
    assert leak.before == MARKET.close[leak.cut + 1, 0].item() != leak.after
    time = str(MARKET.dates[leak.bar].astype("datetime64[s]"))
    text = str(leak)
    for part in ("'late' sees the future", "SYN000", f"bar {leak.bar} ({time})", "moved up"):
        assert part in text


def test_hidden_truth_is_out_of_reach():
    with pytest.raises(KeyError, match="expected_return"):
        find_lookahead(lambda m: {"x": m.hidden["expected_return"]}, MARKET)


def test_what_cannot_be_checked_is_refused(caplog):
    with pytest.raises(ValueError, match="'x' differs between two calls"):
        find_lookahead(of(lambda m: torch.rand_like(m.close)), MARKET)
    with pytest.raises(MarketError, match=r"'x' has shape \[400\]"):
        find_lookahead(of(lambda m: m.close[:, 0]), MARKET)
    with pytest.raises(MarketError, match="at least 2 bars"):
        find_lookahead(standard_features, MARKET.bars(0, 1))
    with pytest.raises(ValueError, match="cuts must be at least 1, got 0"):
        find_lookahead(standard_features, MARKET, cuts=0)

    def needs_50_bars(market):
        return {"x": market.close + 0 * market.close[49]}

    with caplog.at_level(logging.WARNING):
        find_lookahead(needs_50_bars, MARKET, seed=1)
    assert "bars alone: index 49 is out of bounds" in caplog.text


class ToyEnv(EnvBase):
    """Accounts walk along a market; the reward is the action times the last return."""

    def __init__(self, market, *, ahead=0, accounts=3, episode=60, scale=1.0):
        super().__init__(batch_size=[accounts])
        self.features = market.features * scale
        self.returns = market.close.log().diff(dim=0, prepend=market.close[:1].log())
        self.ahead, self.episode, self.last = ahead, episode, len(market) - 1
        shape = (accounts,)
        self.observation_spec = Composite(
            observation=Unbounded((*shape, self.features.shape[-1])),
            market=Composite(bar=Unbounded(shape, dtype=torch.int64), shape=shape),
            shape=shape,
        )
        self.action_spec = Bounded(-1, 1, (*shape, 1))
        self.reward_spec = Unbounded((*shape, 1))
        self.done_spec = Composite(done=Binary(1, (*shape, 1), dtype=torch.bool), shape=shape)

    def _set_seed(self, seed):
        self.generator = torch.Generator().manual_seed(seed)

    def _observe(self):
        return {"observation": self.features[self.bar, 0], "market": {"bar": self.bar.clone()}}

    def _reset(self, tensordict=None, **kwargs):
        start = torch.randint(
            0, self.last - self.episode, self.batch_size, generator=self.generator
        )
        done = None if tensordict is None else tensordict.get("_reset", None)
        again = torch.ones_like(start, dtype=torch.bool) if done is None else done.squeeze(-1)
        self.bar = torch.where(again, start, getattr(self, "bar", start))
        self.end = torch.where(again, start + self.episode, getattr(self, "end", start))
        return TensorDict(
            {**self._observe(), "done": torch.zeros(*self.batch_size, 1).bool()}, self.batch_size
        )

    def _step(self, tensordict):
        self.bar = self.bar + 1
        seen = (self.bar + self.ahead).clamp(max=self.last)
        reward = tensordict["action"] * self.returns[seen, :1].float()
        out = {**self._observe(), "reward": reward, "done": (self.bar >= self.end)[:, None]}
        return TensorDict(out, self.batch_size)


def toy(**options):
    return lambda market: ToyEnv(with_features(market), **options)


def test_honest_environment_passes():
    assert find_env_lookahead(toy(), MARKET) is None


def test_environment_whose_reward_looks_ahead_is_found():
    leak = find_env_lookahead(toy(ahead=1), MARKET)
    assert (leak.what, leak.name, leak.bar) == ("environment", "next.reward", leak.cut)
    assert "account" in leak.symbol


def test_scaler_must_be_frozen():
    frozen = Scaler.fit(with_features(MARKET.bars(0, 200)))

    def build(market, scaler=None):
        market = with_features(market)
        scaled = (scaler or Scaler.fit(market))(market.features, market.feature_names)
        object.__setattr__(market, "features", scaled)
        return ToyEnv(market)

    assert find_env_lookahead(lambda market: build(market, frozen), MARKET) is None
    assert find_env_lookahead(build, MARKET).name == "observation"


def test_leaking_features_show_in_the_environment():
    def build(market):
        return ToyEnv(with_features(market, of(lambda m: m.close.roll(-1, 0))))

    assert find_env_lookahead(build, MARKET).name.endswith("observation")


def trading_env(market, **options):
    settings = {**LONG_SHORT, "emit": "all", "episode_bars": 40, "compiled": False, **options}
    return TradingEnv(with_features(market), 4, **settings)


def test_trading_env_passes():
    assert find_env_lookahead(trading_env, MARKET, cuts=2) is None


def test_environment_must_tell_its_bar():
    with pytest.raises(ValueError, match=r"must emit .*emit=\"index\""):
        find_env_lookahead(lambda market: trading_env(market, emit=()), MARKET)


def test_trading_env_with_leaking_features_is_found():
    def build(market):
        market = with_features(market, of(lambda m: m.close.roll(-1, 0)))
        return TradingEnv(market, 4, emit="index", compiled=False, episode_bars=40)

    leak = find_env_lookahead(build, MARKET, cuts=2)
    assert (leak.name, leak.bar) == ("next.observation", leak.cut)


@pytest.mark.parametrize("name", MODES)
def test_every_mode_trades_and_passes(name):
    seen = []

    def build(market):
        env = trading_env(market, **{**MODES[name], "episode_bars": 40})
        env = TransformedEnv(env, MarketWindow.of(env)) if env.window else env
        seen.append(env)
        return env

    fill = MODES[name].get("fill", "next_open")
    shortest = None if MODES[name].get("random_start", True) else 104
    assert find_env_lookahead(build, MARKET, 2, 60, fill=fill, shortest=shortest) is None
    rollout = seen[0].rollout(40)
    assert (rollout["next", "trade", "value"] != 0).float().mean() > 0.1
    assert (rollout["next", "account", "units"] != 0).any()


def test_modes_cover_what_the_environment_can_do():
    modes = list(MODES.values())

    def values(name, default):
        return {mode.get(name, default) for mode in modes}

    both = {(mode["actions"], mode.get("short", False)) for mode in modes}
    assert both == {(actions, short) for actions in settings.ACTIONS for short in (False, True)}
    fills = {(mode["actions"], mode.get("fill", "next_open")) for mode in modes}
    assert fills == {(actions, fill) for actions in settings.ACTIONS for fill in settings.FILLS}
    assert values("reward", "growth") == set(settings.REWARDS)
    assert values("assets", 1) == {1, 2}
    assert values("random_start", True) == {False, True}
    for name in ("window", "limits", "borrow_rate", "leverage"):
        assert any(mode.get(name, 1) != 1 for mode in modes), name


def of_each_symbol(env, prices):
    """The price table, one [bars, columns] a symbol."""
    return prices.view(len(env.market.symbols), env.rules.bars, -1)


class Shifted(TradingEnv):
    """Its price table (or some columns) lies some bars off."""

    def __init__(self, market, by, columns=("open", "high", "low", "close"), **options):
        super().__init__(with_features(market), 4, emit="all", compiled=False, **options)
        prices = of_each_symbol(self, self._prices).clone()
        for name in columns:
            column = self.rules.columns.index(name)
            prices[..., column] = prices[..., column].roll(by, 1)
        self._prices = prices.flatten(0, 1)


SHORT_EPISODES = {**LONG_SHORT, "episode_bars": 40}


def test_environment_that_knows_the_next_prices_is_found():
    leak = find_env_lookahead(lambda market: Shifted(market, -1, **SHORT_EPISODES), MARKET, 2)
    assert leak.bar == leak.cut
    assert leak.name.startswith(("next.account", "next.action_mask", "next.objectives"))


@pytest.mark.parametrize("column", ["high", "low"])
def test_environment_that_liquidates_by_the_next_extreme_is_found(column):
    options = {**MODES["target, long-short, two assets, leverage, limits"], "episode_bars": 40}
    leak = find_env_lookahead(lambda market: Shifted(market, -1, [column], **options), MARKET)
    assert leak.bar == leak.cut


def test_environment_that_marks_at_prices_already_seen_is_found():
    leak = find_env_lookahead(lambda market: Shifted(market, 1, **SHORT_EPISODES), MARKET, 2)
    assert (leak.name, leak.bar) == ("next.account.equity", leak.cut + 1)
    assert leak.before == leak.after
    assert "is behind its bar" in str(leak)


def test_environment_that_fills_at_an_open_already_seen_is_found():
    def build(market):
        return Shifted(market, 1, columns=["open"], **SHORT_EPISODES)

    leak = find_env_lookahead(build, MARKET, 2, fill="next_open")
    assert (leak.name, leak.bar) == ("next.trade.value", leak.cut + 1)
    assert find_env_lookahead(build, MARKET, 2) is None  # whoever fills where is for it to say


def test_environment_that_fills_beyond_the_close_it_names_is_found():
    leak = find_env_lookahead(
        lambda market: trading_env(market, fill="next_open"), MARKET, 2, fill="close"
    )
    assert leak.name in ("next.account.units", "next.trade.value")
    assert leak.bar == leak.cut
    assert leak.before != leak.after


class Peeking(TradingEnv):
    """Its reward knows the return after the bar it is paid for."""

    def _step(self, tensordict):
        out = super()._step(tensordict)
        later = (out["market", "bar"] + 1).clamp(max=self.rules.bars - 1)
        closes = of_each_symbol(self, self._prices)[..., self.rules.columns.index("close")]
        change = closes[out["market", "symbol"], later] / closes[out["market", "symbol"], later - 1]
        return out.set("reward", out["reward"] + change.log().float())


@pytest.mark.parametrize("reward", ["growth", "differential_sharpe"])
def test_reward_that_peeks_is_found(reward):
    def build(market):
        options = {**SHORT_EPISODES, "reward": reward, "emit": "index", "compiled": False}
        return Peeking(with_features(market), 4, **options)

    leak = find_env_lookahead(build, MARKET, 2)
    assert (leak.name, leak.bar) == ("next.reward", leak.cut)


def test_what_depends_on_the_length_shows_where_the_market_is_cut_off():
    def build(market):
        share = of(lambda m: torch.arange(len(m))[:, None].expand_as(m.close) / len(m))
        options = {**SHORT_EPISODES, "emit": "all", "random_start": False, "compiled": False}
        return TradingEnv(with_features(market, share), 4, **options)

    assert find_env_lookahead(build, MARKET, 2) is None
    leak = find_env_lookahead(build, MARKET, 2, shortest=104)
    assert (leak.name, leak.variation) == ("observation", "cut")
    assert "the market was cut off behind it" in str(leak)


def test_starts_must_not_depend_on_the_length_where_they_are_said_not_to():
    leak = find_env_lookahead(trading_env, MARKET, 2, shortest=110)
    assert (leak.name, leak.variation) == ("market.bar", "cut")


def test_environment_that_draws_beside_its_seed_is_refused():
    class Noisy(TradingEnv):
        def _step(self, tensordict):
            out = super()._step(tensordict)
            return out.set("reward", torch.rand_like(out["reward"]))

    def build(market):
        return Noisy(with_features(market), 4, emit="index", compiled=False, episode_bars=40)

    with pytest.raises(ValueError, match=r"'next\.reward' differs between two runs"):
        find_env_lookahead(build, MARKET)
    with pytest.raises(ValueError, match="cuts must be at least 1, got 0"):
        find_env_lookahead(trading_env, MARKET, cuts=0)


@pytest.mark.parametrize(
    "name",
    ["rolling median", "causal FFT in float32", "convolution in float32", "windows times a matrix"],
)
def test_honest_functions_pass_in_an_environment(name):
    def build(market):
        return TradingEnv(
            with_features(market, HONEST[name]), 4, emit="all", compiled=False, **SHORT_EPISODES
        )

    assert find_env_lookahead(build, MARKET, 2, 50, tolerance=1e-9) is None


def test_command_line_on_honest_data(tmp_path):
    MARKET.save(tmp_path / "market")
    (tmp_path / "mine.py").write_text(
        "def features(market):\n    return {'peak': market.close / market.close.cummax(0).values}\n"
    )
    command = [sys.executable, "-m", "trading_torchrl.lookahead", "--cuts", "2"]
    command += ["--data", "market", "--features", "mine:features"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr + run.stdout
    results = dict(line.rsplit(maxsplit=1) for line in run.stdout.splitlines())
    own = {"mine:features", "mine:features in an environment"}
    modes = {f"environment: {name}" for name in MODES}
    assert {name.strip() for name in results} == {"23 standard features"} | own | modes
    assert set(results.values()) == {"ok"}


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """Runs the command on a function's source, without the ready environments: (code, output)."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("trading_torchrl.lookahead.command.MODES", {})

    def run(name, body):
        (tmp_path / f"{name}.py").write_text(f"def features(market):\n    {body}\n")
        code = main(["--features", f"{name}:features", "--cuts", "2"])
        return code, capsys.readouterr().out

    return run


def test_command_line_finds_a_leak(command):
    code, output = command("leaky", "return {'peak': market.close / market.close.amax(0)}")
    assert code == 1
    assert "leaky:features                    LOOKS AHEAD" in output
    assert "leaky:features in an environment  LOOKS AHEAD" in output
    assert "feature 'peak' sees the future: for SYN000 at bar 0" in output
    assert "environment 'observation' sees the future: for account 0 at bar" in output


def test_one_symbol_is_enough(monkeypatch):
    name = "discrete, long-short, two assets, window, limits"
    monkeypatch.setattr("trading_torchrl.lookahead.command.MODES", {name: MODES[name]})
    found = check(MARKET.select(["SYN001"]).bars(0, 70), cuts=2)
    assert found == {"23 standard features": None, f"environment: {name}": None}


def test_command_line_tells_a_broken_function_from_a_leak(command):
    code, output = command("broken", "return {'x': market.closes}")
    assert code == 2
    assert "unknown: AttributeError: 'Market' object has no attribute 'closes'" in output
    code, output = command("unfilled", "return {'x': market.close * float('nan')}")
    assert code == 2
    assert "every value must be finite in float32" in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--features", "nocolon"], "must read package.module:function"),
        (["--features", "math:nothing"], "has no function 'nothing'"),
        (["--features", "no.such.module:f"], "No module named"),
        (["--cuts", "0"], "at least 1, got 0"),
        (["--data", "no/such/file.csv"], "no/such/file.csv"),
    ],
)
def test_command_line_says_what_it_cannot_do(arguments, message, capsys):
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    assert exit_.value.code == 2
    assert message in capsys.readouterr().err
