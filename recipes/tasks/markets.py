"""Markets from settings: splits of your own prices, or drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

from checks import check_names

from trading_torchrl.data import (
    WARMUP,
    Knobs,
    Market,
    MarketError,
    load_csv,
    named_market,
    slow_features,
    split,
    synthetic_market,
    with_features,
)
from trading_torchrl.envs.settings import at_least

SPLITS = ("train", "validation", "meta", "test")


class Parts:
    """A market's splits, each made when it is asked for; who only trains needs no other.

    Args:
        make: a split by its name.
        knobs: where it is synthetic, so that its oracles are known: of all symbols, or of each.
        symbols: their names, where they are the same in all splits.
    """

    def __init__(
        self,
        make: Callable[[str], Any],
        knobs: Knobs | tuple[Knobs, ...] | None,
        symbols: tuple[str, ...],
    ) -> None:
        self.make, self.knobs, self.symbols = make, knobs, symbols

    def for_actors(self) -> Parts:
        """The bars to learn from and nothing else, in memory of their own; can be pickled."""
        alone = Parts(_not_here, self.knobs, self.symbols)
        alone.train = replace(self.train, hidden={}).copy()
        return alone

    @cached_property
    def train(self) -> Market:
        """What agents learn from."""
        return self.make("train")

    @cached_property
    def validation(self) -> Market:
        """What choices are made on."""
        return self.make("validation")

    @cached_property
    def meta(self) -> Market | None:
        """For what is learned on top of an agent."""
        return self.make("meta")

    @cached_property
    def test(self) -> Market:
        """What nothing is chosen on."""
        return self.make("test")


def _not_here(name: str) -> Market:
    raise LookupError(f"actors have the bars to learn from, not those of {name}")


def drawn(paths: int, bars: int, seed: int, knobs: Knobs) -> Market:
    """A synthetic market of so many bars after the warm-up."""
    return synthetic_market(paths, bars + WARMUP, seed, knobs, [slow_features])


def parts_of(market: Mapping[str, Any]) -> Parts:
    """Loads or draws what ``conf/market`` describes."""
    if market["source"] == "synthetic":
        check_names("market.knobs", market["knobs"], Knobs)
        for name in SPLITS:
            for count, least in (("paths", 1), ("bars", 2), ("seed", 0)):
                at_least(f"market.{name}.{count}", market[name][count], least)
        knobs = Knobs(**market["knobs"])

        def make(name: str) -> Market:
            part = market[name]
            return drawn(part["paths"], part["bars"], part["seed"], knobs)

        return Parts(make, knobs, ())
    if market["source"] == "synthetic_symbols":
        named = turned(market)
        loaded = named_market(named, market["bars"], market["seed"], [slow_features])
        each = tuple(named.values())
    elif market["source"] == "csv":
        loaded, each = with_features(load_csv(market["path"]), slow_features), None
    else:
        raise ValueError(
            f"market.source is synthetic, synthetic_symbols or csv, got {market['source']!r}"
        )
    names = (*SPLITS, "purge", "embargo")
    try:
        cut = split(loaded, **{name: market[name] for name in names})
    except MarketError as error:
        settings = ", ".join(f"market.{name}=" for name in names)
        raise MarketError(f"{error} (by {settings})") from error
    return Parts(partial(getattr, cut), each, loaded.symbols)


def predictable(knobs: Knobs | tuple[Knobs, ...]) -> bool:
    """Whether there is anything to earn."""
    return any(each.predictability for each in ((knobs,) if isinstance(knobs, Knobs) else knobs))


def turned(market: Mapping[str, Any]) -> dict[str, Knobs]:
    """Knobs of the symbols that ``conf/market`` names, or of those among them that it asks for."""
    known = market["symbols"]
    asked = list(known) if market["only"] is None else market["only"]
    if not asked or any(name not in known for name in asked):
        raise ValueError(f"market.only is some of {', '.join(known)}, or null; got {asked}")
    return {name: Knobs(**known[name]) for name in asked}


def unpredictable(market: Market, knobs: Knobs | tuple[Knobs, ...]) -> Market:
    """As many symbols and bars, on which nothing can be earned."""
    bars = len(market) - WARMUP
    if isinstance(knobs, Knobs):
        return drawn(len(market.symbols), bars, 30_000, replace(knobs, predictability=0.0))
    still = {
        name: replace(each, predictability=0.0)
        for name, each in zip(market.symbols, knobs, strict=True)
    }
    return named_market(still, len(market), 30_000, [slow_features])
