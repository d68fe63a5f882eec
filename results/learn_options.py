"""Options on the synthetic market: their use, what they earn, what each safeguard does.

    python results/learn_options.py         # 60 runs, forty minutes

Runs are `python recipes/options.py`; beside them the rules under a controller that never learns,
and `python recipes/offpolicy.py env=by_trades`, SAC alone, by the same settings of the agent.
"""

import math
from collections.abc import Mapping
from statistics import mean
from typing import Any

from omegaconf import OmegaConf
from rows import ROOT, Row, hand_over, said
from runs import SEEDS, figures, paired, train_all

RULE, CRITIC, SCALED, BLEND = "rules", "rules, option-critic", "agent, scaled", "agent, blended"
ENDS, NEVER, ALONE = "rules, ends learned", "rules, never learning", "SAC alone"
SAFEGUARDS = {
    "no shortest durations": ["options.least=1"],
    "no entropy bonus": ["options.entropy=0"],
    "entropy bonus of 0.01": ["options.entropy=0.01"],
    "advantages as they are": ["options.normalise=false"],
    "cold from the start": ["options.temperature.start=0.1"],
}
OPTIONS = {
    RULE: [],
    CRITIC: ["options.controller=option_critic"],
    SCALED: ["options.action=scaled"],
    BLEND: ["options.action=blend"],
    ENDS: ["options.controller=option_critic", "options.ends=true"],
    NEVER: ["options.after=1_000_000"],
    **SAFEGUARDS,
}
OWN = ("defaults", "options", "alerts", "hydra")
"""Settings of `recipes/conf/options.yaml` that are not the agent's."""

USED, MOST, ENTROPY, LASTING, VARIED = 0.10, 60.0, 1.2, 1.5, 4


def agents_settings() -> list[str]:
    """Of the recipe with options, as overrides."""
    whole = OmegaConf.load(ROOT / "recipes" / "conf" / "options.yaml")
    given = {str(name): value for name, value in whole.items() if name not in OWN}
    env = given.pop("env")
    given |= {f"env.{name}": value for name, value in env.items()}
    return [f"{name}={_said(value)}" for name, value in given.items()]


def _said(value: object) -> str:
    plain = OmegaConf.to_container(value) if OmegaConf.is_config(value) else value
    return str(plain).replace("'", "").replace(" ", "")


def thirds(run: Mapping[str, Any], name: str) -> tuple[float, float]:
    """Means of a figure of the controller's updates, over the first third of a run and the last."""
    told = [row[f"options/{name}"] for row in run["controller"] if f"options/{name}" in row]
    third = len(told) // 3
    return mean(told[:third]), mean(told[-third:])


def bars(name: str, runs: list) -> list[Row]:
    """What a controller must not become, the worst of the seeds."""
    least = min(figures(runs, "stochastic_option_min_of_allowed"))
    most = max(figures(runs, "stochastic_option_max_usage_pct"))
    entropy = min(figures(runs, "stochastic_option_usage_entropy"))
    lasting = min(figures(runs, "stochastic_option_average_of_least"))
    instant = max(figures(runs, "stochastic_option_instant"))
    varied = min(figures(runs, "option_num_used_options"))
    losses = [thirds(run, "loss_value") for run in runs]
    falls = [last / first for first, last in losses]
    explained = [thirds(run, "explained")[1] for run in runs]
    met = min(figures(runs, "stochastic_option_purpose_met"))
    return [
        Row(f"{name}: least chosen option, of the decisions it could be", f"{least:.1%}",
            f">= {USED:.0%}", least >= USED),
        Row(f"{name}: most chosen option, of all decisions", f"{most:.1f} %", f"<= {MOST:.0f} %",
            most <= MOST),
        Row(f"{name}: entropy of use over bars", f"{entropy:.2f}", f"> {ENTROPY}",
            entropy > ENTROPY),
        Row(f"{name}: mean duration, in shortest durations", f"{lasting:.2f}", f">= {LASTING}",
            lasting >= LASTING),
        Row(f"{name}: options that end after one bar", f"{instant:.1%}", "0 %", instant == 0),
        Row(f"{name}: purpose met, of all ends", f"{met:.1%}", ">= 50 %", met >= 0.5),
        Row(f"{name}: loss of the values, last third of the updates / first third", said(falls),
            "< 1", mean(falls) < 1),
        Row(f"{name}: what values explain of their targets' variance, last third",
            said(explained)),
        Row(f"{name}: options that the deterministic policy uses", f"{varied:.0f}",
            f">= {VARIED}", varied >= VARIED),
    ]  # fmt: skip


def main() -> None:
    """Trains, and compares."""
    told = "alerts=warn"  # a run that collapses is to be seen to its end
    found = train_all({name: [told, *given] for name, given in OPTIONS.items()}, "options")
    found |= train_all({ALONE: [told, "env=by_trades", *agents_settings()]})
    columns = {
        "Sharpe": "sharpe_ratio_mean",
        "growth share": "growth_share",
        "drawdown": "max_drawdown",
        "entropy of use": "stochastic_option_usage_entropy",
        "least of allowed": "stochastic_option_min_of_allowed",
        "most chosen, %": "stochastic_option_max_usage_pct",
        "mean duration": "stochastic_option_average_of_least",
        "ends at once": "stochastic_option_instant",
        "used, deterministic": "option_num_used_options",
    }
    table = [["", *columns]]
    for name, runs in found.items():
        known = [c in runs[0]["figures"] for c in columns.values()]
        cells = [
            said(figures(runs, c)) if there else ""
            for c, there in zip(columns.values(), known, strict=True)
        ]
        table.append([name, *cells])
    rows = [row for name in (RULE, SCALED, BLEND, CRITIC) for row in bars(name, found[name])]
    for name in (RULE, CRITIC, SCALED, BLEND):
        for other in (ALONE, NEVER):
            for what in ("Sharpe", "growth share"):
                less = paired(columns[what], found[name], found[other])
                clear = " *" if less.clear else ""
                rows.append(Row(f"{name} less {other}: {what}, paired",
                                f"{less.mean:+.3f} +- {less.half_width:.3f}{clear}"))  # fmt: skip
    for option in found[RULE][0]["by_option"]:
        each = [run["by_option"][option] for run in found[RULE]]
        shown = {
            "chosen where allowed": said([row["exploring_of_allowed"] for row in each]),
            "deterministic": said([row["of_allowed"] for row in each]),
            "bars": said([row["bars"] for row in each]),
        }
        lasted = [row["duration"] for row in each if row["duration"] is not None]
        if len(lasted) == len(each) and not any(map(math.isnan, lasted)):
            shown["mean duration"] = said(lasted)
            shown["purpose met"] = said([row["purpose_met"] for row in each])
        text = ", ".join(f"{name} {value}" for name, value in shown.items())
        rows.append(Row(f"{RULE}: {option}", text))
    note = (
        f"Seeds {SEEDS[0]} to {SEEDS[-1]}, 95 % intervals over seeds (Student's t), * where that of"
        " a difference excludes 0. Synthetic market, trades as actions, shorts, positions of at"
        " most equity, 150,000 frames. Use is that of the exploring policy on the test split unless"
        " called deterministic; rows with bars are the worst of the seeds, but for the loss of the"
        " values, a mean."
    )
    hand_over("Options", note, rows, table)


if __name__ == "__main__":
    main()
