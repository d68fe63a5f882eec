"""Settings of the right kinds, and one line instead of a traceback where something is refused."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import wraps
from types import NoneType, UnionType
from typing import Any, ParamSpec, TypeVar, get_args, get_type_hints

P = ParamSpec("P")
R = TypeVar("R")

WORDS = {
    int: "a whole number", float: "a number", bool: "true or false", str: "text", NoneType: "null",
    list[int]: "a list of whole numbers, [64,64] say",
}  # fmt: skip
"""Kinds of settings."""

WRITTEN = {"num_envs": "env.num_envs"}
"""Where a setting stands, if not under its own name."""


def plainly(
    *kinds: type[Exception], before: str = ""
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """What raises one of these ends the recipe with its message alone, and what stands before it.

    Example:
        >>> @plainly(ValueError)
        ... def half(number: int) -> int:
        ...     if number % 2:
        ...         raise ValueError(f"{number} is odd")
        ...     return number // 2
        >>> half(3)
        Traceback (most recent call last):
        SystemExit: 3 is odd
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def called(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return function(*args, **kwargs)
            except kinds as error:
                raise SystemExit(f"{before}{error}") from error

        return called

    return decorate


def check_kinds(settings: Any) -> None:
    """Refuses settings, a dataclass, whose values are not of the kinds that it names."""
    kinds = get_type_hints(type(settings))
    for each in fields(settings):
        kind, value = kinds[each.name], getattr(settings, each.name)
        options = get_args(kind) if isinstance(kind, UnionType) else (kind,)
        if not any(_is(value, one) for one in options):
            allowed = " or ".join(WORDS[one] for one in options)
            name = WRITTEN.get(each.name, each.name)
            raise SystemExit(f"{name} must be {allowed}, got {value!r}")


def there(part: str, settings: Mapping[str, Any], name: str) -> Any:
    """A setting, which a run of an earlier version, or a file of one's own, may lack."""
    if name not in settings:
        raise SystemExit(
            f"{part}.{name} is missing: give {part}.{name}=, as recipes/conf/{part} has it; a run"
            " of an earlier version goes on with that version"
        )
    return settings[name]


def check_above_0(part: str, settings: Mapping[str, Any], *names: str) -> None:
    """Refuses settings of a part that are no numbers above 0."""
    for name in names:
        if not there(part, settings, name) > 0:
            raise SystemExit(f"{part}.{name} must be above 0, got {settings[name]}")


def check_whole(part: str, settings: Mapping[str, Any], *names: str) -> None:
    """Refuses settings of a part that are no whole numbers of at least 1."""
    for name in names:
        value = there(part, settings, name)
        if not _is(value, int) or value < 1:
            raise SystemExit(f"{part}.{name} must be a whole number of at least 1, got {value!r}")


def check_rate(part: str, settings: Mapping[str, Any], name: str = "tau") -> None:
    """Refuses a rate by which nothing would move, or which goes too far."""
    if not 0 < there(part, settings, name) <= 1:
        raise SystemExit(f"{part}.{name} must be above 0 and at most 1, got {settings[name]}")


def names_of(kind: type) -> list[str]:
    """Of the arguments that a class is built of."""
    return list(inspect.signature(vars(kind)["__init__"]).parameters)[1:]


def check_names(
    where: str, given: Mapping[str, Any], kind: type, without: Sequence[str] = ()
) -> None:
    """Refuses settings that what is built of them has no name for, or that are set elsewhere."""
    known = [name for name in names_of(kind) if name not in without]
    unknown = [name for name in given if name not in known]
    if unknown:
        raise ValueError(
            f"{where}.{unknown[0]} is no setting of {kind.__name__}, which has {', '.join(known)}"
        )


def _is(value: Any, kind: Any) -> bool:
    if kind is Any:
        return True
    if kind == list[int]:
        return isinstance(value, list) and all(_is(each, int) for each in value)
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, (int, float) if kind is float else kind)
