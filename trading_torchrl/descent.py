"""From a loss to gradients, with little around it: updates are a few milliseconds long."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import compress

import torch
from torch import Tensor


@torch.no_grad()
def norm_of(tensors: list[Tensor]) -> float:
    """Of all their numbers together; not finite where one is not, or where one is too large.

    Example:
        >>> norm_of([torch.tensor([3.0]), torch.tensor([[4.0]])])
        5.0
    """
    return float(torch.stack(torch._foreach_norm(tensors)).norm())


def differentiate(loss: Tensor, parameters: Sequence[Tensor], longest: float) -> float:
    """Leaves the gradients of ``loss``, scaled down to a common norm of at most ``longest``.

    Gradients that were there before are let go. What ``zero_grad``, ``backward`` and
    :func:`torch.nn.utils.clip_grad_norm_` do, but gradients that are shorter are not touched.

    Args:
        loss: a number; parameters that it does not depend on keep no gradient.
        parameters: of which gradients are wanted.
        longest: infinity for no limit.

    Returns:
        the norm before it was scaled; NaN where loss or norm are not finite.

    Example:
        >>> weight = torch.zeros(2, requires_grad=True)
        >>> differentiate((weight * torch.tensor([3.0, 4.0])).sum(), [weight], longest=1.0)
        5.0
        >>> weight.grad
        tensor([0.6000, 0.8000])
    """
    for each in parameters:
        each.grad = None
    loss.backward()
    grads = [each.grad for each in parameters if each.grad is not None]
    if not grads:
        return 0.0
    norm = norm_of(grads)
    if not math.isfinite(norm + float(loss.detach())):
        return math.nan
    if norm > longest:
        torch._foreach_mul_(grads, longest / norm)
    return norm


class Adam:
    """PyTorch's fused Adam, bit for bit, with less around it.

    It has no groups and no hooks, which take longer to look through than small networks to move.
    Kingma and Ba, "Adam: A Method for Stochastic Optimization", 2014,
    https://arxiv.org/abs/1412.6980

    Args:
        parameters: what it moves, of one device and type; those without a gradient stay.

    Keyword Args:
        lr: learning rate; may be set anew before any step.
        betas: decays of the running means of gradients and of their squares.
        eps: added to the root of the latter.

    Example:
        >>> weight = torch.ones(2, requires_grad=True)
        >>> optimizer = Adam([weight], lr=0.1)
        >>> weight.sum().backward()
        >>> optimizer.step()
        >>> weight
        tensor([0.9000, 0.9000], requires_grad=True)
    """

    def __init__(
        self,
        parameters: Iterable[Tensor],
        *,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ) -> None:
        self.parameters = list(parameters)
        self.lr, self.betas, self.eps = lr, betas, eps
        self._state = {
            "means": [torch.zeros_like(each, requires_grad=False) for each in self.parameters],
            "squares": [torch.zeros_like(each, requires_grad=False) for each in self.parameters],
            "steps": [torch.zeros((), device=each.device) for each in self.parameters],
        }

    @torch.no_grad()
    def step(self) -> None:
        """Moves every parameter that has a gradient."""
        columns = [self.parameters, *self._state.values()]
        gradients = [each.grad for each in self.parameters if each.grad is not None]
        if not gradients:
            return
        if len(gradients) < len(self.parameters):
            moved = [each.grad is not None for each in self.parameters]
            columns = [list(compress(column, moved)) for column in columns]
        parameters, means, squares, steps = columns
        torch._foreach_add_(steps, 1)
        torch._fused_adam_(
            parameters,
            gradients,
            means,
            squares,
            [],
            steps,
            lr=self.lr,
            beta1=self.betas[0],
            beta2=self.betas[1],
            weight_decay=0.0,
            eps=self.eps,
            amsgrad=False,
            maximize=False,
        )

    def state_dict(self) -> dict[str, list[Tensor]]:
        """Means and steps, parameter by parameter."""
        return {name: list(each) for name, each in self._state.items()}

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Sequence[Tensor]]) -> None:
        """Goes on where :meth:`state_dict` left off."""
        for name, own in self._state.items():
            shapes = [each.shape for each in own]
            given = [each.shape for each in state.get(name, ())]
            if shapes != given:
                raise ValueError(
                    f"the saved {name} are of parameters {[list(each) for each in given]},"
                    f" these are {[list(each) for each in shapes]}: build the same networks"
                )
        for name, own in self._state.items():
            torch._foreach_copy_(own, list(state[name]))
