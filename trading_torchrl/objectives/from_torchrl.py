"""TorchRL's losses, as the recipes use losses."""

from __future__ import annotations

from typing import Any

from tensordict import TensorDictBase
from torchrl.objectives import LossModule, SoftUpdate

from trading_torchrl.checks import check_share


class FromTorchRL(LossModule):
    """Makes a loss of TorchRL one that the recipes train with; it stands before TorchRL's class.

    The discount is given to the constructor instead of to a value estimator, slow copies move by
    :meth:`update_targets` instead of by an object beside the loss, figures are
    means, and the batch stays as it was.

    Args:
        *networks: what TorchRL's class takes.

    Keyword Args:
        gamma: discount, in [0, 1].
        **settings: networks and settings, by the names that TorchRL's class has for them.

    Example:
        >>> import torchrl.objectives
        >>> from trading_torchrl.modules import make_critic, make_deterministic_actor
        >>> class DDPG(FromTorchRL, torchrl.objectives.DDPGLoss):
        ...     pass
        >>> actor, critic = make_deterministic_actor(4, 1, [32]), make_critic(4, 1, [32])
        >>> loss = DDPG(actor, critic, delay_value=True, gamma=0.95)
        >>> loss.update_targets(0.005)
    """

    def __init__(self, *networks: Any, gamma: float = 0.99, **settings: Any) -> None:
        super().__init__(*networks, **settings)
        check_share("gamma", gamma)
        self.make_value_estimator(gamma=gamma)
        slow = not all(self._has_update_associated.values())
        self._slow = SoftUpdate(self, tau=0.005) if slow else None

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """What TorchRL's class returns, figures as means; what it writes besides goes to a copy."""
        out = super().forward(tensordict.copy())
        for key, value in out.items():
            if not key.startswith("loss_"):
                out.set(key, value.detach().float().mean())
        return out

    def update_targets(self, rate: float) -> None:
        """Moves what is slow by ``rate`` of the way."""
        if self._slow is not None:
            self._slow.eps = 1 - rate
            self._slow.step()
