"""Runs scripts in copies of a process that has the libraries loaded: each starts at once.

Started by :func:`running.run`. Reads a line of JSON for each script, copies itself, and in the copy
is that script: its own arguments, folder, environment and output, and its own end. Answers with the
script's exit code. Nothing is computed before the copy is made, so that it owns all its threads.
"""

import json
import os
import runpy
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def load():
    """What recipes import; the slow part of their start."""
    sys.path.insert(0, str(ROOT / "recipes"))
    import agents  # noqa: F401
    import curious  # noqa: F401
    import hydra  # noqa: F401
    import launch  # noqa: F401
    import torch.utils.tensorboard  # noqa: F401
    import torchrl.collectors  # noqa: F401


def next_script():
    """In a copy of this process, the script that it is to be; never returns in the first one."""
    for line in sys.stdin:
        asked = json.loads(line)
        child = os.fork()
        if not child:
            break
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(json.dumps(ended), flush=True)
    else:
        sys.exit()
    for name, number in (("out", 1), ("err", 2)):
        os.dup2(os.open(asked[name], os.O_WRONLY | os.O_TRUNC), number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.environ.clear()
    os.environ.update(asked["env"])
    os.chdir(asked["cwd"])
    sys.argv = asked["argv"]
    sys.path[0] = str(Path(sys.argv[0]).parent)
    return sys.argv[0]


if __name__ == "__main__":
    sys.path.pop(0)  # the folder of this file
    load()
    runpy.run_path(next_script(), run_name="__main__")
