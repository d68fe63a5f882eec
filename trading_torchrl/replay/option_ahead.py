"""What an agent below options has to know of sampled rows: its option, now and next."""

from __future__ import annotations

from tensordict import TensorDictBase, unravel_key
from tensordict.utils import NestedKey
from torchrl.envs import Transform

from trading_torchrl.envs.running_option import ENTERED, INDEX, LASTED, STEPS
from trading_torchrl.modules.carried_out import FACTOR, OFFSET
from trading_torchrl.modules.option_policy import CODE, OptionPolicy

MADE: tuple[NestedKey, ...] = (CODE, ("next", *CODE), ("next", *OFFSET), ("next", *FACTOR))
"""Keys that need not be stored."""


class OptionAhead(Transform):
    """Decides anew, where sampled rows lead, which option goes on or is chosen there.

    So that an agent is not judged by what another controller chose, long ago. For rows that have,
    in ``next``, all that :class:`~trading_torchrl.modules.OptionPolicy` reads; after
    :class:`~trading_torchrl.envs.Signals`. Writes ``("option", "code")`` in the root, and in
    ``next`` what the policy decides.

    Args:
        policy: decides.
    """

    def __init__(self, policy: OptionPolicy) -> None:
        super().__init__()
        self._policy = [policy]  # it learns elsewhere: this is no part of it

    @property
    def stored(self) -> tuple[NestedKey, ...]:
        """Keys that it needs of rows, but for what the controller sees and signals."""
        state = (INDEX, STEPS, ENTERED, LASTED)
        shown = (key for key in self._policy[0].shown if key != "signals")
        then = [unravel_key(("next", key)) for key in (*state, *shown)]
        return (INDEX, STEPS, OFFSET, FACTOR, *then)

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """A sample, with options."""
        (policy,) = self._policy
        index, steps = (tensordict.get(key)[..., 0] for key in (INDEX, STEPS))
        tensordict = tensordict.set(CODE, policy.code(index, steps))
        return tensordict.set("next", policy.decide(tensordict.get("next")))
