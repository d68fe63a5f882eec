"""Actors and critics that choose among a few actions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensordict.nn import TensorDictModule
from tensordict.utils import NestedKey
from torch.distributions import Categorical
from torchrl.modules import MaskedCategorical, ProbabilisticActor

from trading_torchrl.modules.epsilon_greedy import EpsilonGreedy
from trading_torchrl.modules.networks import HIDDEN, MLP, Network, ensemble_of

MASK = "action_mask"
"""Which choices are allowed, bool ``[*, choices]``; not seen by networks."""

NEVER = -1e9
"""Logit of what is not allowed: its probability is exactly 0, and nothing becomes NaN."""


def make_discrete_actor(
    inputs: int,
    choices: int,
    hidden: Sequence[int] = HIDDEN,
    in_keys: Sequence[NestedKey] = ("observation",),
    *,
    network: Network = MLP,
) -> ProbabilisticActor:
    """A policy that chooses: reads ``in_keys``, writes ``action`` int64 ``[*]``.

    Args:
        inputs: sum of the inputs' widths.
        choices: number of actions.
        hidden: widths of the hidden layers.
        in_keys: what it reads; the first has one dimension more than the batch. What
            ``action_mask`` does not allow has probability 0, if that key is among them.
        network: what it is made of.

    Example:
        >>> import torch
        >>> from tensordict import TensorDict
        >>> actor = make_discrete_actor(5, choices=3, hidden=[64], in_keys=["observation", MASK])
        >>> mask = torch.tensor([[False, True, False]])
        >>> actor(TensorDict({"observation": torch.zeros(1, 5), MASK: mask}, [1]))["action"]
        tensor([1])
    """
    module = TensorDictModule(
        network(inputs, hidden, _several(choices)), in_keys=_seen(in_keys), out_keys=["logits"]
    )
    if MASK not in in_keys:
        return ProbabilisticActor(module, in_keys=["logits"], distribution_class=Categorical)
    return ProbabilisticActor(
        module,
        in_keys={"logits": "logits", "mask": MASK},
        distribution_class=MaskedCategorical,
        distribution_kwargs={"neg_inf": NEVER},
    )


def make_q_actor(
    inputs: int,
    choices: int,
    hidden: Sequence[int] = HIDDEN,
    in_keys: Sequence[NestedKey] = ("observation",),
    *,
    epsilon: float = 0.1,
    members: int = 1,
    network: Network = MLP,
) -> ProbabilisticActor:
    """A policy that does what it values most: reads ``in_keys``, writes ``action`` int64 ``[*]``.

    Its values ``[*, members, choices]`` stand in ``action_value``.

    Args:
        inputs: sum of the inputs' widths.
        choices: number of actions.
        hidden: widths of the hidden layers.
        in_keys: what it reads; the first has one dimension more than the batch. What
            ``action_mask`` does not allow is never chosen, if that key is among them.
        epsilon: share of random choices where it explores.
        members: networks whose values' mean it follows.
        network: what they are made of.

    Example:
        >>> import torch
        >>> from tensordict import TensorDict
        >>> actor = make_q_actor(inputs=5, choices=3, hidden=[64, 64])
        >>> actor(TensorDict({"observation": torch.zeros(4, 5)}, [4]))["action"].shape
        torch.Size([4])
    """
    if not 0 <= epsilon <= 1:
        raise ValueError(f"epsilon must lie in [0, 1], got {epsilon}")
    values = make_discrete_critics(
        inputs, choices, hidden, in_keys, members=members, network=network
    )
    read: dict[str, Any] = {"action_value": "action_value"}
    if MASK in in_keys:
        read["mask"] = MASK
    return ProbabilisticActor(
        values,
        in_keys=read,
        distribution_class=EpsilonGreedy,
        distribution_kwargs={"epsilon": epsilon},
    )


def make_discrete_critics(
    inputs: int,
    choices: int,
    hidden: Sequence[int] = HIDDEN,
    in_keys: Sequence[NestedKey] = ("observation",),
    *,
    members: int = 2,
    network: Network = MLP,
) -> TensorDictModule:
    """An ensemble of critics that value every choice: reads ``in_keys`` (but ``action_mask``).

    Writes ``action_value`` ``[*, members, choices]``. Perceptrons are one product.
    """
    critics = ensemble_of(network, members, inputs, hidden, _several(choices))
    return TensorDictModule(critics, in_keys=_seen(in_keys), out_keys=["action_value"])


def _seen(in_keys: Sequence[NestedKey]) -> list[NestedKey]:
    return [key for key in in_keys if key != MASK]


def _several(choices: int) -> int:
    if choices < 2:
        raise ValueError(f"there must be at least 2 choices, got {choices}")
    return choices
