"""Critics with batch renormalisation: what learns without slow copies of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from tensordict.nn import TensorDictModule
from tensordict.utils import NestedKey
from torch import Tensor, nn

from trading_torchrl.modules.networks import HIDDEN, MLP, EnsembleMLP, Network, joined

EPSILON = 1e-3


class BatchRenorm(nn.Module):
    """Values ``[members, rows, width]`` to mean 0 and deviation 1, of each member and width.

    Ioffe, "Batch Renormalization", 2017, https://arxiv.org/abs/1702.03275

    In training the batch's own mean and deviation count, and the running ones move towards them.
    After ``warmup`` batches what comes out is put, within bounds and without gradient, where the
    running ones would have it, which alone count in evaluation. There is no scale and no offset to
    learn: the product that follows has both.

    Args:
        members: how many networks share the batch.
        width: of the values.
        rate: how far the running mean and variance move towards a batch's.
        warmup: training batches before the running ones count in training.
        stretch: the running deviation counts within this factor of the batch's.
        shift: the running mean counts within so many deviations of the batch's.

    Example:
        >>> norm = BatchRenorm(2, 3)
        >>> norm(5 + torch.randn(2, 256, 3)).std().round()
        tensor(1.)
    """

    mean: Tensor
    variance: Tensor
    batches: Tensor

    def __init__(
        self,
        members: int,
        width: int,
        *,
        rate: float = 0.01,
        warmup: int = 1_000,
        stretch: float = 3.0,
        shift: float = 5.0,
    ) -> None:
        super().__init__()
        self.rate, self.warmup, self.stretch, self.shift = rate, warmup, stretch, shift
        self.register_buffer("mean", torch.zeros(members, 1, width))
        self.register_buffer("variance", torch.ones(members, 1, width))
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))

    def forward(self, values: Tensor) -> Tensor:
        """The same shape."""
        if not self.training:
            return (values - self.mean) * (self.variance + EPSILON).rsqrt()
        variance, mean = torch.var_mean(values, 1, correction=0, keepdim=True)
        scale = (variance + EPSILON).rsqrt()
        with torch.no_grad():
            running = (self.variance + EPSILON).rsqrt()
            stretched = (running / scale).clamp(1 / self.stretch, self.stretch)
            shifted = ((mean - self.mean) * running).clamp(-self.shift, self.shift)
            warm = self.batches >= self.warmup
            stretched = torch.where(warm, stretched, 1.0)
            shifted = torch.where(warm, shifted, 0.0)
            self.mean.lerp_(mean, self.rate)
            self.variance.lerp_(variance, self.rate)
            self.batches += 1
        return (values - mean) * (scale * stretched) + shifted


class NormalisedEnsembleMLP(EnsembleMLP):
    """An :class:`EnsembleMLP` whose inputs and hidden layers are normalised by batches.

    In training mode a row's output depends on the other rows; in evaluation mode it does not.

    Args:
        members: how many.
        inputs: sum of the inputs' widths.
        hidden: widths of the hidden layers.
        outputs: width of each member's output.
        warmup: batches before running means count, see :class:`BatchRenorm`.

    Example:
        >>> NormalisedEnsembleMLP(2, 4, [64], 1)(torch.zeros(8, 3), torch.zeros(8, 1)).shape
        torch.Size([8, 2, 1])
    """

    def __init__(
        self, members: int, inputs: int, hidden: Sequence[int], outputs: int, warmup: int = 1_000
    ) -> None:
        super().__init__(members, inputs, hidden, outputs)
        widths = [(1, inputs), *((members, width) for width in hidden)]
        self.norms = nn.ModuleList(BatchRenorm(*size, warmup=warmup) for size in widths)

    def forward(self, *inputs: Tensor) -> Tensor:
        """``[*batch, members, outputs]``."""
        together = joined(inputs)
        out = together.reshape(1, -1, together.shape[-1])  # members see the same: normalised once
        *hidden, (norm, weight, bias) = zip(self.norms, self.weights, self.biases, strict=True)
        for before, product, offset in hidden:
            out = before(out).expand(self.members, -1, -1)
            out = torch.baddbmm(offset, out, product).relu_()
        out = torch.baddbmm(bias, norm(out).expand(self.members, -1, -1), weight)
        return out.transpose(0, 1).reshape(*together.shape[:-1], self.members, out.shape[-1])


def make_normalised_critics(
    inputs: int,
    actions: int,
    hidden: Sequence[int] = HIDDEN,
    in_keys: Sequence[NestedKey] = ("observation",),
    *,
    members: int = 2,
    objectives: int = 1,
    wider: int = 1,
    warmup: int = 1_000,
    network: Network = MLP,
) -> TensorDictModule:
    """Critics as :func:`~trading_torchrl.modules.make_critics` makes them, normalised by batches.

    Args:
        inputs: sum of the widths of what they see.
        actions: number of actions.
        hidden: widths of the hidden layers.
        in_keys: what they read beside ``action``.
        members: how many critics.
        objectives: values of each.
        wider: times the widths in ``hidden``.
        warmup: batches before running means count, see :class:`BatchRenorm`.
        network: perceptrons alone can be normalised.

    Example:
        >>> critics = make_normalised_critics(4, 1, [32], wider=4)
        >>> critics(torch.zeros(8, 4), torch.zeros(8, 1)).shape
        torch.Size([8, 2, 1])
    """
    if network is not MLP:
        raise ValueError(
            f"normalised critics are perceptrons, got network={_name(network)}: choose"
            " network=mlp, or name your own builder of critics that normalise by batches"
        )
    wide = [wider * width for width in hidden]
    critics = NormalisedEnsembleMLP(members, inputs + actions, wide, objectives, warmup)
    return TensorDictModule(critics, in_keys=[*in_keys, "action"], out_keys=["state_action_value"])


def _name(network: Network) -> str:
    kind = network.func if isinstance(network, partial) else network
    return getattr(kind, "__name__", repr(kind))
