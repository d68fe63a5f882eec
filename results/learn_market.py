"""SAC on the synthetic market: five seeds each of long-short, long-only, and the martingale.

    python results/learn_market.py          # 15 runs, half an hour

Every run is `python recipes/offpolicy.py` with the settings of `recipes/conf/learn_on/`; it is
judged once, on 64 fresh paths of 8,000 bars that no choice was made on.
"""

import math
from typing import Any

from rows import Row, hand_over
from runs import SEEDS, train_all

from trading_torchrl.evaluation import t_quantile
from trading_torchrl.evaluation.tables import interval_of

RUNS = {
    "long-short": ["env=long_short"],
    "long-only": ["env=long_only"],
    "martingale": ["env=long_short", "market=martingale"],
}


def over_seeds(runs: list[dict[str, Any]], figure: str) -> tuple[float, str]:
    """Mean over the seeds, and the mean with its interval in words.

    All seeds are judged on the same paths, so the error over the paths, where it is known, comes
    on top of that over the seeds.
    """
    row = {name: [run["figures"][name] for run in runs] for name in runs[0]["figures"]}
    mean, half = interval_of(row, figure)
    return mean, f"{mean:.3f} +- {half:.3f}"


def market_rows(name: str, runs: list[dict[str, Any]]) -> list[Row]:
    """What every market run reports, without a bar."""
    rows = [
        Row(f"{name}: {said}", over_seeds(runs, figure)[1])
        for said, figure in (
            ("growth a year", "growth"),
            ("largest drawdown", "max_drawdown"),
            ("turnover", "turnover"),
        )
    ]
    # The same in every run, for they learn nothing.
    figures = runs[0]["figures"]
    for policy in ("oracle_full", "buy_and_hold", "random"):
        for figure in ("sharpe_ratio_mean", "growth"):
            value, half = interval_of(figures, f"{policy}/{figure}")
            said = "Sharpe" if figure.startswith("sharpe") else "growth a year"
            rows.append(Row(f"{name}: {said} of {policy}", f"{value:.3f} +- {half:.3f}"))
    return rows


def main() -> None:
    """Trains, and compares with the oracles."""
    found = train_all(RUNS)
    rows = []

    runs = found["long-short"]
    for said, figure, bar in (
        ("Sharpe", "sharpe_ratio_mean", 2.0),
        ("growth, share of the full oracle's", "growth_share", 0.6),
        ("entropy of the deterministic names", "action_entropy", 0.6),
    ):
        mean, text = over_seeds(runs, figure)
        rows.append(Row(f"long-short: {said}", text, f">= {bar}", mean >= bar))
    share = max(run["figures"]["largest_name_share"] for run in runs)
    rows.append(Row("long-short: largest share of one name", f"{share:.2f}", "<= 0.60",
                    share <= 0.6))  # fmt: skip
    rows.append(Row("long-short: Sharpe, share of the full oracle's",
                    over_seeds(runs, "sharpe_share")[1]))  # fmt: skip
    rows += market_rows("long-short", runs)

    runs = found["long-only"]
    mean, text = over_seeds(runs, "sharpe_share")
    rows.append(Row("long-only: Sharpe, share of the full oracle's", text, ">= 0.60", mean >= 0.6))
    mean, text = over_seeds(runs, "position_std")
    least = min(run["figures"]["position_std"] for run in runs)
    rows.append(Row("long-only: spread of the position (cap 0.15)", f"{text}, least {least:.3f}",
                    ">= 0.02 in every run", least >= 0.02))  # fmt: skip
    rows.append(Row("long-only: Sharpe", over_seeds(runs, "sharpe_ratio_mean")[1]))
    rows += market_rows("long-only", runs)

    runs = found["martingale"]
    figures = [run["figures"] for run in runs]
    # One market, five agents: errors over the paths do not fall with the number of agents.
    for said, name in (("gross profit", "gross_profit"), ("net profit", "net_profit")):
        mean = math.fsum(each[name] for each in figures) / len(figures)
        error = math.fsum(each[f"{name}_error"] for each in figures) / len(figures)
        half = t_quantile(int(figures[0]["paths"]) - 1) * error
        low, high = mean - half, mean + half
        met = low <= 0 <= high if name == "gross_profit" else high < 0.01
        limit = "includes 0" if name == "gross_profit" else "upper bound under +1 %"
        rows.append(Row(f"martingale: {said} a year", f"{low:+.1%} to {high:+.1%}", limit, met))
    early, late = (
        math.fsum(run["evaluations"][at]["turnover"] for run in runs) / len(runs) for at in (0, -1)
    )
    rows.append(Row("martingale: turnover, first and last evaluation", f"{early:.0f} to {late:.0f}",
                    "falls", late < early))  # fmt: skip
    note = (
        f"Seeds {SEEDS[0]} to {SEEDS[-1]}, 95 % intervals over seeds and paths;"
        " 3 bps of the traded value, fills at the next open."
    )
    hand_over("SAC on the synthetic market", note, rows)


if __name__ == "__main__":
    main()
