"""SAC on Gymnasium's Pendulum-v1 by the same recipe: nothing in it is special to trading.

python results/learn_pendulum.py        # 5 runs, some minutes
"""

from rows import Row, hand_over
from runs import train_all

from trading_torchrl.evaluation import interval


def main() -> None:
    """Trains, and judges on 100 fresh episodes."""
    runs = train_all({"pendulum": ["env=pendulum"]})["pendulum"]
    mean, half = interval([run["figures"]["return"] for run in runs])
    bar = -200.0
    row = Row(
        "Pendulum-v1, 20,000 steps: mean return", f"{mean:.0f} +- {half:.0f}", f">= {bar:.0f}",
        mean >= bar,
    )  # fmt: skip
    hand_over("SAC on Pendulum-v1", "Seeds 0 to 4, 100 episodes each, deterministic.", [row])


if __name__ == "__main__":
    main()
