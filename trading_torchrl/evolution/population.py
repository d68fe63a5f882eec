"""Many policies of one make, each with parameters of its own, as one policy of a batch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import ProbabilisticTensorDictSequential, TensorDictModuleBase
from torch import Tensor, nn


def flat(parameters: Sequence[Tensor]) -> Tensor:
    """Their numbers as one row ``[D]``."""
    return torch.cat([each.detach().reshape(-1) for each in parameters])


@torch.no_grad()
def unflatten(row: Tensor, parameters: Sequence[Tensor]) -> None:
    """Sets parameters to what :func:`flat` made a row of."""
    sizes = [each.numel() for each in parameters]
    for each, part in zip(parameters, row.split(sizes), strict=True):
        each.copy_(part.view_as(each))


class _Named(nn.Module):
    """What a policy computes, of tensors instead of a TensorDict."""

    def __init__(self, module: TensorDictModuleBase) -> None:
        super().__init__()
        self.module = module

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Its outputs ``[E, ...]``."""
        seen = dict(zip(self.module.in_keys, inputs, strict=True))
        found = self.module(TensorDict(seen, inputs[0].shape[:1]))
        return tuple(found[key] for key in self.module.out_keys)


class Population:
    """Acts for P members, each with parameters of its own, in E accounts each.

    Accounts of a member lie next to each other: ``[P x E]``. Members are stepped as one batched
    product a layer. What draws actions of a distribution has no parameters, and stands outside.

    Args:
        actor: reads and writes what a policy does; deterministic or not, by how it explores. What
            it has beside parameters that are trained, running scales say, all members share.

    Example:
        >>> from trading_torchrl.modules import make_actor
        >>> actor = make_actor(inputs=5, actions=1, hidden=[16])
        >>> population = Population(actor)
        >>> population.weights = flat(population.parameters).expand(8, -1)
        >>> seen = TensorDict({"observation": torch.zeros(8 * 3, 5)}, [8 * 3])
        >>> population(seen)["action"].shape
        torch.Size([24, 1])
    """

    def __init__(self, actor: TensorDictModuleBase) -> None:
        chooses = isinstance(actor, ProbabilisticTensorDictSequential)
        self.computes = actor[:-1] if chooses else actor
        self.draws = actor[-1] if chooses else None
        body = _Named(self.computes)
        self._names = [name for name, each in body.named_parameters() if each.requires_grad]
        self.parameters = [each for each in body.parameters() if each.requires_grad]
        """of the actor, which a member's row is made of"""
        if not self.parameters:
            raise ValueError("this policy has no parameters that could be evolved")
        self._sizes = [each.numel() for each in self.parameters]
        self._weights: dict[str, Tensor] = {}

        def act(weights: dict[str, Tensor], inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            return torch.func.functional_call(body, weights, inputs)

        self._act = torch.func.vmap(act, randomness="different")

    @property
    def weights(self) -> Tensor:
        """A row a member, ``[P, D]``."""
        return torch.cat([each.flatten(1) for each in self._weights.values()], 1)

    @weights.setter
    def weights(self, rows: Tensor) -> None:
        if rows.ndim != 2 or rows.shape[1] != sum(self._sizes):
            raise ValueError(
                f"weights must be rows of {sum(self._sizes):,} parameters, got {list(rows.shape)}"
            )
        parts = zip(self._names, self.parameters, rows.split(self._sizes, 1), strict=True)
        self._weights = {name: part.view(-1, *like.shape) for name, like, part in parts}

    @torch.no_grad()
    def __call__(self, seen: TensorDictBase) -> TensorDictBase:
        """Writes what each member does in its accounts, ``[P x E]``."""
        members = len(next(iter(self._weights.values())))
        inputs = tuple(seen.get(key) for key in self.computes.in_keys)
        inputs = tuple(each.reshape(members, -1, *each.shape[1:]) for each in inputs)
        for key, value in zip(
            self.computes.out_keys, self._act(self._weights, inputs), strict=True
        ):
            seen.set(key, value.flatten(0, 1))
        return seen if self.draws is None else self.draws(seen)
