"""The trading environment: N accounts on one market, one batched TorchRL environment."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any, Literal

import torch
from tensordict import TensorDict, TensorDictBase
from torch import Tensor
from torchrl.data import Composite
from torchrl.envs import EnvBase

from trading_torchrl.data.features import with_features
from trading_torchrl.data.market import Market
from trading_torchrl.data.scaler import Scaler
from trading_torchrl.envs import (
    accounts,
    bar,
    columns,
    draws,
    emission,
    objectives,
    own_reward,
    specs,
    terms,
)
from trading_torchrl.envs import actions as named
from trading_torchrl.envs.compiling import compiled_advance, compiles
from trading_torchrl.envs.memory import Memory
from trading_torchrl.envs.objectives import ACTIVITY_WINDOW
from trading_torchrl.envs.own_reward import OwnReward
from trading_torchrl.envs.packing import Packs, pack, unpack
from trading_torchrl.envs.progress import Progress, check_fit
from trading_torchrl.envs.settings import at_least, first_starts, hybrid_mode, make_rules
from trading_torchrl.envs.specs import observation_names
from trading_torchrl.risk import Limits


class TradingEnv(EnvBase):
    """Accounts that trade a :class:`~trading_torchrl.data.Market`, stepped as one batch ``[N]``.

    A decision sees bars up to the close of t and fills at the open of t + 1. An account holds
    ``assets`` symbols with shared cash; account and episode alone decide, with the seed, which
    symbols it gets and where it starts. Ruin (equity below ``min_trade``) is ``terminated``, the
    end of the episode or of the data ``truncated``. The ledger is float64.

    Keys: ``observation`` float32 ``[N, D]`` (see :attr:`observation_names`), ``action`` ``[N, A]``
    (``[N]`` for one asset's discrete names), ``("next", "reward")`` ``[N, 1]`` (``[N, 5]`` for
    ``objectives``), ``action_mask`` for discrete names, and what ``emit`` asks for. A hybrid
    environment has ``action`` for numbers, ``action_name`` for names, and shows ``("account",
    "mode")`` ``[N, 1]``: 0 where an account acts on the numbers, 1 on the names.

    Args:
        market: what is traded; features are computed if it has none.
        num_envs: number of accounts N.
        actions: ``continuous`` changes a position, smoothed; ``target`` is the wanted share of
            equity; ``discrete`` are the seven names of :mod:`~trading_torchrl.envs.actions`;
            ``hybrid`` has numbers and names, and each episode acts on one of the two.
        short: whether positions may be negative.
        assets: symbols an account holds at once, drawn anew each episode.
        max_position: cap on one position at a trade, as a share of equity.
        fill: ``next_open``, or ``close`` of the bar the decision saw.
        reward: ``growth``, ``log_return``, ``differential_sharpe``, ``professional`` or
            ``objectives``, see :mod:`~trading_torchrl.envs.rewards`; or a pure function from a
            :class:`~trading_torchrl.envs.Bar` to one number an account ``[N]``.
        risk_aversion: lambda of the growth reward; 1 is log growth.
        emit: names of values to emit besides, see :data:`~trading_torchrl.envs.terms.EMITTED`, or
            ``"all"``. What is not asked for is not computed.
        packed: hand the emitted values over in one tensor a type, which spares a collector or a
            buffer most of their cost; :meth:`give_names` names them again.
        scaler: standardises the features; fit it on the training split.
        window: offer the last ``window`` bars as an index instead of features in the observation;
            :class:`~trading_torchrl.envs.transforms.MarketWindow` rebuilds them.
        episode_bars: length of an episode; ``None`` runs from the first bar to the last.
        random_start: draw the first bar of each episode, else begin at the first possible one.
        random_symbols: draw the symbols of each episode, else account i trades the symbols from
            i x assets on (wrapping round).
        cash: money at the start of an episode.
        commission: share of the traded value; likewise ``slippage``, and ``spread`` (a trade pays
            half of it).
        borrow_rate: interest a year on what is short and on cash below zero.
        leverage: largest gross exposure at a trade, as a multiple of equity.
        maintenance: margin below which an account is liquidated, as a share of gross exposure.
        min_trade: smaller trades are not made (full closes are).
        smoothing: window of the moving average of continuous actions; 1 is none.
        mode: which actions a hybrid environment's episodes act on: ``continuous``, ``discrete`` or
            ``alternate`` (the default: account + episode decides, even ones are continuous).
        limits: see :class:`~trading_torchrl.risk.Limits`.
        activity_window: actions the activity objective looks back on.
        seed: of symbols and starts.
        first_account: number of the first account; account k of a batch is account 0 of one with
            ``first_account=k``.
        compiled: compile the step's core; ``None`` where a C++ compiler is found. Compiled and
            eager agree to 1e-12, not bit for bit: keep to one within a run.
        device: where tables and accounts live.

    Example:
        >>> from trading_torchrl.data import synthetic_market
        >>> market = synthetic_market(symbols=5, bars=2_000, seed=0)
        >>> env = TradingEnv(market, num_envs=4, compiled=False)
        >>> rollout = env.rollout(500)
        >>> rollout["next", "account", "equity"][:, -1].shape
        torch.Size([4, 1])
    """

    def __init__(
        self,
        market: Market,
        num_envs: int = 1,
        *,
        actions: Literal["continuous", "target", "discrete", "hybrid"] = "continuous",
        short: bool = False,
        assets: int = 1,
        max_position: float = 0.15,
        fill: Literal["next_open", "close"] = "next_open",
        reward: str | OwnReward = "growth",
        risk_aversion: float = 67.0,
        emit: Sequence[str] | Literal["all"] = ("equity",),
        packed: bool = False,
        scaler: Scaler | None = None,
        window: int | None = None,
        episode_bars: int | None = 500,
        random_start: bool = True,
        random_symbols: bool = True,
        cash: float = 10_000.0,
        commission: float = 2e-4,
        slippage: float = 1e-4,
        spread: float = 0.0,
        borrow_rate: float = 0.0,
        leverage: float = 1.0,
        maintenance: float = 0.25,
        min_trade: float = 25.0,
        smoothing: int = 3,
        mode: Literal["continuous", "discrete", "alternate"] | None = None,
        limits: Limits | None = None,
        activity_window: int = ACTIVITY_WINDOW,
        seed: int = 0,
        first_account: int = 0,
        compiled: bool | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        device = torch.device(device)
        at_least("num_envs", num_envs, 1)
        at_least("first_account", first_account, 0)
        if market.features is None:
            market = with_features(market)
        first, last = first_starts(market, window, episode_bars)
        rules = make_rules(
            market,
            actions=actions,
            short=short,
            assets=assets,
            max_position=max_position,
            fill=fill,
            reward=reward,
            risk_aversion=risk_aversion,
            emit=emit,
            window=window,
            episode_bars=episode_bars,
            cash=cash,
            commission=commission,
            slippage=slippage,
            spread=spread,
            borrow_rate=borrow_rate,
            leverage=leverage,
            maintenance=maintenance,
            min_trade=min_trade,
            smoothing=smoothing,
            limits=limits,
            activity_window=activity_window,
        )
        assert market.features is not None
        features = market.features
        if scaler is not None:
            features = scaler(features, market.feature_names)

        super().__init__(device=device, batch_size=torch.Size([num_envs]))
        self._whole = {"batch_size": self.batch_size, "device": device}
        self.market, self.rules, self.window = market, rules, window
        self.first_start, self.last_start = first, last
        self._starts = last - first + 1 if random_start else 1
        self._random_symbols = random_symbols
        self._seed = seed
        self._account = torch.arange(first_account, first_account + num_envs, device=device)

        # Symbol after symbol, so that one index finds a bar and a window is one stretch of rows.
        def by_symbol(names: tuple[str, ...]) -> Tensor:
            found = [columns.column(market, name, fill) for name in names]
            return torch.stack(found, -1).transpose(0, 1).flatten(0, 1).to(device)

        self._prices = by_symbol(rules.columns)
        self.table = features.transpose(0, 1).flatten(0, 1).contiguous().to(device)
        self._seen = self.table if window is None else self.table[:, :0]
        self._measures = by_symbol(rules.measures).float() if rules.measures else self._seen[:, :0]
        self._days = market.days.to(device)

        self.compiled = compiles() if compiled is None else compiled
        if self.compiled and callable(rules.reward):
            reads = (*rules.columns, *rules.measures)
            why = own_reward.traceable(rules.reward, assets, reads)
            if why:
                said = f"reward {own_reward.name_of(rules.reward)} cannot be compiled: {why}"
                warnings.warn(f"{said}; the environment steps uncompiled", stacklevel=2)
                self.compiled = False
        self._advance = (
            compiled_advance(rules, num_envs, device)
            if self.compiled
            else partial(bar.advance, rules=rules)
        )
        self._now = Progress(self._account, hybrid_mode(actions, mode))

        names = observation_names(rules, market.feature_names, window is not None)
        self.observation_names = names
        self.action_spec = specs.action_spec(rules, num_envs, device)
        self.reward_spec = specs.reward_spec(rules, num_envs, device)
        self.full_done_spec = specs.done_spec(num_envs, device)
        self.layout = emission.layout(rules.emit, assets) if packed else {}
        self.observation_spec = specs.observation_spec(
            rules, num_envs, len(names), len(market.symbols), self.layout, device
        )
        shown = self.observation_spec.items()
        self._groups = tuple(key for key, spec in shown if isinstance(spec, Composite))

    @property
    def account_bytes(self) -> float:
        """Memory one account takes once it was reset, whatever the market's size."""
        memory = self._now.memory
        tensors = [*self._now.held.values(), *([memory.rows] if memory else [])]
        return sum(each.numel() * each.element_size() for each in tensors) / self.batch_size[0]

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDictBase:
        mask = None if tensordict is None else tensordict.get("_reset", None)
        if mask is None or not self._now.held:
            mask = torch.ones(self.batch_size, dtype=torch.bool, device=self.device)
        mask = mask.reshape(self.batch_size)
        self._now.episode = self._now.episode + mask
        n, now = self.batch_size[0], self._now
        symbol, start = self._draw()
        fresh = accounts.new_accounts(
            self.rules, symbol, start, self._prices, self._days, self._modes()
        )
        packed = accounts.held(fresh)
        now.held = accounts.merge(mask, packed, now.held) if now.held else packed
        if now.memory is not None:
            now.memory.forget(mask)
        elif self.rules.judges:
            windows = objectives.windows(self.rules.activity_window, self.rules.assets)
            now.memory = Memory(windows, n, self.device)
        shown, emitted = accounts.look(now.accounts, self._measures, self._seen, self.rules)
        for flag in ("done", "terminated", "truncated"):
            shown[flag] = torch.zeros((n, 1), dtype=torch.bool, device=self.device)
        for name in self.rules.emit:
            for key in terms.EMITTED[name]:
                if key not in emitted:
                    width = terms.width_of(key, self.rules.assets)
                    emitted[key] = torch.zeros((n, width), device=self.device)
        return self._assemble(shown, pack(terms.wide(emitted)))

    def _draw(self) -> tuple[Tensor, Tensor]:
        """Symbols [N, A] and first bar [N] of every account's current episode."""
        a, symbols = self.rules.assets, len(self.market.symbols)
        key = (self._seed, self._account, self._now.episode)
        start = self.first_start + draws.draw(self._starts, *key, stream=0)
        if self._random_symbols:
            return draws.draw_subset(a, symbols, *key, stream=1), start
        offsets = torch.arange(a, device=self.device)
        return (self._account[:, None] * a + offsets) % symbols, start

    def _modes(self) -> Tensor | None:
        """What every hybrid account's current episode acts on [N]."""
        mode = self._now.mode
        if mode == "alternate":
            return (self._account + self._now.episode) % 2
        if mode is None:
            return None
        number = named.DISCRETE if mode == "discrete" else named.CONTINUOUS
        return torch.full_like(self._account, number)

    def next_mode(self, mode: Literal["continuous", "discrete", "alternate"]) -> None:
        """The mode of all episodes that begin from now on; those that are under way keep theirs.

        For hybrid environments; ``mode`` is what the argument of that name takes.
        """
        self._now.mode = hybrid_mode(self.rules.actions, mode)

    def _asked(self, tensordict: TensorDictBase) -> dict[str, Tensor]:
        """The actions by key, ``[N, A]`` each; a hybrid policy may leave one out."""
        shape = (self.batch_size[0], self.rules.assets)
        if self.rules.actions != "hybrid":
            return {"action": tensordict.get("action").reshape(shape)}
        asked = {}
        for key, nothing in (("action", torch.nan), ("action_name", -1)):
            given = tensordict.get(key, None)
            if given is None:
                given = torch.full(shape, nothing, device=self.device)
            asked[key] = given.reshape(shape)
        return asked

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        asked, now = self._asked(tensordict), self._now
        remembered = None if now.memory is None else now.memory.rows
        with torch.no_grad():
            changed, latest, shown, emitted = self._advance(
                now.held, remembered, asked, self._prices, self._measures, self._seen, self._days
            )
        stepping = tensordict.get("_step", None)
        if stepping is not None:
            stepping = stepping.reshape(self.batch_size)
            # Nobody reads the actions of accounts that sit the step out.
            shown["ends"] = torch.where(stepping[:, None], shown["ends"], bar.GOES_ON)
        self._flag(shown, asked)
        if callable(self.rules.reward):
            counts = torch.ones_like(self._account, dtype=torch.bool)
            own_reward.refuse_not_finite(
                self.rules.reward, shown["reward"], now.accounts["bar"],
                counts if stepping is None else stepping,
            )  # fmt: skip
        after = now.held | changed
        if stepping is not None:
            after = accounts.merge(stepping, after, now.held)
        now.held = after
        if now.memory is not None:
            assert latest is not None
            now.memory.remember(latest, stepping)
        seen = self._assemble(shown, emitted)
        return seen if stepping is None else self._stand_still(stepping, seen, tensordict)

    def rand_action(self, tensordict: TensorDictBase | None = None) -> TensorDictBase:
        """Random actions; of names, those that the mask in ``tensordict`` allows."""
        found = super().rand_action(tensordict)
        mask = None if tensordict is None else tensordict.get("action_mask", None)
        if not self.rules.named or mask is None:
            return found
        key = "action" if self.rules.actions == "discrete" else "action_name"
        drawn = torch.multinomial(mask.reshape(-1, len(named.NAMES)).float(), 1)
        return found.set(key, drawn.view(found.get(key).shape))

    def _flag(self, shown: dict[str, Tensor], asked: dict[str, Tensor]) -> None:
        """Turns how the bar ended into flags; refuses actions that could not be read."""
        ends = shown.pop("ends")
        done = ends != bar.GOES_ON
        self._now.any_ended = bool(done.any())
        if self._now.any_ended:
            unread = ends == bar.UNREADABLE
            if unread.any():
                self._refuse(asked, int(unread.nonzero()[0, 0]))
            shown["terminated"] = ends == bar.TERMINATED
            shown["truncated"] = ends == bar.TRUNCATED
        else:
            shown["terminated"] = torch.zeros_like(done)
            shown["truncated"] = torch.zeros_like(done)
        shown["done"] = done

    def _refuse(self, asked: dict[str, Tensor], account: int) -> None:
        state, key = self._now.accounts, "action"
        discrete = self.rules.actions == "discrete"
        if self.rules.actions == "hybrid" and int(state["mode"][account]) == named.DISCRETE:
            discrete, key = True, "action_name"
        allowed = f"whole numbers from 0 to {len(named.NAMES) - 1}" if discrete else "numbers"
        raise ValueError(
            f"account {account} got the {key} {asked[key][account].tolist()} at bar"
            f" {int(state['bar'][account])}; {key}s are {allowed}."
            " All accounts are as they were before the step"
        )

    def _stand_still(
        self, stepping: Tensor, after: TensorDictBase, before: TensorDictBase
    ) -> TensorDictBase:
        """Accounts that sit a step out show what they showed before, and no reward."""

        def pick(key: Any, value: Tensor) -> Tensor:
            kept = None if key == "reward" else before.get(key, None)
            kept = torch.zeros_like(value) if kept is None else kept
            return torch.where(stepping.view(-1, *[1] * (value.ndim - 1)), value, kept)

        return after.named_apply(pick, nested_keys=True)

    def step_and_maybe_reset(
        self, tensordict: TensorDictBase
    ) -> tuple[TensorDictBase, TensorDictBase]:
        """One step and, where an episode ended, a reset; the loop of collectors and rollouts.

        The same as TorchRL's, without looking at every key of every step.
        """
        after = self._step(tensordict)
        seen = dict((self._fresh(after) if self._now.any_ended else after).items())
        seen.pop("reward", None)
        kept = {key: value for key, value in tensordict.items() if key not in seen}
        for key in ("next", "reward", "_reset"):
            kept.pop(key, None)
        following = self._wrap({key: self._own(value) for key, value in (kept | seen).items()})
        tensordict.set("next", after)
        return tensordict, following

    def _wrap(self, entries: dict[str, Any]) -> TensorDict:
        return TensorDict._new_unsafe(entries, **self._whole)

    def _own(self, value: Any) -> Any:
        """Nested entries are containers of their own, so that writing to one leaves the other."""
        if type(value) is TensorDict:
            return self._wrap(dict(value.items()))
        return value.copy() if isinstance(value, TensorDictBase) else value

    def _fresh(self, after: TensorDictBase) -> TensorDictBase:
        """What accounts see after the ended among them were reset; the others keep their bar."""
        ended = after.get("done")
        seen = self._reset(TensorDict({"_reset": ended}, batch_size=self.batch_size))
        for name in () if self.layout else self.rules.emit:
            if name in terms.FLOWS or name == "objectives":
                for key in terms.EMITTED[name]:
                    seen.set(key, torch.where(ended, seen.get(key), after.get(key)))
        for label in self.layout:
            # What is no flow is the same in both for accounts that go on.
            key, over = ("emitted", label), ended[..., None]
            seen.set(key, torch.where(over, seen.get(key), after.get(key)))
        return seen

    def _assemble(self, shown: dict[str, Tensor], emitted: Packs[terms.Key]) -> TensorDict:
        groups: dict[str, dict[str, Tensor]] = {group: {} for group in self._groups}
        if self.layout:
            groups["emitted"], named_values = emission.packed(emitted)
        else:
            named_values = unpack(emitted)
        for (group, name), value in named_values.items():
            groups[group][name] = value
        nested = {group: self._wrap(leaves) for group, leaves in groups.items()}
        return self._wrap({**shown, **nested})

    def give_names(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Sets packed values under the keys they have unpacked, in the root and in ``next``.

        They are views of what was packed, so a whole rollout costs no more than a step.
        """
        emission.give_names(tensordict, self.layout)
        return tensordict

    def to(self, device: torch.device | str) -> TradingEnv:
        """Only to where it is: tables and accounts live where the environment was built."""
        if torch.device(device).type != self.device.type:
            raise ValueError(
                f"this environment lives on {self.device}; build one with device={str(device)!r}"
            )
        return self

    def draw_alike(self, copies: int) -> None:
        """Makes the batch so many copies of its first accounts: these share symbols and starts.

        Episodes are counted anew.
        """
        self._account = draws.alike(self._account, copies)
        self._set_seed(self._seed)

    def _set_seed(self, seed: int | None) -> None:
        self._seed = 0 if seed is None else seed
        self._now.episode = torch.full_like(self._account, -1)

    def get_extra_state(self) -> dict[str, Any]:
        """Accounts and draws as they stand: with them an environment goes on bit for bit."""
        return {"settings": self._settings(), "seed": self._seed, **self._now.state()}

    def _settings(self) -> dict[str, Any]:
        """What accounts depend on; those saved under other settings would mean something else."""
        market = self.market
        return {
            **asdict(replace(self.rules, reward=own_reward.name_of(self.rules.reward))),
            "compiled": self.compiled,
            "accounts": self._account.tolist(),
            "symbols": list(market.symbols),
            "first_bar": int(market.timestamps[0]),
            "last_bar": int(market.timestamps[-1]),
        }

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Goes on where :meth:`get_extra_state` left off."""
        check_fit(state["settings"], self._settings())
        self._now.restore(state)
        self._seed = state["seed"]
