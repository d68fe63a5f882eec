"""Standardisation of features, fitted once and then frozen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from trading_torchrl.data.market import Market


class Scaler(nn.Module):
    """Standardises features with a fixed mean and deviation and clips them to +-``clip``.

    Fit it on the training split only. Names and clip travel in the ``state_dict``: loading one
    restores the scaler whole.

    Args:
        mean: ``[F]``.
        std: ``[F]``, positive.
        names: the F features it was fitted on.
        clip: largest absolute value that comes out.

    Example:
        >>> import torch
        >>> from trading_torchrl.data.scaler import Scaler
        >>> scaler = Scaler(torch.tensor([0.5, 0.0]), torch.tensor([0.25, 1.0]), ["rsi", "trend"])
        >>> scaler(torch.tensor([[1.0, -30.0]]))
        tensor([[  2., -10.]])
        >>> scaler.check(["rsi", "atr"])  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ValueError: these are not the features the scaler was fitted on: missing trend; ...
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Tensor, std: Tensor, names: Sequence[str], clip: float = 10.0) -> None:
        super().__init__()
        if mean.shape != (len(names),) or std.shape != (len(names),):
            raise ValueError(
                f"mean {list(mean.shape)} and std {list(std.shape)} must hold one value for each "
                f"of the {len(names)} names"
            )
        if not (bool((std > 0).all()) and bool(mean.isfinite().all() & std.isfinite().all())):
            raise ValueError("mean must be finite and std finite and positive")
        if not clip > 0:
            raise ValueError(f"clip must be positive, got {clip}")
        self.names = tuple(names)
        self.clip = float(clip)
        self.register_buffer("mean", mean.to(torch.float32))
        self.register_buffer("std", std.to(torch.float32))

    @classmethod
    def fit(cls, market: Market, clip: float = 10.0) -> Scaler:
        """Fits mean and deviation of each feature over all bars and symbols of a market.

        Args:
            market: the training split, with features (see
                :func:`~trading_torchrl.data.with_features`).
            clip: largest absolute value that comes out.

        Returns:
            The scaler. A feature that is constant here gets the deviation 1.
        """
        if market.features is None:
            raise ValueError("the market has no features yet: call with_features(market) first")
        mean, std = [], []
        # One feature at a time: float64 copies of all would double the memory of the market.
        for values in market.features.unbind(-1):
            deviation, average = torch.std_mean(values.to(torch.float64), correction=0)
            # Of equal values the mean may be rounded, and what is left in float32 may be 0.
            constant = (values.amax() == values.amin()) | (deviation < torch.finfo().tiny)
            mean.append(average)
            std.append(torch.where(constant, 1.0, deviation))
        return cls(torch.stack(mean), torch.stack(std), market.feature_names, clip)

    def check(self, names: Sequence[str]) -> None:
        """Refuses features other than those it was fitted on, or in another order."""
        if tuple(names) == self.names:
            return
        missing = [name for name in self.names if name not in names]
        unknown = [name for name in names if name not in self.names]
        differences = [
            f"{what} {', '.join(which)}"
            for what, which in (("missing", missing), ("unknown", unknown))
            if which
        ] or [f"their order differs, expected {', '.join(self.names)}"]
        raise ValueError(
            "these are not the features the scaler was fitted on: "
            f"{'; '.join(differences)}; build the market with the same columns and feature "
            "functions, or fit a new scaler"
        )

    def forward(self, features: Tensor, names: Sequence[str] | None = None) -> Tensor:
        """Standardised and clipped features, float32.

        Args:
            features: ``[..., F]``.
            names: their names where known (``market.feature_names``); checked.
        """
        if names is not None:
            self.check(names)
        if features.shape[-1] != len(self.names):
            raise ValueError(
                f"{features.shape[-1]} features, but the scaler was fitted on {len(self.names)}: "
                f"{', '.join(self.names)}"
            )
        # In place: a table of all bars is large.
        scaled = (features - self.mean).div_(self.std).clamp_(-self.clip, self.clip)
        return scaled.to(torch.float32)

    def get_extra_state(self) -> dict[str, Any]:
        """Names and clip, for the ``state_dict``."""
        return {"names": list(self.names), "clip": self.clip}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Takes names and clip from a ``state_dict``."""
        self.names = tuple(state["names"])
        self.clip = float(state["clip"])

    def extra_repr(self) -> str:
        """Shown by ``repr``."""
        return f"{len(self.names)} features, clip={self.clip:g}"
