"""The market: bars of many symbols on one calendar, as dense tensors."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

import numpy as np
import torch
from torch import Tensor

PRICES = ("open", "high", "low", "close")
BARS = (*PRICES, "volume")

FORMAT = 1


class MarketError(ValueError):
    """Bad market data: the message names the source, the column and the first bad time."""


def _file_of(tensor: str) -> str:
    """The file of a tensor; a user's column may have any name."""
    return f"{quote(tensor, safe='')}.npy"


@dataclass(frozen=True)
class Market:
    """Bars of S symbols on one calendar of T timestamps.

    Every tensor has time first: bars are ``[T, S]``, features ``[T, S, F]``. A market is never
    changed in place; :meth:`bars`, :meth:`select` and :meth:`with_features` return a new one.
    Loaders (:func:`~trading_torchrl.data.load_csv`, ...) and :func:`validate` check the values;
    the constructor checks the shapes.

    Args:
        symbols: names of the S symbols.
        timestamps: int64 ``[T]``, nanoseconds since 1970 (UTC), increasing.
        open: float64 ``[T, S]``; likewise ``high``, ``low``, ``close`` and ``volume``.
        bars_per_year: how many bars one year of trading has (252 for daily stock data).
        columns: user's own observable columns, each ``[T, S]``; they join the features.
        hidden: what a generator knows and no observation may show (the true expected return, say).
        features: float32 ``[T, S, F]``, unscaled, see
            :func:`~trading_torchrl.data.with_features`.
        feature_names: F names.
        warmup: bars at the start whose features are not settled yet; episodes start after them.
    """

    symbols: tuple[str, ...]
    timestamps: Tensor
    open: Tensor
    high: Tensor
    low: Tensor
    close: Tensor
    volume: Tensor
    bars_per_year: float
    columns: Mapping[str, Tensor] = field(default_factory=dict)
    hidden: Mapping[str, Tensor] = field(default_factory=dict)
    features: Tensor | None = None
    feature_names: tuple[str, ...] = ()
    warmup: int = 0

    def __post_init__(self) -> None:
        shape = (len(self.timestamps), len(self.symbols))
        if 0 in shape:
            raise MarketError(
                f"a market needs bars and symbols, got {shape[0]} bars of {shape[1]} symbols"
            )
        if len(set(self.symbols)) != len(self.symbols):
            twice = sorted({s for s in self.symbols if self.symbols.count(s) > 1})
            raise MarketError(f"symbols must differ, these stand twice: {', '.join(twice)}")
        if not self.bars_per_year > 0:
            raise MarketError(f"bars_per_year must be positive, got {self.bars_per_year}")
        for name, tensor in self._tensors():
            expected = shape[:1] if name == "timestamps" else shape
            if tuple(tensor.shape[: len(expected)]) != expected:
                raise MarketError(
                    f"{name} has shape {tuple(tensor.shape)}, expected {expected} (bars, symbols)"
                )
        if self.features is not None and self.features.shape[2:] != (len(self.feature_names),):
            raise MarketError(
                f"features {tuple(self.features.shape)} do not fit {len(self.feature_names)} names"
            )

    def _tensors(self) -> list[tuple[str, Tensor]]:
        named = [(name, getattr(self, name)) for name in ("timestamps", *BARS)]
        named += [(f"columns.{name}", tensor) for name, tensor in self.columns.items()]
        named += [(f"hidden.{name}", tensor) for name, tensor in self.hidden.items()]
        if self.features is not None:
            named.append(("features", self.features))
        return named

    def _map(self, change: Callable[[str, Tensor], Tensor], **fields: Any) -> Market:
        """A new market whose every tensor went through ``change(name, tensor)``."""
        new: dict[str, Any] = {name: change(name, tensor) for name, tensor in self._tensors()}
        for group in ("columns", "hidden"):
            names = getattr(self, group)
            fields[group] = {name: new.pop(f"{group}.{name}") for name in names}
        return replace(self, **new, **fields)

    def __len__(self) -> int:
        return len(self.timestamps)

    def __repr__(self) -> str:
        first, last = self.dates[[0, -1]].astype("datetime64[D]")
        return (
            f"Market({len(self):,} bars x {len(self.symbols)} symbols, {first} to {last}, "
            f"{self.bars_per_year:g} bars a year, {len(self.feature_names)} features)"
        )

    @property
    def dates(self) -> np.ndarray:
        """The timestamps as numpy ``datetime64[ns]``."""
        return self.timestamps.cpu().numpy().view("datetime64[ns]")

    @property
    def days(self) -> Tensor:
        """int64 ``[T]``: the trading day of each bar, days since 1970."""
        return torch.div(self.timestamps, 86_400_000_000_000, rounding_mode="floor")

    def bars(self, start: int, stop: int | None = None) -> Market:
        """The bars ``start:stop`` (as a view), features and all."""
        stop = len(self) if stop is None else stop
        if not 0 <= start < stop <= len(self):
            raise MarketError(
                f"bars {start}:{stop} do not lie within the {len(self)} bars of this market"
            )
        settled = max(self.warmup - start, 0)
        return self._map(lambda _, tensor: tensor[start:stop], warmup=settled)

    def select(self, symbols: Sequence[str]) -> Market:
        """The market of these symbols only, in this order."""
        unknown = [symbol for symbol in symbols if symbol not in self.symbols]
        if unknown:
            raise MarketError(
                f"no symbol {unknown[0]!r} here; known: {', '.join(self.symbols[:20])}"
            )
        columns = torch.tensor([self.symbols.index(symbol) for symbol in symbols])
        return self._map(
            lambda name, tensor: tensor if name == "timestamps" else tensor[:, columns],
            symbols=tuple(symbols),
        )

    def to(self, device: torch.device | str) -> Market:
        """The same market on another device."""
        return self._map(lambda _, tensor: tensor.to(device))

    def copy(self) -> Market:
        """The same market in memory of its own, which bars of a larger one are not."""
        return self._map(lambda _, tensor: tensor.clone())

    def share(self) -> Market:
        """Moves its tensors into memory that other processes read as it stands; itself."""
        return self._map(lambda _, tensor: tensor.share_memory_())

    @property
    def nbytes(self) -> int:
        """Of all tensors."""
        return sum(tensor.nbytes for _, tensor in self._tensors())

    def sha256(self) -> str:
        """Of symbols, bars and everything observable: other data have another."""
        digest = hashlib.sha256(repr((self.symbols, self.bars_per_year)).encode())
        for name, tensor in self._tensors():
            if not name.startswith("hidden."):
                digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
                digest.update(np.ascontiguousarray(tensor.cpu().numpy()).data)
        return digest.hexdigest()

    def save(self, path: str | Path) -> Path:
        """Writes the market into a folder, one ``.npy`` a tensor; :meth:`load` maps them lazily.

        The folder appears, or replaces the one that was there, once everything is written: where
        writing fails, on a full disk say, what was there stays.
        """
        folder = Path(path)
        folder.parent.mkdir(parents=True, exist_ok=True)
        description = {
            "format": FORMAT,
            "symbols": self.symbols,
            "bars_per_year": self.bars_per_year,
            "feature_names": self.feature_names,
            "warmup": self.warmup,
            "tensors": [name for name, _ in self._tensors()],
        }
        with TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as place:
            written, replaced = Path(place) / "new", Path(place) / "old"
            written.mkdir()
            for name, tensor in self._tensors():
                with open(written / _file_of(name), "wb") as file:
                    np.save(file, tensor.cpu().numpy())
                    file.flush()
                    os.fsync(file.fileno())
            (written / "market.json").write_text(json.dumps(description, indent=1))
            if folder.exists():
                folder.rename(replaced)
            written.rename(folder)
        return folder

    @classmethod
    def load(cls, path: str | Path) -> Market:
        """Maps a saved market into memory: pages are read when they are used, and shared.

        The tensors are copy-on-write: changing one changes this process's memory, not the file.
        """
        folder = Path(path)
        try:
            description = json.loads((folder / "market.json").read_text())
        except FileNotFoundError:
            raise MarketError(
                f"{folder}: not a saved market (no market.json); write one with Market.save"
            ) from None
        if description.get("format") != FORMAT:
            raise MarketError(
                f"{folder}: format {description.get('format')!r}, this version reads {FORMAT}"
            )
        tensors = {}
        for name in description["tensors"]:
            try:
                array = np.load(folder / _file_of(name), mmap_mode="c", allow_pickle=False)
            except (FileNotFoundError, ValueError, EOFError) as error:
                raise MarketError(
                    f"{folder / _file_of(name)} cannot be read ({error}); save the market again"
                ) from error
            tensors[name] = torch.from_numpy(array)

        def group(prefix: str) -> dict[str, Tensor]:
            return {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}

        return cls(
            symbols=tuple(description["symbols"]),
            bars_per_year=description["bars_per_year"],
            feature_names=tuple(description["feature_names"]),
            warmup=description["warmup"],
            features=tensors.get("features"),
            columns=group("columns."),
            hidden=group("hidden."),
            **{name: tensors[name] for name in ("timestamps", *BARS)},
        )
