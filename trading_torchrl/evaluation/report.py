"""A report on a run: one HTML page that needs nothing else, and its figures as JSON."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from torch import Tensor

from trading_torchrl.evaluation.page import folded, image, listed, page, paragraph, section
from trading_torchrl.evaluation.pictures import (
    SHOWN_BARS,
    action_picture,
    drawdown_picture,
    front_picture,
    growth_picture,
    position_picture,
    training_picture,
)
from trading_torchrl.evaluation.rollout import Account
from trading_torchrl.evaluation.tables import (
    CONTROLLED,
    YARDSTICK,
    BySymbol,
    Rows,
    html_table,
    intervals,
    symbol_table,
    with_errors,
    with_shares,
)


def write_report(
    path: str | Path,
    title: str,
    *,
    facts: Mapping[str, str],
    rows: Rows,
    accounts: Mapping[str, Account] | None = None,
    kind: str | None = None,
    bars_per_year: float | None = None,
    training: Sequence[Mapping[str, float]] | None = None,
    control: Rows | None = None,
    symbols: BySymbol | None = None,
    front: tuple[Sequence[str], Mapping[str, Tensor]] | None = None,
    options: Rows | None = None,
    notes: Sequence[str] = (),
) -> None:
    """Writes ``path`` and, beside it, the figures in a file that ends in ``.json``.

    The page is one file: pictures lie inside, nothing is loaded, no scripts. A problem that is not
    trading leaves out ``accounts``. Numbers that are not finite are ``null`` in the JSON.

    Args:
        path: ends in ``.html``.
        title: of the page.
        facts: what was run: environment, costs, fills, episodes, seeds, frames, split.
        rows: figures of every policy, by the names of
            :func:`~trading_torchrl.evaluation.judge` or any others; lists have a value a seed.
            They show with their 95 % intervals. Beside a row ``oracle_full`` all show their shares
            of its Sharpe ratio and growth.
        accounts: followed accounts by policy, drawn over time; the first is the agent's, whose
            drawdown, actions and positions are drawn too.
        kind: of the agent's actions: ``continuous``, ``target`` or ``discrete``; with accounts.
        bars_per_year: of the market; with accounts.
        training: logged rows with ``frames``, see
            :func:`~trading_torchrl.evaluation.training_picture`.
        control: figures of the policies where nothing can be earned.
        symbols: figures of policies for each symbol, see
            :func:`~trading_torchrl.evaluation.judge_each`.
        front: two objectives, and what was reached in both at several preferences, ``[P, 2]`` by
            who reached it.
        options: figures of each option, see :class:`~trading_torchrl.monitoring.OptionUse`.
        notes: what else a reader should know.
    """
    path = Path(path)
    if path.suffix != ".html":
        raise ValueError(f"a report's path ends in .html, got {path.name!r}")
    if accounts and (kind is None or bars_per_year is None):
        raise ValueError(
            "accounts are drawn by the year and their actions by name: give bars_per_year and kind"
            f" as well, got {bars_per_year} and {kind!r}"
        )
    rows = with_shares(rows)
    parts = [section("What was run", listed(facts))]
    if rows:
        parts.append(section("Results", html_table(rows) + _about(accounts)))
    if symbols:
        parts.append(section("By symbol", folded(f"{len(symbols)} symbols", symbol_table(symbols))))
    if accounts:
        assert kind is not None
        assert bars_per_year is not None
        parts.append(section("Over time", _over_time(accounts, kind, bars_per_year)))
    if front:
        parts.append(section("Front", image(front_picture(*front), "What both objectives reach")))
    if options:
        about = "What the options come to where the agent acts without exploring."
        table = html_table(options, grouped=False)
        parts.append(section("Options", paragraph(about) + table))
    if control:
        about = (
            "The same policies where nothing can be earned. Gross profit much further from 0 than"
            " its ± would be a mistake of the measurement."
        )
        seen = {
            policy: {name: row[name] for name in with_errors(CONTROLLED) if name in row}
            for policy, row in control.items()
        }
        parts.append(section("Control", paragraph(about) + html_table(seen, grouped=False)))
    if training:
        parts.append(section("Training", image(training_picture(training), "Figures logged")))
    if notes:
        items = "".join(f"<li>{escape(note)}</li>" for note in notes)
        parts.append(section("Notes", f"<ul>{items}</ul>"))

    figures = {
        "title": title,
        "facts": facts,
        "bars_per_year": bars_per_year,
        "policies": rows,
        "intervals": {policy: intervals(row) for policy, row in rows.items()},
        "control": control,
        "symbols": symbols,
        "front": {name: points.tolist() for name, points in front[1].items()} if front else None,
        "options": options,
        "training": training,
        "notes": list(notes),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path.with_suffix(".json"), figures)
    path.write_text(page(title, parts), encoding="utf-8")


def write_json(path: str | Path, figures: Any) -> None:
    """Writes nested mappings and lists of figures as strict JSON, whole or not at all.

    Numbers that are not finite, which JSON has no word for, become ``null``.
    """
    text = json.dumps(_plain(figures), indent=1, allow_nan=False)
    partial = Path(f"{path}.partial")
    partial.write_text(text + "\n", encoding="utf-8")
    os.replace(partial, path)


def _about(accounts: Mapping[str, Account] | None) -> str:
    text = (
        "± is half of the 95 % interval of the mean by Student's t: over symbols where their error"
        " is known, and over seeds where a column has several. It takes symbols to be independent;"
        " those of a real market have their days in common, and their mean is less sure than it"
        " says. n/a is what is not defined, the win rate without a trade, say."
    )
    if accounts:
        symbols, bars = next(iter(accounts.values())).equity.shape
        text += f" The pictures show {symbols} symbols with an account each, {bars - 1:,} bars."
    return paragraph(text)


def _over_time(accounts: Mapping[str, Account], kind: str, bars_per_year: float) -> str:
    agent, account = next(iter(accounts.items()))
    shown = [agent, *(name for name in (YARDSTICK,) if name in accounts and name != agent)]
    return "\n".join(
        [
            image(growth_picture(accounts, bars_per_year, agent), "Growth of every policy"),
            image(drawdown_picture(account, bars_per_year), f"Drawdown of {agent}"),
            image(action_picture(account, kind), f"Actions of {agent}, as it asked for them"),
            image(
                position_picture(accounts, shown),
                f"Positions of {' and '.join(shown)} in the first symbol, first"
                f" {min(SHOWN_BARS, account.share.shape[1])} bars",
            ),
        ]
    )


def _plain(value: Any) -> Any:
    """Plain containers and numbers, ``None`` for what JSON has no number for."""
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if value is None or isinstance(value, str | bool | int):
        return value
    number = float(value)
    return number if math.isfinite(number) else None
