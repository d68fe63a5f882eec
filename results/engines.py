"""Our account beside those of `vectorbt` and `bt`, on the same trades in one run.

    python results/engines.py              # compares
    python results/engines.py --write      # and renews the fixtures in tests/envs/golden

The engines have a virtual environment of their own, made on first use from
`benchmarks/peers/engines.txt`. Our environment trades random targets, long, short and flipping;
the engines get the units it traded.
"""

import argparse
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rows import Row, hand_over

ROOT = Path(__file__).resolve().parents[1]
GOLDEN = ROOT / "tests" / "envs" / "golden"
BARS = 300

Arrays = dict[str, NDArray[Any]]


def random_scenario(fill: str, seed: int) -> Arrays:
    """A random walk with gaps, and targets that change every few bars."""
    rng = np.random.default_rng(seed)
    gaps, inside = rng.normal(0, 0.004, BARS + 1), rng.normal(0, 0.01, BARS + 1)
    close = 100 * np.exp((gaps + inside).cumsum())
    opening = close / np.exp(inside)
    action = rng.uniform(-1, 1, BARS).astype(np.float32)
    changes = rng.random(BARS) < 0.13
    changes[0] = True
    latest = np.maximum.accumulate(np.where(changes, np.arange(BARS), 0))
    return {
        "open": opening,
        "close": close,
        "action": action[latest],
        "fill": np.array(fill),
    }


def vectorbt_account(prices: Arrays, size: NDArray[Any], cash: float, fee: float) -> Arrays:
    """Equity and cash at the close of every bar."""
    import pandas as pd
    import vectorbt

    index = pd.date_range("2000-01-01", periods=len(size), freq="D")
    portfolio = vectorbt.Portfolio.from_orders(
        pd.Series(prices["close"], index),
        pd.Series(size, index),
        size_type="amount",
        direction="both",
        price=pd.Series(prices["fill"], index),
        fees=fee,
        init_cash=cash,
        freq="D",
    )
    return {"equity": portfolio.value().to_numpy(), "cash": portfolio.cash().to_numpy()}


def bt_account(prices: Arrays, size: NDArray[Any], cash: float, fee: float) -> Arrays:
    """Equity and cash at the close of every bar; `bt` sees a bar as two prices, fill and close."""
    import bt
    import pandas as pd

    index = pd.date_range("2000-01-01", periods=2 * len(size), freq="D")
    both = np.stack([prices["fill"], prices["close"]], -1).ravel()
    wanted = dict(zip(index[::2], size.tolist(), strict=True))

    class Orders(bt.Algo):
        """Trades the units of the day."""

        def __call__(self, target: Any) -> bool:
            if wanted.get(target.now):
                target.transact(wanted[target.now], child="S")
            return True

    strategy = bt.Strategy("orders", [Orders()], children=["S"])
    test = bt.Backtest(
        strategy,
        pd.DataFrame({"S": both}, index),
        initial_capital=cash,
        commissions=lambda quantity, price: abs(quantity) * price * fee,
        integer_positions=False,
        progress_bar=False,
    )
    test.run()
    closes = index[1::2]
    return {
        "equity": test.strategy.values.loc[closes].to_numpy(),
        "cash": test.strategy.cash.loc[closes].to_numpy(),
    }


ENGINES = {"vectorbt": vectorbt_account, "bt": bt_account}


def inside(given: Path, answer: Path) -> None:
    """What the engines' own interpreter runs."""
    orders = dict(np.load(given, allow_pickle=False))
    cash, fee = float(orders.pop("initial_cash")), float(orders.pop("fee"))
    size = orders.pop("size")
    results: Arrays = {}
    for name, run in ENGINES.items():
        account = run(orders, size, cash, fee)
        results |= {f"{name}_{key}": values for key, values in account.items()}
        results[f"{name}_version"] = np.array(version(name))
    np.savez(answer, **results)  # type: ignore[arg-type]


def ask_engines(
    python: Path, scenario: Arrays, units: NDArray[Any], cash: float, fee: float
) -> Arrays:
    """The engines' accounts, given the units held after every bar."""
    at_open = str(scenario["fill"]) == "next_open"
    with tempfile.TemporaryDirectory() as folder:
        given, answer = Path(folder) / "orders.npz", Path(folder) / "accounts.npz"
        np.savez(
            given,
            size=np.diff(units, prepend=0.0),
            fill=scenario["open"][1:] if at_open else scenario["close"][:-1],
            close=scenario["close"][1:],
            initial_cash=cash,
            fee=fee,
        )
        command = [str(python), str(Path(__file__).resolve()), "--inside", str(given), str(answer)]
        subprocess.run(command, check=True, stdout=sys.stderr)
        return dict(np.load(answer, allow_pickle=False))


def main() -> None:
    """Compares, and prints how far the accounts are apart."""
    parser = argparse.ArgumentParser(description="our account beside those of other engines")
    parser.add_argument("--write", action="store_true", help="renew the fixtures")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--inside", nargs=2, type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        inside(*arguments.inside)
        return

    sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "tests" / "envs")]
    from contestants import python_of
    from test_golden_engines import ALLOWED, CASH, FEE, SCENARIOS, apart, play

    python = python_of("engines")
    rows = []
    for name in SCENARIOS:
        scenario = random_scenario(name, arguments.seed)
        ours = play(scenario)
        scenario["units"] = ours["units"]
        scenario |= ask_engines(python, scenario, ours["units"], CASH, FEE)
        wrong = play(scenario, fee=1.01 * FEE)
        for engine in ENGINES:
            difference = apart(scenario, ours, engine)
            shows = apart(scenario, wrong, engine)
            rows.append(
                Row(
                    f"{engine} {scenario[f'{engine}_version']}, fills at {name}",
                    f"{difference:.2g} (a fee off by 1 % shows {shows:.3g})",
                    f"at most {ALLOWED:g} on {CASH:,.0f}",
                    difference <= ALLOWED,
                )
            )
        if arguments.write:
            GOLDEN.mkdir(exist_ok=True)
            np.savez(GOLDEN / f"{name}.npz", **scenario)  # type: ignore[arg-type]
    note = (
        f"{BARS} bars of long, short and flipping trades with a fee of {FEE:.1%}; largest"
        " difference in equity and cash at any close."
    )
    hand_over("Ledger against other engines", note, rows)


if __name__ == "__main__":
    main()
