"""Every Python block of the documentation runs; the blocks of one page share a namespace."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> list[str]:
    """The blocks of a page, moved down by blank lines so that errors name the page's lines."""
    text = page.read_text()
    return ["\n" * text.count("\n", 0, found.start(1)) + found[1] for found in BLOCK.finditer(text)]


def write_prices(folder: Path, bars: int = 1_200) -> None:
    """One file a symbol, daily, as a vendor writes them."""
    folder.mkdir()
    for number, symbol in enumerate(("AAA", "BBB", "CCC")):
        generator = np.random.default_rng(number)
        close = 100 * np.exp(generator.normal(0.0002, 0.012, bars).cumsum())
        opening = np.concatenate([close[:1], close[:-1]]) * np.exp(generator.normal(0, 0.002, bars))
        table = {
            "Date": pd.bdate_range("2015-01-01", periods=bars).strftime("%Y-%m-%d"),
            "Open": opening,
            "High": np.maximum(opening, close) * 1.002,
            "Low": np.minimum(opening, close) / 1.002,
            "Close": close,
            "Volume": generator.integers(100_000, 1_000_000, bars),
        }
        pd.DataFrame(table).to_csv(folder / f"{symbol}.csv", index=False)


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p)], ids=lambda page: page.stem)
def test_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_prices(tmp_path / "prices")
    monkeypatch.chdir(tmp_path)
    # Compiling takes longer than all the rest, and other tests compare compiled with eager.
    monkeypatch.setattr("trading_torchrl.envs.trading.compiles", lambda: False)
    namespace = {"__name__": page.stem}
    # Small operations on several threads crawl as soon as a neighbour wants a core.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for block in blocks(page):
            exec(compile(block, str(page), "exec", dont_inherit=True), namespace)
    finally:
        torch.set_num_threads(threads)


def test_front_page_has_an_example() -> None:
    assert blocks(ROOT / "README.md")
