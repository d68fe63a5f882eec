"""What a policy does, in figures that show when it has become one action.

Shapes: N accounts, T steps, A assets. Actions are the policy's own outputs, before any smoothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from trading_torchrl.envs.actions import NAMES, TARGET_BINS, name_of, target_bin_of

ALLOWED = {"continuous": 6, "target": TARGET_BINS, "discrete": len(NAMES)}
"""How many names each kind of action can have; no continuous action bins to ADD_TO_WINNER."""

Kind = str | int
"""One of ``ALLOWED``; or how many choices there are, of which each is its own name."""


def allowed(kind: Kind) -> int:
    """How many names actions of this kind can have."""
    if isinstance(kind, int):
        return kind
    if kind not in ALLOWED:
        raise ValueError(
            f"kind must be one of {', '.join(ALLOWED)}, or a number of choices, got {kind!r}"
        )
    return ALLOWED[kind]


def names_of(actions: Tensor, kind: Kind) -> Tensor:
    """Names of a policy's outputs, int64 in the same shape.

    Args:
        actions: numbers in [-1, 1], or names.
        kind: ``continuous`` bins to six names, ``target`` to seven equal bins (use it for any
            other number in [-1, 1] too), ``discrete`` are names already, and so are the choices
            where it is their number.
    """
    allowed(kind)
    if kind == "continuous":
        return name_of(actions)
    return target_bin_of(actions) if kind == "target" else actions.long()


def entropy(names: Tensor, count: int = 7) -> float:
    """Entropy of names in nats: 0 where there is one only, log(count) where all are as frequent."""
    return _entropy(_counts(names, count))


def coverage(names: Tensor, allowed: int) -> float:
    """Share of the ``allowed`` names that were seen at all."""
    return _coverage(_counts(names, allowed), allowed)


def largest_share(names: Tensor, count: int = 7) -> float:
    """Share of the most frequent name."""
    return _largest_share(_counts(names, count))


def longest_repeat(actions: Tensor) -> int:
    """How often an account repeated exactly the same action in a row, at most.

    An action that is followed by another has 0 repeats. Doing nothing again is a repeat too.

    Args:
        actions: ``[N, T]``, or ``[N, T, A]`` where the actions of all assets must be repeated.
    """
    actions = _with_assets(actions)
    same = (actions[:, 1:] == actions[:, :-1]).all(-1)
    if same.numel() == 0:
        return 0
    return int(_runs(same, torch.zeros(len(same), dtype=torch.int64)).amax())


def trade_rate(traded: Tensor) -> float:
    """Share of frames with a fill.

    Args:
        traded: values of fills, ``[N, T]``, or ``[N, T, A]`` where a fill in any asset counts. NaN
            is no fill.
    """
    if traded.numel() == 0:
        raise ValueError(f"traded has no frames, its shape is {list(traded.shape)}; give some")
    return _fills(traded) / traded.shape[:2].numel()


def position_spread(share: Tensor) -> float:
    """Standard deviation (ddof 0) of positions as shares of equity, over accounts and time."""
    return float(share.double().std(correction=0))


def broken(values: Mapping[str, Tensor]) -> list[str]:
    """Names of those that hold a number that is not finite.

    Cheap where there is none: their sum tells.
    """
    total = torch.stack([value.detach().sum() for value in values.values()]).sum()
    if bool(total.isfinite()):
        return []
    return [name for name, value in values.items() if not bool(value.isfinite().all())]


class ActionWatch:
    """Sees what a policy does while it trains, and remembers counts of the last frames only.

    Args:
        kind: of the actions, see :func:`names_of`.
        window: figures are over the newest calls that hold at least so many frames.

    Example:
        >>> watch = ActionWatch("target")
        >>> stuck, done = torch.full((4, 8), 0.3), torch.zeros(4, 8, 1, dtype=torch.bool)
        >>> watch.see(stuck, None, done)
        >>> watch.figures()["largest_name_share"], watch.figures()["exact_repeats"]
        (1.0, 7.0)
    """

    def __init__(self, kind: Kind, window: int = 10_000) -> None:
        self._names = max(allowed(kind), len(NAMES))
        if window < 1:
            raise ValueError(f"window must be at least 1 frame, got {window}")
        self.kind = kind
        self.window = window
        self._calls: deque[_Call] = deque()
        self._frames = 0
        self._accounts: _Accounts | None = None

    def see(self, actions: Tensor, traded: Tensor | None, done: Tensor) -> None:
        """Counts the frames of one batch, which follows the last one in time.

        Args:
            actions: ``[N, T]`` or ``[N, T, A]``, the same N in every call.
            traded: values of fills ``[N, T, A]``, ``("next", "trade", "value")`` of the
                environment; without it the trade rate is not known.
            done: bool ``[N, T, 1]``; the step after it repeats nothing.
        """
        actions, done = _with_assets(actions.detach().cpu()), done.cpu()[..., 0]
        names = names_of(actions, self.kind)
        runs = self._continue(actions, done)
        frames = done.numel()
        self._calls.append(
            _Call(
                frames,
                0 if traded is None else frames,
                0 if traded is None else _fills(traded.cpu()),
                int(runs.amax()),
                _counts(names, self._names).tolist(),
            )
        )
        self._frames += frames
        while self._frames - self._calls[0].frames >= self.window:
            self._frames -= self._calls.popleft().frames

    def _continue(self, actions: Tensor, done: Tensor) -> Tensor:
        """Repeats in a row ``[N, T]`` up to each step, those of earlier calls included."""
        before = self._accounts
        if before is None:
            before = _Accounts(
                actions[:, 0],
                torch.zeros(len(actions), dtype=torch.int64),
                torch.ones(len(actions), dtype=torch.bool),
            )
        elif before.action.shape != actions[:, 0].shape:
            raise ValueError(
                f"actions of {list(actions[:, 0].shape)} accounts x assets, where earlier calls had"
                f" {list(before.action.shape)}; watch other accounts with another ActionWatch"
            )
        earlier = torch.cat([before.action[:, None], actions[:, :-1]], 1)
        ended = torch.cat([before.ended[:, None], done[:, :-1]], 1)
        runs = _runs((actions == earlier).all(-1) & ~ended, before.run)
        # Copies: the collector may write its next batch into the memory of this one.
        self._accounts = _Accounts(actions[:, -1].clone(), runs[:, -1].clone(), done[:, -1].clone())
        return runs

    def figures(self) -> dict[str, float]:
        """Figures over the window; none before anything was seen.

        ``action_entropy_continuous`` in nats, ``action_coverage_histogram`` (share of the allowed
        names seen), ``largest_name_share``, ``exact_repeats`` (the longest run that reached into
        the window) and, where fills were given, ``trade_execution_rate``.
        """
        if not self._calls:
            return {}
        counts = torch.tensor([call.counts for call in self._calls]).sum(0)
        figures = {
            "action_entropy_continuous": _entropy(counts),
            "action_coverage_histogram": _coverage(counts, allowed(self.kind)),
            "largest_name_share": _largest_share(counts),
            "exact_repeats": float(max(call.longest for call in self._calls)),
        }
        measured = sum(call.measured for call in self._calls)
        if measured:
            figures["trade_execution_rate"] = sum(call.fills for call in self._calls) / measured
        return figures

    def state_dict(self) -> dict[str, Any]:
        """All that was seen, as plain tensors and ``None``."""
        rows = [[*call[:-1], *call.counts] for call in self._calls]
        accounts = self._accounts or (None, None, None)
        return {
            "calls": torch.tensor(rows, dtype=torch.int64).reshape(len(rows), 4 + self._names),
            **{
                name: None if value is None else value.clone()
                for name, value in zip(_Accounts._fields, accounts, strict=True)
            },
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from :meth:`state_dict` as if never interrupted."""
        self._calls = deque(
            _Call(frames, measured, fills, longest, counts)
            for frames, measured, fills, longest, *counts in state["calls"].tolist()
        )
        self._frames = sum(call.frames for call in self._calls)
        known = [state[name] for name in _Accounts._fields]
        self._accounts = None if known[0] is None else _Accounts(*known)


class _Call(NamedTuple):
    """What is kept of one call."""

    frames: int
    measured: int
    """frames whose fills were given"""
    fills: int
    longest: int
    counts: list[int]


class _Accounts(NamedTuple):
    """Where the accounts stood after the last call."""

    action: Tensor
    run: Tensor
    ended: Tensor


def _with_assets(actions: Tensor) -> Tensor:
    if actions.ndim not in (2, 3):
        raise ValueError(
            f"actions must have shape [N, T] or [N, T, A], got {list(actions.shape)}; reshape them"
        )
    return actions[..., None] if actions.ndim == 2 else actions


def _counts(names: Tensor, count: int) -> Tensor:
    counts = names.flatten().bincount(minlength=count)
    if len(counts) > count:
        raise ValueError(
            f"names must lie in 0 ... {count - 1}, got {len(counts) - 1}; give the kind of actions "
            "they come from, or a larger count"
        )
    if names.numel() == 0:
        raise ValueError(f"names are empty, their shape is {list(names.shape)}; give some")
    return counts


def _entropy(counts: Tensor) -> float:
    return float(torch.special.entr(counts.double() / counts.sum()).sum())


def _coverage(counts: Tensor, allowed: int) -> float:
    return int(counts.count_nonzero()) / allowed


def _largest_share(counts: Tensor) -> float:
    return int(counts.amax()) / int(counts.sum())


def _fills(traded: Tensor) -> int:
    filled = traded.abs() > 0
    return int((filled.any(-1) if filled.ndim == 3 else filled).count_nonzero())


def _runs(same: Tensor, before: Tensor) -> Tensor:
    """How many steps in a row were ``same`` ``[N, T]`` up to each; ``before`` ``[N]`` go on."""
    step = torch.arange(1, same.shape[1] + 1)
    start = torch.where(same, -before[:, None], step).cummax(1).values
    return step - start
