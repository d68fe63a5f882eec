"""TorchRL's own soft actor-critic."""

from __future__ import annotations

from typing import Literal

import torchrl.objectives
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModule

from trading_torchrl.objectives.from_torchrl import FromTorchRL


class TorchRLSACLoss(FromTorchRL, torchrl.objectives.SACLoss):
    """:class:`torchrl.objectives.SACLoss` with the settings and figures of our ``SACLoss``.

    Its ``loss_qvalue`` is the squared error, ours half of it; ``td_error`` is the worst critic's,
    ours the mean. Rewards are one number.

    Args:
        actor_network: a policy with ``rsample`` and ``log_prob``; ``target_entropy="auto"`` needs
            its ``spec``.
        qvalue_network: one critic, which writes ``state_action_value`` ``[*, 1]``, as
            :func:`~trading_torchrl.modules.make_critic` does. TorchRL draws ``members`` of it anew.

    Keyword Args:
        members: how many critics, of which the lowest counts.
        gamma: discount, in [0, 1].
        alpha_init: temperature at the start.
        min_alpha: floor of the temperature; 0 is none.
        target_entropy: entropy in nats that the temperature aims at; ``"auto"`` is minus the
            number of actions.

    Example:
        >>> from trading_torchrl.modules import make_actor, make_critic
        >>> loss = TorchRLSACLoss(make_actor(4, 1, [32]), make_critic(4, 1, [32]), gamma=0.95)
        >>> loss.update_targets(0.005)
    """

    def __init__(
        self,
        actor_network: TensorDictModule,
        qvalue_network: TensorDictModule,
        *,
        members: int = 2,
        gamma: float = 0.99,
        alpha_init: float = 1.0,
        min_alpha: float = 0.0,
        target_entropy: float | Literal["auto"] = "auto",
    ) -> None:
        super().__init__(
            actor_network, qvalue_network,
            num_qvalue_nets=members, loss_function="l2", alpha_init=alpha_init,
            min_alpha=min_alpha or None, target_entropy=target_entropy, gamma=gamma,
        )  # fmt: skip

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Losses, and detached: alpha, the policy's entropy, mean value, mean TD error."""
        seen = tensordict.copy()
        out = torchrl.objectives.SACLoss.forward(self, seen)
        out.set("q", (-out["alpha"] * out["entropy"] - out["loss_actor"]).detach())
        out.set("td_error", seen.get(self.tensor_keys.priority).mean())
        return out
