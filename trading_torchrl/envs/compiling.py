"""Compiling the core, where a compiler is found."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch

from trading_torchrl.envs.accounts import Rules
from trading_torchrl.envs.bar import advance


@cache
def compiles() -> bool:
    """Whether PyTorch finds a C++ compiler; says so once where it does not."""
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        get_cpp_compiler()
    except InvalidCxxCompiler:
        warnings.warn("no C++ compiler found: environments step uncompiled", stacklevel=2)
        return False
    return True


@cache
def compiled_advance(rules: Rules, num_envs: int, device: torch.device) -> Callable[..., Any]:
    """The core for these rules and this batch; environments that agree in both share it."""
    settings: dict[str, Any] = {
        "isolate_recompiles": True,  # missing from torch's own stubs
        # Inductor shies away from vector code where many loads are strided, as the prices are.
        # Vector code is faster here all the same.
        # With all values emitted, one loop over everything is slower than several smaller ones.
        # What calls the loops takes longer than a few hundred accounts do, unless it is C++ too.
        "options": {
            "cpp.enable_tiling_heuristics": False,
            "max_fusion_size": 9,
            "cpp_wrapper": device.type == "cpu",
        },
    }
    return torch.compile(partial(advance, rules=rules), fullgraph=True, dynamic=False, **settings)
