"""The report as a reader gets it: parsed, not rendered."""

from __future__ import annotations

import base64
import json
import math
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from trading_torchrl.data import Market, synthetic_market
from trading_torchrl.envs import LONG_SHORT
from trading_torchrl.evaluation import (
    Account,
    ConstantPolicy,
    RandomPolicy,
    follow,
    judge,
    whole_split,
    write_json,
    write_report,
)

VOID = {"meta", "img", "br", "hr"}


class Page(HTMLParser):
    """Tags with their attributes, table cells by row, text; balanced or not."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.rows: list[list[str]] = []
        self.text = ""
        self.feed(text)
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += data
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += f" ({data})" if "small" in self.open else data

    def row(self, label: str) -> list[str]:
        return next(row[1:] for row in self.rows if row[0].partition(" (")[0] == label)

    @property
    def images(self) -> list[str]:
        return [str(attributes["src"]) for tag, attributes in self.tags if tag == "img"]


def strict(path: Path) -> Any:
    def refuse(word: str) -> None:
        raise AssertionError(word)

    return json.loads(path.read_text(), parse_constant=refuse)


@pytest.fixture(scope="module")
def market() -> Market:
    return synthetic_market(symbols=3, bars=400, seed=2)


@pytest.fixture(scope="module")
def accounts(market: Market) -> dict[str, Account]:
    env = whole_split(market, compiled=False, **LONG_SHORT)
    return {
        "agent": follow(env, RandomPolicy(env)),
        "buy and hold": follow(env, ConstantPolicy(env, 1.0)),
        "flat": follow(env, ConstantPolicy(env, 0.0)),
    }


def test_a_whole_report(tmp_path: Path, market: Market, accounts: dict[str, Account]) -> None:
    year = market.bars_per_year
    rows = {name: judge(account, year, "target") for name, account in accounts.items()}
    rows["oracle_full"] = {"sharpe_ratio_mean": 4.0, "growth": 0.5}
    training = [
        {"frames": 1_000, "train/actor_loss": 3.0, "eval/sharpe_ratio_mean": math.nan},
        {"frames": 2_000, "train/actor_loss": 1.0},
        {"frames": 3_000, "train/actor_loss": 0.5, "eval/sharpe_ratio_mean": 1.5},
    ]
    path = tmp_path / "new" / "report.html"
    write_report(
        path, "A <script>alert(1)</script> run & more",
        facts={"fills": "next open", "costs": "3 bps <each>"},
        rows=rows, accounts=accounts, kind="target", bars_per_year=year, training=training,
        control={"agent": {"gross_profit": 0.0123, "gross_profit_error": 0.02, "sortino": 9.87}},
        notes=["Oracles <b>know</b> more."],
    )  # fmt: skip
    text = path.read_text(encoding="utf-8")
    page = Page(text)
    assert "A <script>alert(1)</script> run & more" in page.text
    assert "3 bps <each>" in page.text
    assert "Oracles <b>know</b> more." in page.text
    names = {tag for tag, _ in page.tags}
    assert not names & {"script", "link", "iframe", "object", "b"}
    for _, attributes in page.tags:
        for name, value in attributes.items():
            assert name in ("src", "alt", "class", "colspan", "charset", "name", "content", "lang")
            assert name != "src" or str(value).startswith("data:image/png;base64,")
    assert "http:" not in text
    assert "https:" not in text
    assert "url(" not in text
    assert len(page.images) == 5
    for image in page.images:
        assert base64.b64decode(image.partition(",")[2]).startswith(b"\x89PNG")

    agent = rows["agent"]
    sharpe, error = agent["sharpe_ratio_mean"], agent["sharpe_error"]
    assert page.row("Sharpe ratio")[0] == f"{sharpe:+.2f} (± {4.302653 * error:.2f})"
    assert page.row("Sharpe ratio")[3] == "+4.00"
    assert page.row("worst drawdown")[0] == f"{agent['worst_drawdown']:.1%}"
    assert "paths" not in page.text
    assert page.row("Sharpe share")[0] == f"{sharpe / 4:.0%}"
    assert page.row("growth share")[1] == f"{rows['buy and hold']['growth'] / 0.5:.0%}"
    assert page.row("Sharpe share")[3] == "100%"
    assert page.row("win rate")[2:] == ["n/a", "n/a"]
    assert page.rows[-1][1:] == ["+1.2% (± 3.9%)"]
    assert "9.87" not in page.text

    saved = strict(path.with_suffix(".json"))
    assert saved["policies"]["agent"]["sharpe_ratio_mean"] == sharpe
    assert saved["policies"]["agent"]["growth_share"] == agent["growth"] / 0.5
    assert saved["policies"]["flat"]["win_rate"] is None
    assert saved["training"][0]["eval/sharpe_ratio_mean"] is None
    assert saved["control"]["agent"]["sortino"] == 9.87
    assert saved["facts"]["costs"] == "3 bps <each>"
    assert saved["bars_per_year"] == year


def test_seeds_show_as_mean_and_interval(tmp_path: Path) -> None:
    rows = {
        "agent": {
            "sharpe_ratio_mean": [1.0, 2.0, 3.0], "sharpe_error": [1.0, 2.0, 1.5],
            "win_rate": [0.5, math.nan, 0.7], "calmar": [math.nan] * 3,
        },
        "oracle_full": {"sharpe_ratio_mean": 4.0, "sharpe_error": 0.05},
        "once": {"sharpe_ratio_mean": [1.0]},
    }  # fmt: skip
    write_report(tmp_path / "r.html", "Seeds", facts={}, rows=rows)
    page = Page((tmp_path / "r.html").read_text())
    assert page.row("Sharpe ratio") == ["+2.00 (± 3.85)", "+4.00 (± 0.10)", "+1.00"]
    assert "± is half of the 95 % interval of the mean by Student's t: over symbols" in page.text
    assert page.row("Sharpe share")[0] == "50% (± 62%)"
    assert page.row("win rate")[0] == "60.0% (± 127.1%) (2 of 3)"
    assert page.row("Calmar ratio")[0] == "n/a"
    assert page.rows[0] == ["", "agent (3 seeds)", "oracle_full", "once (1 seed)"]
    saved = strict(tmp_path / "r.json")
    assert saved["intervals"]["agent"]["win_rate"]["seeds"] == 2
    assert saved["intervals"]["agent"]["sharpe_ratio_mean"]["half_width"] == pytest.approx(
        math.hypot(4.302653 / math.sqrt(3), 1.96 * 1.5)
    )
    assert saved["policies"]["agent"]["sharpe_share"] == [0.25, 0.5, 0.75]


def test_a_problem_that_is_not_trading(tmp_path: Path) -> None:
    write_report(
        tmp_path / "bits.html", "Bit flip", facts={"bits": "20"},
        rows={"agent": {"success_rate": 0.9876}, "random": {"success_rate": 0.01, "steps": 12}},
        training=[{"frames": 10, "loss": 1.0}],
    )  # fmt: skip
    page = Page((tmp_path / "bits.html").read_text())
    assert page.row("success rate") == ["0.9876", "0.01"]
    assert page.row("steps") == ["n/a", "12"]
    assert len(page.images) == 1
    assert "Over time" not in page.text
    assert strict(tmp_path / "bits.json")["policies"]["random"]["steps"] == 12


@pytest.mark.parametrize("best", [0.0, -1.0, math.nan])
def test_no_shares_of_an_oracle_that_earns_nothing(tmp_path: Path, best: float) -> None:
    rows = {"agent": {"growth": 0.1}, "oracle_full": {"growth": best}}
    write_report(tmp_path / "r.html", "No shares", facts={}, rows=rows)
    assert "share" not in Page((tmp_path / "r.html").read_text()).text.replace("No shares", "")


def test_policies_that_were_given_stay_as_they_are(tmp_path: Path) -> None:
    rows = {"agent": {"growth": 0.1}, "oracle_full": {"growth": 0.2}}
    write_report(tmp_path / "r.html", "Title", facts={}, rows=rows)
    assert rows == {"agent": {"growth": 0.1}, "oracle_full": {"growth": 0.2}}


def test_what_cannot_be_written_is_refused(tmp_path: Path, accounts: dict[str, Account]) -> None:
    with pytest.raises(ValueError, match=r"ends in \.html, got 'report\.pdf'"):
        write_report(tmp_path / "report.pdf", "Title", facts={}, rows={})
    with pytest.raises(ValueError, match="give bars_per_year and kind"):
        write_report(tmp_path / "r.html", "Title", facts={}, rows={}, accounts=accounts)
    with pytest.raises(ValueError, match="training rows need 'frames'"):
        write_report(tmp_path / "r.html", "Title", facts={}, rows={}, training=[{"loss": 1.0}])
    assert list(tmp_path.iterdir()) == []


def test_json_is_strict(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"a": (1, math.inf, [math.nan, "b", None, True]), 3: -0.5})
    assert strict(tmp_path / "a.json") == {"a": [1, None, [None, "b", None, True]], "3": -0.5}
