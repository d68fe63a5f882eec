"""Settings of a recipe: composed, chosen, checked against the loss, and as a run left them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra import compose
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf, open_dict

SAVED = "config.yaml"
CHOSEN = ("market", "env", "loss", "network", "her")
"""Folders of ``conf`` of which a run's settings say which file was taken, as ``choices``."""

SHARED = (
    "critics", "gamma", "temperature.start", "temperature.least", "temperature.entropy",
    "lmbda", "entropy", "std",
)  # fmt: skip
"""Settings that files in ``conf/loss`` may read, each what its loss has a use for."""

ALONE = ("data", "init", "resume", "stop_at", "webhook", "mlflow")
"""What settings may leave open for itself."""

LEARN_WITH = "learn_with"


def composed(recipe: str, overrides: Sequence[str]) -> tuple[DictConfig, dict[str, str]]:
    """All settings, and which files they come from.

    One that learns from another run's data has that run's market and environment, and what learns
    best with its loss there.
    """
    config, choices = _composed(recipe, overrides)
    if "data" in config and not OmegaConf.is_missing(config, "data"):
        earlier = load_config(Path(config.data))
        theirs = dict(earlier.get("choices") or {})
        best = f"{choices['loss']}_{theirs.get('env')}"
        if best in GlobalHydra.instance().config_loader().get_group_options(LEARN_WITH):
            config, _ = _composed(recipe, [*overrides, f"+{LEARN_WITH}@_global_={best}"])
        with open_dict(config):  # a network may bring a market along
            config.market = {"report_split": config.market.report_split}
            leave_open_to(earlier, config)
        own = {name: choices[name] for name in ("loss", "network") if name in choices}
        choices = theirs | own
    return config, choices


def leave_open_to(earlier: DictConfig, config: DictConfig) -> None:
    """What settings leave open is as an earlier run has it."""
    for name in ("network", *config):
        missing = name not in config or OmegaConf.is_missing(config, name)
        if name not in ALONE and (missing or config[name] is None):
            config[name] = earlier[name]


def _composed(recipe: str, overrides: Sequence[str]) -> tuple[DictConfig, dict[str, str]]:
    config = compose(recipe, list(overrides), return_hydra_config=True)
    choices = chosen(config.hydra)
    with open_dict(config):
        del config["hydra"]
    return config, choices


def chosen(hydra: Any) -> dict[str, str]:
    """Which files of :data:`CHOSEN` were taken, by what Hydra says of itself."""
    there = hydra.runtime.choices
    return {name: there[name] for name in CHOSEN if there.get(name)}


def load_config(folder: Path) -> DictConfig:
    """Settings as an earlier run left them in its folder."""
    path = folder / SAVED
    if not path.exists():
        raise SystemExit(f"{folder} is not a run's folder: it has no {SAVED}")
    loaded = OmegaConf.load(path)
    assert isinstance(loaded, DictConfig)
    return loaded


def check_read(config: DictConfig, overrides: Sequence[str]) -> None:
    """Refuses what is given of :data:`SHARED` and the chosen loss does not read."""
    loss: Any = OmegaConf.to_container(config.loss, resolve=False)
    read = re.findall(r"\$\{([\w.]+)\}", str(loss))
    for override in overrides:
        for name in _set_by(override):
            if name in SHARED and name not in read:
                kind = loss["_target_"].rsplit(".")[-1]
                raise SystemExit(
                    f"{override}: {kind} does not read {name}, so that nothing would change; it has"
                    f" {own_settings(loss) or 'no settings of its own'}"
                )


def own_settings(loss: Mapping[str, Any]) -> str:
    """What can be set of a loss, as overrides."""
    named = {f"loss.{name}": value for name, value in leaves(loss) if "_target_" not in name}
    return ", ".join(f"{name}={value}" for name, value in named.items())


def leaves(settings: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Names with dots, and what stands there."""
    if isinstance(settings, Mapping):
        for key, value in settings.items():
            yield from leaves(value, f"{name}.{key}" if name else str(key))
    else:
        yield name, settings


def _set_by(override: str) -> list[str]:
    """Names with dots."""
    parsed = OverridesParser.create().parse_override(override)
    value = None if parsed.is_delete() else parsed.value()
    return [name for name, _ in leaves({parsed.key_or_group: value})]


def key_of(override: str) -> str:
    """What an override sets."""
    return override.lstrip("+~").partition("=")[0].partition("@")[0]


def value_of(settings: Any, name: str) -> Any:
    """What stands under a name with dots; None where there is nothing."""
    for part in name.split("."):
        settings = settings.get(part) if isinstance(settings, Mapping) else None
    return settings
