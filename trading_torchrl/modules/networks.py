"""Networks of the agents: perceptrons, ensembles of them as one product, actors and critics."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from tensordict.nn import TensorDictModule
from tensordict.utils import NestedKey
from torch import Tensor, nn
from torchrl.data import Bounded
from torchrl.modules import ProbabilisticActor

from trading_torchrl.modules.noisy_tanh import NoisyTanh
from trading_torchrl.modules.squashed_normal import SquashedNormal

HIDDEN = (256, 256, 128)
LOG_SCALE = (-5.0, 2.0)

Network = Callable[[int, Sequence[int], int], nn.Module]
"""What actors and critics are made of, from inputs, hidden and outputs as :class:`MLP` has them."""


def joined(inputs: Sequence[Tensor]) -> Tensor:
    """Inputs ``[*batch, ...]`` side by side, ``[*batch, D]``; the first has one dimension more."""
    batch = inputs[0].ndim - 1
    parts = [each if each.ndim == batch + 1 else each.flatten(batch) for each in inputs]
    return parts[0] if len(parts) == 1 else torch.cat(parts, -1)


def _sizes(inputs: int, hidden: Sequence[int], outputs: int) -> list[tuple[int, int]]:
    widths = [inputs, *hidden, outputs]
    if min(widths) < 1:
        raise ValueError(f"widths must be at least 1, got {widths} (inputs, hidden..., outputs)")
    return list(pairwise(widths))


class MLP(nn.Module):
    """A perceptron with ReLU over all its inputs side by side.

    Args:
        inputs: sum of the inputs' widths; a window ``[*batch, W, F]`` counts W x F.
        hidden: widths of the hidden layers.
        outputs: width of the output.

    Example:
        >>> MLP(3 + 4 * 5, [64, 64], 2)(torch.zeros(8, 3), torch.zeros(8, 4, 5)).shape
        torch.Size([8, 2])
    """

    def __init__(self, inputs: int, hidden: Sequence[int], outputs: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(*size) for size in _sizes(inputs, hidden, outputs))

    @staticmethod
    def ensemble(members: int, inputs: int, hidden: Sequence[int], outputs: int) -> EnsembleMLP:
        """Several with one call: ``[*batch, members, outputs]``."""
        return EnsembleMLP(members, inputs, hidden, outputs)

    def forward(self, *inputs: Tensor) -> Tensor:
        """``[*batch, outputs]``."""
        out = joined(inputs)
        *hidden, last = self.layers
        for layer in hidden:
            out = layer(out).relu_()
        return last(out)


class EnsembleMLP(nn.Module):
    """Several perceptrons of one shape: one batched product a layer instead of one each.

    Args:
        members: how many.
        inputs: sum of the inputs' widths.
        hidden: widths of the hidden layers.
        outputs: width of each member's output.

    Example:
        >>> EnsembleMLP(2, 3 + 1, [64, 64], 1)(torch.zeros(8, 3), torch.zeros(8, 1)).shape
        torch.Size([8, 2, 1])
    """

    def __init__(self, members: int, inputs: int, hidden: Sequence[int], outputs: int) -> None:
        super().__init__()
        if members < 1:
            raise ValueError(f"an ensemble has at least 1 member, got {members}")
        self.members, self.outputs = members, outputs
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for fan_in, fan_out in _sizes(inputs, hidden, outputs):
            bound = 1 / math.sqrt(fan_in)  # as in nn.Linear
            weight = torch.empty(members, fan_in, fan_out).uniform_(-bound, bound)
            self.weights.append(nn.Parameter(weight))
            bias = torch.empty(members, 1, fan_out).uniform_(-bound, bound)
            self.biases.append(nn.Parameter(bias))

    def forward(self, *inputs: Tensor) -> Tensor:
        """``[*batch, members, outputs]``."""
        together = joined(inputs)
        out = together.reshape(-1, together.shape[-1]).expand(self.members, -1, -1)
        *hidden, (last, offset) = zip(self.weights, self.biases, strict=True)
        for weight, bias in hidden:
            # In place: baddbmm would write the bias out for every row first.
            out = torch.bmm(out, weight).add_(bias).relu_()
        out = torch.baddbmm(offset, out, last)
        return out.transpose(0, 1).reshape(*together.shape[:-1], self.members, out.shape[-1])


class Ensemble(nn.Module):
    """Several networks of one kind, one after the other, their outputs side by side.

    Args:
        networks: each ``[*batch, outputs]`` of the same inputs.

    Example:
        >>> Ensemble([MLP(3, [64], 1) for _ in range(2)])(torch.zeros(8, 3)).shape
        torch.Size([8, 2, 1])
    """

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)
        self.members = len(self.networks)

    def forward(self, *inputs: Tensor) -> Tensor:
        """``[*batch, members, outputs]``."""
        return torch.stack([network(*inputs) for network in self.networks], -2)


class _SteadyCentre(nn.Module):
    """A network's output as the centre of a distribution; its width is the same everywhere."""

    def __init__(self, network: nn.Module, actions: int, std: float) -> None:
        super().__init__()
        self.network = network
        self.log_scale = nn.Parameter(torch.full((actions,), math.log(std)))

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        loc = self.network(*inputs)
        return loc, self.log_scale.clamp(*LOG_SCALE).exp().expand_as(loc)


class _Centre(nn.Module):
    """A network's output as the centre and the width of a distribution."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        loc, log_scale = self.network(*inputs).chunk(2, -1)
        return loc, log_scale.clamp(*LOG_SCALE).exp()


def make_actor(
    inputs: int,
    actions: int,
    hidden: Sequence[int] = HIDDEN,
    in_keys: Sequence[NestedKey] = ("observation",),
    *,
    std: float | None = None,
    network: Network = MLP,
) -> ProbabilisticActor:
    """A policy with squashed normal actions: reads ``in_keys``, writes ``action`` ``[*, A]``.

    Args:
        inputs: sum of the inputs' widths.
        actions: number of actions A.
        hidden: widths of the hidden layers.
        in_keys: what it reads; the first has one dimension more than the batch.
        std: how far it explores at first, before the tanh, wherever it is: one number an action is
            learned. None leaves that to the network, by what it sees.
        network: what it is made of.

    Example:
        >>> from tensordict import TensorDict
        >>> actor = make_actor(inputs=5, actions=1, hidden=[64, 64])
        >>> actor(TensorDict({"observation": torch.zeros(3, 5)}, [3]))["action"].shape
        torch.Size([3, 1])
    """
    centre: nn.Module
    if std is None:
        centre = _Centre(network(inputs, hidden, 2 * actions))
    elif not 0 < std < math.inf:
        raise ValueError(f"std must be above 0, got {std}")
    else:
        centre = _SteadyCentre(network(inputs, hidden, actions), actions, std)
    return ProbabilisticActor(
        TensorDictModule(centre, in_keys=list(in_keys), out_keys=["loc", "scale"]),
        in_keys=["loc", "scale"],
        distribution_class=SquashedNormal,
        spec=Bounded(-1, 1, (actions,)),
    )


def make_deterministic_actor(
    inputs: int,
    actions: int,
    hidden: Sequence[int] = HIDDEN,
    in_keys: Sequence[NestedKey] = ("observation",),
    *,
    noise: float = 0.1,
    network: Network = MLP,
) -> ProbabilisticActor:
    """A policy with certain actions: reads ``in_keys``, writes ``action`` ``[*, A]``.

    Args:
        inputs: sum of the inputs' widths.
        actions: number of actions A.
        hidden: widths of the hidden layers.
        in_keys: what it reads; the first has one dimension more than the batch.
        noise: deviation of the normal noise on its actions where it explores.
        network: what it is made of.

    Example:
        >>> from tensordict import TensorDict
        >>> actor = make_deterministic_actor(inputs=5, actions=1, hidden=[64, 64])
        >>> actor(TensorDict({"observation": torch.zeros(3, 5)}, [3]))["action"].shape
        torch.Size([3, 1])
    """
    if not 0 <= noise < math.inf:
        raise ValueError(f"noise must not be negative, got {noise}")
    return ProbabilisticActor(
        TensorDictModule(network(inputs, hidden, actions), in_keys=list(in_keys), out_keys=["loc"]),
        in_keys=["loc"],
        distribution_class=NoisyTanh,
        distribution_kwargs={"noise": noise},
        spec=Bounded(-1, 1, (actions,)),
    )


def make_critic(
    inputs: int,
    actions: int,
    hidden: Sequence[int] = HIDDEN,
    in_keys: Sequence[NestedKey] = ("observation",),
    *,
    network: Network = MLP,
) -> TensorDictModule:
    """One critic as TorchRL's losses take it, which copy it themselves.

    Reads ``in_keys`` and ``action``, writes ``state_action_value`` ``[*, 1]``.
    """
    critic = network(inputs + actions, hidden, 1)
    return TensorDictModule(critic, in_keys=[*in_keys, "action"], out_keys=["state_action_value"])


def make_critics(
    inputs: int,
    actions: int,
    hidden: Sequence[int] = HIDDEN,
    in_keys: Sequence[NestedKey] = ("observation",),
    *,
    members: int = 2,
    objectives: int = 1,
    network: Network = MLP,
) -> TensorDictModule:
    """An ensemble of critics: reads ``in_keys`` and ``action``.

    Writes ``state_action_value`` ``[*, members, objectives]``. Networks whose class has an
    ``ensemble(members, inputs, hidden, outputs)`` of its own, as perceptrons, are one product.
    """
    critics = ensemble_of(network, members, inputs + actions, hidden, objectives)
    return TensorDictModule(critics, in_keys=[*in_keys, "action"], out_keys=["state_action_value"])


def make_value(
    inputs: int,
    actions: int,
    hidden: Sequence[int] = HIDDEN,
    in_keys: Sequence[NestedKey] = ("observation",),
    *,
    network: Network = MLP,
) -> TensorDictModule:
    """What a state is worth, whatever is done in it: reads ``in_keys``, writes ``state_value``.

    It takes no actions; their number stands there as in the other builders. ``[*, 1]``.
    """
    value = network(inputs, hidden, 1)
    return TensorDictModule(value, in_keys=list(in_keys), out_keys=["state_value"])


def ensemble_of(network: Network, members: int, *size: Any) -> nn.Module:
    """So many networks of one kind, by the class's own ``ensemble`` where it has one."""
    kind: Any = network
    settings: dict[str, Any] = {}
    if isinstance(network, partial):
        kind, settings = network.func, network.keywords
    # A subclass computes something else than what its parent's ensemble does.
    if "ensemble" in getattr(kind, "__dict__", {}):
        return kind.ensemble(members, *size, **settings)
    return Ensemble([network(*size) for _ in range(members)])
