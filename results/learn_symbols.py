"""Ten symbols: a head for each against none, a frozen trunk, and the memory that it takes.

    python results/learn_symbols.py         # 15 runs and two short ones

Every run is `python recipes/offpolicy.py market=ten_symbols` with the settings of
`recipes/conf/learn_on/`; it is judged once, on the last fifth of the bars. Runs with a frozen trunk
begin with the run of the same seed.
"""

from pathlib import Path
from typing import Any

from rows import Row, hand_over
from runs import SEEDS, alone, train_all, train_each

from trading_torchrl.checkpoint import Checkpoints
from trading_torchrl.evaluation.tables import interval_of

TEN = ["market=ten_symbols"]
HEADS = [*TEN, "network=per_symbol"]
FROZEN = [*HEADS, "network.freeze_trunk=true", "total_frames=384_000"]
SHORT = ["total_frames=768_000", "stop_at=384_000", "evaluate_every=768_000"]
"""As many frames, and training alone: nothing is judged."""


def main() -> None:
    """Trains, compares, measures."""
    heads, blind = train_all({"heads": HEADS, "blind": TEN}).values()
    begun = {"frozen": [[*FROZEN, f"init={each['folder']}"] for each in heads]}
    (frozen,) = train_each(begun).values()
    rows = []
    for said, runs in (("a head a symbol", heads), ("no symbol known", blind), ("frozen", frozen)):
        for name, figure in (("Sharpe", "sharpe_ratio_mean"), ("growth a year", "growth"),
                             ("Sharpe, share of the full oracle's", "sharpe_share")):  # fmt: skip
            mean, half = interval_of(figures_of(runs), figure)
            rows.append(Row(f"{said}: {name}", f"{mean:.3f} +- {half:.3f}"))
    apart = [
        one["figures"]["sharpe_ratio_mean"] - other["figures"]["sharpe_ratio_mean"]
        for one, other in zip(heads, blind, strict=True)
    ]
    rows.append(Row("Sharpe gained by heads, least of the seeds", f"{min(apart):+.3f}", "> 0",
                    min(apart) > 0))  # fmt: skip

    still = sum(
        trunk(one["folder"]) == trunk(other["folder"])
        for one, other in zip(heads, frozen, strict=True)
    )
    rows.append(Row("trunks that stand as they were, bit for bit", f"{still} of {len(heads)}",
                    "all", still == len(heads)))  # fmt: skip
    least = min(different_heads(run["folder"]) for run in frozen)
    rows.append(Row("actors' heads that differ from one another", f"{least} of 10", "10",
                    least == 10))  # fmt: skip

    start = [*HEADS, "network.freeze_trunk=true", f"init={heads[0]['folder']}", *SHORT]
    (_, ten), (_, one) = alone(start), alone([*start, "market.only=[CEDAR]"])
    rows.append(Row("peak memory of ten symbols, of one, ratio",
                    f"{ten:.0f} MB, {one:.0f} MB, {ten / one:.3f}", "<= 1.1",
                    ten <= 1.1 * one))  # fmt: skip

    for symbol, policies in frozen[0]["symbols"].items():
        rows += [
            Row(
                f"{symbol}, frozen, seed {SEEDS[0]}, {policy}: Sharpe, growth, drawdown",
                f"{row['sharpe_ratio_mean']:.2f}, {row['growth']:+.1%}, {row['max_drawdown']:.1%}",
            )
            for policy, row in policies.items()
        ]
    note = (
        f"Seeds {SEEDS[0]} to {SEEDS[-1]}, 95 % intervals over seeds and symbols; 3 bps of the"
        " traded value, fills at the next open. Memory is the peak resident set of a process that"
        " trains and does not judge."
    )
    hand_over("SAC on ten symbols", note, rows)


def figures_of(runs: list[dict[str, Any]]) -> dict[str, list[float]]:
    """A value a run for each figure."""
    return {name: [run["figures"][name] for run in runs] for name in runs[0]["figures"]}


def saved(folder: str) -> dict[str, Any]:
    """The averaged actor that a run ended with."""
    return Checkpoints(Path(folder) / "checkpoints").newest()[1]["averaged"]


def trunk(folder: str) -> dict[str, bytes]:
    """Its trunk, bit for bit."""
    return {
        key: value.numpy().tobytes() for key, value in saved(folder).items() if ".trunk." in key
    }


def different_heads(folder: str) -> int:
    """How many of its heads have weights of their own."""
    heads = {key: value for key, value in saved(folder).items() if ".heads." in key}
    return len({value.numpy().tobytes() for key, value in heads.items() if key.endswith("weight")})


if __name__ == "__main__":
    main()
