"""A policy that carries options out: ends them, chooses the next, acts by the one that runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, ClassVar, Literal

import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import TensorDictModule, TensorDictModuleBase
from tensordict.utils import NestedKey
from torch import Tensor

from trading_torchrl.envs.compiling import compiles
from trading_torchrl.envs.running_option import (
    ALLOWED,
    ENTERED,
    INDEX,
    LASTED,
    LOG_PROB,
    STEPS,
)
from trading_torchrl.modules.carried_out import FACTOR, OFFSET
from trading_torchrl.modules.option_turns import Turn, chosen, code, compiled_for, does, turn
from trading_torchrl.modules.options import (
    EQUITY,
    SHARE,
    UNREALISED,
    Levels,
    Option,
    Scene,
    allowed,
    check_options,
    draw,
    ends,
    scene_of,
)

ENDED, CODE = ("option", "ended"), ("option", "code")
LOGITS, VALUES = ("option", "logits"), ("option", "values")
END_LOGITS = ("option", "end_logits")
STATE = (INDEX, STEPS, ENTERED, LASTED)


class OptionPolicy(TensorDictModuleBase):
    """Carries options out, one an account.

    At each bar the option that runs may end; where it does, and in a new episode, the controller
    chooses among those that may start. Then the option acts. While it explores, ends and choices
    are drawn; else the likeliest option is chosen, and one ends when it was as likely as not to
    have ended by then.

    Reads what the controller sees, ``signals``, ``account`` (``share``, ``equity`` and
    ``unrealised``) and the state of :class:`~trading_torchrl.envs.running_option.RunningOption`,
    and writes that anew. Writes besides, ``[*, 1]`` where nothing else is said:

    - ``action``, float32: ``offset + factor x`` what an agent wants;
    - ``("option", "offset")`` and ``("option", "factor")``: the part of the option's rule, and how
      much of it the agent may do;
    - ``("option", "code")`` ``[*, K + 1]``: what the agent sees of the option, which one it is and
      how much of its time is over;
    - ``("option", "ended")``, int64: what became of the option before, 0 it goes on, 1 time was up,
      2 its purpose was met;
    - ``("option", "allowed")``, bool ``[*, K]``: which could be chosen;
    - ``("option", "log_prob")``: of the choice, 0 where there was none.

    Args:
        options: K of them; in every scene at least one may start.
        controller: reads what it sees ``[*, ...]``, writes ``("option", "logits")`` ``[*, K]``;
            and ``("option", "end_logits")`` ``[*, K]`` where it learns when options end, which then
            takes the place of time between their shortest and longest durations.
        cap: largest position, as a share of equity.
        action: ``rule``; ``scaled``, the agent's times the option's scale; or ``blend`` of both.
        actor: the agent, which writes ``action`` as :func:`carried_out` makes it; not for ``rule``.
        blend: part of the agent's action in a blend.
        temperature: of the choice.
        compiled: whether what the options compute is compiled, where a compiler is found; takes a
            while at first.
    """

    temperature: Tensor

    shown: ClassVar[tuple[NestedKey, ...]] = ("signals", SHARE, EQUITY, UNREALISED)
    """keys of what scenes are made of"""

    needed: ClassVar[str] = (
        "emit=['index', 'share', 'equity', 'unrealised'], and the transforms Signals and"
        " RunningOption"
    )
    """what an environment must have for them"""

    def __init__(
        self,
        options: Sequence[Option],
        controller: TensorDictModule,
        *,
        cap: float,
        action: Literal["rule", "scaled", "blend"] = "rule",
        actor: TensorDictModule | None = None,
        blend: float = 0.5,
        temperature: float = 1.0,
        compiled: bool = False,
    ) -> None:
        super().__init__()
        if action not in ("rule", "scaled", "blend"):
            raise ValueError(f"action must be rule, scaled or blend, got {action!r}")
        if (actor is None) != (action == "rule"):
            raise ValueError(
                f"action={action} needs an actor" if actor is None else "rules have no use for one"
            )
        if actor is not None and OFFSET not in actor.in_keys:
            raise ValueError(
                "the actor must be made carried_out(actor), which options work through"
            )
        if not 0 <= blend <= 1:
            raise ValueError(f"blend must lie in [0, 1], got {blend}")
        if not 0 < temperature < float("inf"):
            raise ValueError(f"temperature must be above 0, got {temperature}")
        check_options(options)
        if not 0 < cap < float("inf"):
            raise ValueError(f"cap must be above 0, got {cap}")
        self.options, self.cap = list(options), cap
        self.compiled = compiled and compiles()
        self.controller, self.actor = controller, actor
        self.part = {"rule": 0.0, "scaled": 1.0, "blend": blend}[action]
        self.register_buffer("temperature", torch.tensor(float(temperature)))
        scales = torch.tensor([option.scale for option in self.options])
        self.register_buffer("factors", self.part * scales, persistent=False)
        longest = torch.tensor([float(option.most) for option in self.options])
        self.register_buffer("longest", longest, persistent=False)
        written = (CODE, OFFSET, FACTOR)
        acts = () if actor is None else [key for key in actor.in_keys if key not in written]
        seen: dict[NestedKey, None] = dict.fromkeys([*controller.in_keys, *acts, *self.shown])
        self.in_keys = [*seen, *STATE]
        self.out_keys = ["action", *written, ENDED, ALLOWED, LOG_PROB, *STATE]

    @torch.no_grad()
    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Ends, chooses, acts."""
        tensordict = self.decide(tensordict)
        if self.actor is None:
            return tensordict.set("action", self.taken(tensordict.get(OFFSET)))
        return self.actor(tensordict)

    @torch.no_grad()
    def decide(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Ends and chooses: all but the action."""
        turned, done = compiled_for(tensordict.shape) if self.compiled else (turn, does)
        shown, state = self._shown(tensordict), self._state(tensordict)
        learned = self._learned_ends(tensordict, state[0])
        now = turned(self.options, self.seen, shown, state, learned, draw(state[-1]))
        if bool(now.stuck):
            raise ValueError(
                "no option may start in some scene; give one that always may, such as WAIT"
            )
        index, log_prob = self._choose(tensordict, state[0], now)
        state = [index, now.steps, now.entered]
        acts = done(self.options, self.seen, shown, state, self.part, self.factors, self.longest)
        column = {
            "index": index, "steps": now.steps, "entered": now.entered,
            "lasted": now.lasted, "ended": now.ended, "log_prob": log_prob,
        }  # fmt: skip
        option = dict(tensordict.get("option").items())
        option |= {name: each.unsqueeze(-1) for name, each in column.items()}
        option |= {**acts._asdict(), "allowed": now.may}
        # All at once: a dozen keys one after the other take as long as the options themselves.
        whole = {"batch_size": tensordict.batch_size, "device": tensordict.device}
        return tensordict.set("option", TensorDict._new_unsafe(option, **whole))

    def taken(self, action: Tensor) -> Tensor:
        """A rule's action ``[*, 1]`` as the environment takes it; a subclass may have another."""
        return action

    def code(self, index: Tensor, steps: Tensor) -> Tensor:
        """What an agent sees of the option ``index`` ``[*]``: ``[*, K + 1]``."""
        return code(index, steps, self.longest)

    def seen(self, shown: Mapping[Any, Any], steps: Tensor, entered: Tensor) -> Scene:
        """A scene of :attr:`shown`; for options of something else than trading a subclass has both.

        It says in :attr:`needed` where they come from, and in :meth:`taken` what its actions are.

        Args:
            shown: what an environment shows, by key.
            steps: bars that the running option has acted on, ``[*]``.
            entered: whether there had been a position since it began, ``[*]``.
        """
        return scene_of(shown, self.cap, steps, entered)

    def _shown(self, tensordict: TensorDictBase) -> dict[NestedKey, Any]:
        """What scenes are made of, by key."""
        found = {key: tensordict.get(key, None) for key in self.shown}
        lacking = [key for key, each in found.items() if each is None]
        if lacking:
            raise self._lacks(lacking[0])
        return {
            key: dict(each.items()) if isinstance(each, TensorDictBase) else each
            for key, each in found.items()
        }

    def _state(self, tensordict: TensorDictBase) -> list[Tensor]:
        """Of the options that run, ``[*]`` each: see :func:`turn`."""
        found = [tensordict.get(key, None) for key in STATE]
        if any(each is None for each in found):
            raise self._lacks(STATE[[each is None for each in found].index(True)])
        return [each[..., 0] for each in found]

    def _lacks(self, key: NestedKey) -> ValueError:
        return ValueError(
            f"options read {key!r}, which is not there: the environment needs {self.needed}"
        )

    def scene(self, tensordict: TensorDictBase) -> Scene:
        """What the running options decide by."""
        _, steps, entered, _ = self._state(tensordict)
        return self.seen(self._shown(tensordict), steps, entered)

    def _at_first(self, tensordict: TensorDictBase) -> Scene:
        """What options begin by."""
        none = torch.zeros(tensordict.shape, dtype=torch.int64, device=tensordict.device)
        return self.seen(self._shown(tensordict), none, none.bool())

    def may(self, tensordict: TensorDictBase) -> Tensor:
        """Which options may start, bool ``[*, K]``; of what an environment shows."""
        return allowed(self.options, self._at_first(tensordict))

    def bounds(self, tensordict: TensorDictBase) -> Tensor:
        """Between what likelihoods running options end, ``[*, 2]``; of what an environment shows.

        The same twice where nothing learns when they end.
        """
        index = tensordict.get(INDEX)[..., 0].clamp(min=0)
        found = ends(self.options, self.scene(tensordict), index)
        learns = END_LOGITS in self.controller.out_keys
        both = (found.least, found.most) if learns else (found.timed, found.timed)
        return torch.stack(both, -1)

    def alike(self, tensordict: TensorDictBase) -> Tensor:
        """Which options would do what was done, where rules act, bool ``[*, K]``; of rows of steps.

        The one that ran, and those that may start there, as they act when they begin.
        """
        scene = self._at_first(tensordict)
        rules = torch.stack([option.act(scene) for option in self.options], -1).float()
        found = allowed(self.options, scene) & (rules == tensordict.get(OFFSET))
        return found.scatter(-1, tensordict.get(INDEX), True)

    def get_extra_state(self) -> dict[str, Any]:
        """What options are these, and their levels: they were chosen on the training split."""
        return {each.name: asdict(each.levels) if each.levels else None for each in self.options}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Goes on with the levels of :meth:`get_extra_state`."""
        names = [each.name for each in self.options]
        if list(state) != names:
            raise ValueError(
                f"the saved controller chooses among {', '.join(state)}, this one among"
                f" {', '.join(names)}: build it with the same options, in the same order"
            )
        for option, levels in zip(self.options, state.values(), strict=True):
            option.levels = None if levels is None else Levels(**levels)

    def _learned_ends(self, tensordict: TensorDictBase, index: Tensor) -> Tensor | None:
        """How likely the options ``index`` ``[*]`` end, where that is learned."""
        if END_LOGITS not in self.controller.out_keys:
            return None
        logits = self._asked(tensordict, slice(None))[END_LOGITS]
        return logits.gather(-1, index.clamp(min=0)[..., None])[..., 0].sigmoid()

    def _asked(
        self, tensordict: TensorDictBase, rows: tuple[Tensor, ...] | slice
    ) -> dict[NestedKey, Tensor]:
        """What the controller says of what it sees in these rows."""
        controller, training = self.controller, self.controller.training
        if training:  # what it leaves out while it learns it must not forget to act by
            controller.eval()
        seen = [tensordict.get(key)[rows] for key in controller.in_keys]
        if type(controller) is TensorDictModule:  # without what is around it
            said = controller.module(*seen)
        else:
            of_keys = dict(zip(controller.in_keys, seen, strict=True))
            found = controller(TensorDict(of_keys, batch_size=len(seen[0])))
            said = [found.get(key) for key in controller.out_keys]
        if training:
            controller.train()
        said = said if isinstance(said, tuple | list) else (said,)
        return dict(zip(controller.out_keys, said, strict=True))

    def _choose(
        self, tensordict: TensorDictBase, index: Tensor, now: Turn
    ) -> tuple[Tensor, Tensor]:
        """The options that run then, and the log probabilities of the choices, ``[*]`` each."""
        rows = now.chooses.nonzero(as_tuple=True)
        log_prob = torch.zeros_like(now.lasted)
        if not len(rows[0]):
            return index, log_prob
        logits = self._asked(tensordict, rows)[LOGITS] / self.temperature
        another, likely = chosen(logits, now.may[rows])
        return index.index_put(rows, another), log_prob.index_put_(rows, likely)
