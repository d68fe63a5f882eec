"""Where no C++ compiler is found, environments say so once and step all the same."""

import os
import subprocess
import sys

CODE = """
from trading_torchrl.data import synthetic_market
from trading_torchrl.envs import TradingEnv
market = synthetic_market(2, 700)
for _ in range(2):
    env = TradingEnv(market, 4, episode_bars=20)
    print(env.compiled, env.rollout(20).shape)
"""


def test_without_a_compiler_environments_step_uncompiled_and_say_so_once(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        env={**os.environ, "CXX": str(tmp_path / "no-such-compiler")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.count("False torch.Size([4, 20])") == 2
    assert done.stderr.count("no C++ compiler found") == 1
