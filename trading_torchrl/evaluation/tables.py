"""Tables of figures: policies across, figures down, a run each or several seeds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import NamedTuple

from trading_torchrl.evaluation.statistics import Interval, interval, t_quantile

Value = float | Sequence[float]
"""A figure of one run, or of several seeds."""

Rows = Mapping[str, Mapping[str, Value]]
"""Policy -> figure -> value."""

BySymbol = Mapping[str, Rows]
"""Symbol -> policy -> figure -> value."""

YARDSTICK = "oracle_full"
SHARES = {"sharpe_share": "sharpe_ratio_mean", "growth_share": "growth"}
ERRORS = {
    "sharpe_ratio_mean": "sharpe_error",
    "growth": "growth_error",
    "gross_profit": "gross_profit_error",
    "net_profit": "net_profit_error",
    "optimum_share": "optimum_share_error",
    "sharpe_share": "sharpe_share_error",
    "growth_share": "growth_share_error",
}
"""Figure -> its standard error over paths: symbols, or episodes."""

PATHS = "paths"
"""How many there are; a figure like others, so that a row says how sure it is by itself."""

NORMAL_95 = 1.96
"""Standard errors to either side of a mean that make a 95 % interval, of very many paths."""


class Shown(NamedTuple):
    """How a figure is shown."""

    label: str
    meaning: str
    style: str


KNOWN: dict[str, dict[str, Shown]] = {
    "Earned": {
        "sharpe_ratio_mean": Shown("Sharpe ratio", "annual, net of costs", "+.2f"),
        "sharpe_share": Shown("Sharpe share", f"of {YARDSTICK}'s", ".0%"),
        "growth": Shown("growth", "log growth a year, net of costs", "+.1%"),
        "growth_share": Shown("growth share", f"of {YARDSTICK}'s", ".0%"),
        "gross_profit": Shown("gross profit", "mean return a year before costs", "+.1%"),
        "net_profit": Shown("net profit", "mean return a year after costs", "+.1%"),
        "costs": Shown("costs", "fees a year / equity", ".1%"),
        "total_return": Shown("total return", "over all bars", "+.1%"),
    },
    "Risked": {
        "max_drawdown": Shown("largest drawdown", "share of the peak, mean of symbols", ".1%"),
        "worst_drawdown": Shown("worst drawdown", "the largest of any symbol", ".1%"),
        "sortino": Shown("Sortino ratio", "mean / downside deviation, annual", "+.2f"),
        "calmar": Shown("Calmar ratio", "compound annual return / drawdown", "+.2f"),
    },
    "Reached": {
        "goal_success": Shown("goals reached", "share of episodes that end there", ".1%"),
        "stochastic_goal_success": Shown("goals reached, exploring", "the same", ".1%"),
        "goal_distance": Shown("distance", "from the goal at the end, mean", ".2%"),
        "episode_return": Shown("episode's return", "mean", "+.2%"),
    },
    "Traded": {
        "win_rate": Shown("win rate", "round trips with a profit after fees", ".1%"),
        "profit_factor": Shown("profit factor", "gains / losses of round trips", ".2f"),
        "trades": Shown("trades", "bars with a fill", ",.0f"),
        "round_trips": Shown("round trips", "from flat to flat or to the other side", ",.1f"),
        "trade_length": Shown("trade length", "bars a round trip", ",.1f"),
        "turnover": Shown("turnover", "traded value a year / equity", ",.1f"),
        "trade_rate": Shown("trade rate", "share of bars with a fill", ".1%"),
    },
    "Behaved": {
        "exposure": Shown("exposure", "mean absolute position / equity", ".2f"),
        "position_std": Shown("position spread", "standard deviation over time", ".3f"),
        "action_entropy": Shown("action entropy", "nats over the names of all outputs", ".2f"),
        "coverage": Shown("coverage", "share of the names that were used", ".0%"),
        "largest_name_share": Shown("largest name", "its share of all outputs", ".1%"),
        "exact_repeats": Shown("exact repeats", "of one action in a row, at most", ",.0f"),
    },
    "Options": {
        "option_usage_entropy": Shown("entropy of options", "nats over bars", ".2f"),
        "option_num_used_options": Shown("options used", "at least once", ".0f"),
        "option_max_usage_pct": Shown("most chosen option", "% of the decisions", ".1f"),
        "option_min_of_allowed": Shown(
            "least chosen option", "of the decisions it could be", ".1%"
        ),
        "option_average_of_least": Shown("mean duration", "in shortest durations", ".2f"),
        "option_average_duration": Shown("mean duration", "bars of an option", ".1f"),
        "decisions": Shown("chosen", "share of all decisions", ".1%"),
        "of_allowed": Shown("chosen where allowed", "share of these decisions", ".1%"),
        "exploring_decisions": Shown("chosen, exploring", "share of all decisions", ".1%"),
        "exploring_of_allowed": Shown("chosen where allowed, exploring", "share of these", ".1%"),
        "bars": Shown("runs", "share of all bars", ".1%"),
        "duration": Shown("mean duration", "bars", ".1f"),
        "of_least": Shown("mean duration", "in its shortest durations", ".2f"),
        "instant": Shown("ends at once", "share, after one bar", ".1%"),
        "purpose_met": Shown("purpose met", "share of ends", ".1%"),
        "growth_while": Shown("growth", "log growth a year while it runs", "+.1%"),
        "bars_bull": Shown("runs in bull bars", "share of these", ".1%"),
        "bars_bear": Shown("runs in bear bars", "share of these", ".1%"),
        "bars_sideways": Shown("runs in sideways bars", "share of these", ".1%"),
        "bars_high_volatility": Shown("runs in lively bars", "share of these", ".1%"),
    },
}
CONTROLLED = ("gross_profit", "net_profit", "costs", "sharpe_ratio_mean", "trade_rate")


def with_shares(rows: Rows) -> dict[str, dict[str, Value]]:
    """Rows with the shares of ``oracle_full`` in Sharpe and growth, where it earned anything.

    A row of other paths, a portfolio of all of them, has none.
    """
    whole = {policy: dict(row) for policy, row in rows.items()}
    best = dict(whole.get(YARDSTICK, {}))
    for share, of in SHARES.items():
        yardstick = _centre(best[of])[0] if of in best else math.nan
        if not yardstick > 0:
            continue
        for row in whole.values():
            if of in row and _same_paths(row, best):
                seeds = _seeds(row[of])
                parts = [value / yardstick for value in seeds or [_number(row[of])]]
                row.setdefault(share, parts if seeds else parts[0])
    return whole


def _same_paths(one: Mapping[str, Value], other: Mapping[str, Value]) -> bool:
    """Whether they are of as many paths, as far as they say."""
    return len({_number(each[PATHS]) for each in (one, other) if PATHS in each}) < 2


def html_table(rows: Rows, grouped: bool = True) -> str:
    """Figures down in their groups, policies across."""
    head = "".join(_head(policy, row) for policy, row in rows.items())
    lines = []
    for group, figures in _groups(rows).items():
        if grouped:
            span = len(rows) + 1
            lines.append(f'<tr><th class="group" colspan="{span}">{escape(group)}</th></tr>')
        for name, shown in figures.items():
            cells = "".join(_cell(name, row, shown.style) for row in rows.values())
            label = f"{escape(shown.label)}<small>{escape(shown.meaning)}</small>"
            lines.append(f"<tr><th>{label}</th>{cells}</tr>")
    return (
        f'<div class="wide"><table><thead><tr><th></th>{head}</tr></thead>\n<tbody>\n'
        + "\n".join(lines)
        + "\n</tbody></table></div>"
    )


def symbol_table(symbols: BySymbol) -> str:
    """Symbols down, figures across, and under each figure the policies."""
    columns = _symbol_columns(symbols)
    head = "".join(
        f"<th>{escape(shown.label)}<small>{escape(policy)}</small></th>"
        for _, shown, policy in columns
    )
    lines = []
    for symbol, rows in symbols.items():
        cells = "".join(_cell(name, rows[policy], each.style) for name, each, policy in columns)
        lines.append(f"<tr><th>{escape(symbol)}</th>{cells}</tr>")
    return (
        f'<div class="wide"><table><thead><tr><th></th>{head}</tr></thead>\n<tbody>\n'
        + "\n".join(lines)
        + "\n</tbody></table></div>"
    )


def symbol_lines(symbols: BySymbol) -> str:
    """The same as plain text, means only."""
    columns = _symbol_columns(symbols)
    table = [
        ["", *(shown.label for _, shown, _ in columns)],
        ["", *(policy for _, _, policy in columns)],
    ]
    for symbol, rows in symbols.items():
        means = ((_number(rows[policy][name]), each.style) for name, each, policy in columns)
        table.append([symbol, *(f"{mean:{style}}" for mean, style in means)])
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return "\n".join(
        "  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]).rstrip()
        for line in table
    )


def _symbol_columns(symbols: BySymbol) -> list[tuple[str, Shown, str]]:
    """Figure, how it is shown, and policy of each column."""
    first = next(iter(symbols.values()))
    names = dict.fromkeys(name for row in first.values() for name in row)
    known = {name: shown for figures in KNOWN.values() for name, shown in figures.items()}
    return [(name, known[name], policy) for name in names for policy in first]


def _groups(rows: Rows) -> dict[str, dict[str, Shown]]:
    """The figures that any row has; those that are not known come last."""
    present = dict.fromkeys(name for row in rows.values() for name in row)
    groups = {
        group: {name: shown for name, shown in figures.items() if name in present}
        for group, figures in KNOWN.items()
    }
    known = {*(name for figures in KNOWN.values() for name in figures), *ERRORS.values(), PATHS}
    others = [name for name in present if name not in known]
    groups["Other"] = {name: shown_as(name) for name in others}
    return {group: figures for group, figures in groups.items() if figures}


def shown_as(name: str) -> Shown:
    """How a figure is shown, known or not."""
    known = {each: shown for figures in KNOWN.values() for each, shown in figures.items()}
    return known.get(name, Shown(name.replace("_", " "), "", ".4g"))


def _head(policy: str, row: Mapping[str, Value]) -> str:
    seeds = max((len(_seeds(value)) for value in row.values()), default=0)
    runs = f"<small>{seeds} seed{'s' if seeds > 1 else ''}</small>" if seeds else ""
    return f"<th>{escape(policy)}{runs}</th>"


def _cell(name: str, row: Mapping[str, Value], style: str) -> str:
    if name not in row:
        return "<td>n/a</td>"
    mean, half_width = interval_of(row, name)
    seeds = _seeds(row[name])
    if not math.isfinite(mean):
        return "<td>n/a</td>"
    text = f"{mean:{style}}"
    if math.isfinite(half_width):
        text += f"<small>± {half_width:{style.replace('+', '')}}</small>"
    defined = sum(map(math.isfinite, seeds))
    if defined < len(seeds):
        text += f"<small>{defined} of {len(seeds)}</small>"
    return f"<td>{text}</td>"


def with_errors(names: Iterable[str]) -> list[str]:
    """The names, each followed by that of its error, if it has one."""
    return [each for name in names for each in (name, ERRORS.get(name, name))]


def interval_of(row: Mapping[str, Value], name: str) -> Interval:
    """Mean of a figure and half of its 95 % interval; NaN where nothing tells how sure it is.

    Over the symbols where their error is known, and over the seeds where there are several, both by
    Student's t. All seeds are judged on the same symbols, so what these leave open does not fall
    with the number of seeds: the mean error over symbols comes on top. ``paths`` of the row is the
    number of symbols; a row without it counts as one of very many.

    Example:
        >>> mean, half = interval_of({"growth": 0.5, "growth_error": 0.1, "paths": 4}, "growth")
        >>> f"{mean} +- {half:.3f}"
        '0.5 +- 0.318'
    """
    mean, over_seeds = _centre(row[name])
    policy, slash, figure = name.rpartition("/")  # of another policy: buy_and_hold/growth
    error = policy + slash + ERRORS.get(figure, "")
    over_symbols = _errors_of(row) * _number(row.get(error, math.nan))
    known = [half for half in (over_seeds, over_symbols) if math.isfinite(half)]
    return Interval(mean, math.hypot(*known) if known else math.nan)


def _errors_of(row: Mapping[str, Value]) -> float:
    """Standard errors to either side of a mean over paths."""
    paths = _number(row.get(PATHS, math.nan))
    return t_quantile(int(paths) - 1) if paths >= 2 else NORMAL_95


def _seeds(value: Value) -> list[float]:
    """The values of several seeds; none where there is one run."""
    return [float(each) for each in value] if isinstance(value, Sequence) else []


def _number(value: Value) -> float:
    return _centre(value)[0]


def _centre(value: Value) -> Interval:
    """Mean and half of the 95 % interval over the seeds that have the figure."""
    if not isinstance(value, Sequence):
        return Interval(float(value), math.nan)
    defined = [each for each in _seeds(value) if math.isfinite(each)]
    return interval(defined) if defined else Interval(math.nan, math.nan)


def intervals(row: Mapping[str, Value]) -> dict[str, dict[str, float]]:
    """Mean, half width and number of seeds of every figure that has a value a seed."""
    found = {}
    for name, value in row.items():
        if seeds := _seeds(value):
            mean, half_width = interval_of(row, name)
            count = sum(map(math.isfinite, seeds))
            found[name] = {"mean": mean, "half_width": half_width, "seeds": count}
    return found
