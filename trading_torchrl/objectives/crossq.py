"""CrossQ: soft actor-critic without slow critics."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import TensorDictModule, dispatch
from torch import Tensor

from trading_torchrl.objectives.actor_critic import kept_by
from trading_torchrl.objectives.sac import SACLoss


class CrossQLoss(SACLoss):
    """SAC without slow critics: batch normalisation keeps the critics' own targets steady.

    Bhatt et al., "CrossQ: Batch Normalization in Deep Reinforcement Learning for Greater Sample
    Efficiency and Simplicity", 2024, https://arxiv.org/abs/1902.05605

    What was done and what follows go through the critics as one batch in training mode, so that
    both are normalised alike; the second half, without its gradient, makes the target of the
    first. The actor learns from the critics in evaluation mode. It and the temperature learn at
    every ``actor_every``-th call; between, their losses are told and have no gradient.
    Rows that a mask leaves out count in no mean and no deviation either.

    Args:
        actor_network: as :class:`~trading_torchrl.objectives.SACLoss` has it.
        qvalue_network: critics whose mode of training normalises by batches, from
            :func:`~trading_torchrl.modules.make_normalised_critics` for one.

    Keyword Args:
        actor_every: calls from one step of the actor to the next.
        **settings: of :class:`~trading_torchrl.objectives.SACLoss`.

    Example:
        >>> from trading_torchrl.modules import make_actor, make_normalised_critics
        >>> actor, critics = make_actor(4, 1, [32]), make_normalised_critics(4, 1, [32], wider=4)
        >>> loss = CrossQLoss(actor, critics, gamma=0.95)
    """

    slow_critics: ClassVar[bool] = False
    calls: Tensor

    def __init__(
        self,
        actor_network: TensorDictModule,
        qvalue_network: TensorDictModule,
        *,
        actor_every: int = 3,
        **settings: Any,
    ) -> None:
        super().__init__(actor_network, qvalue_network, **settings)
        if actor_every < 1:
            raise ValueError(f"actor_every must be at least 1 call, got {actor_every}")
        self.actor_every = actor_every
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    @dispatch(auto_batch_size=False)
    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Losses, and detached: alpha, the policy's entropy, mean value, mean TD error."""
        out = super().forward(tensordict)
        self.calls += 1
        if int(self.calls) % self.actor_every:
            for key in ("loss_actor", "loss_alpha"):
                out.set(key, out.get(key).detach())
        return out

    def _values_and_wanted(
        self, tensordict: TensorDictBase, alpha: Tensor, weights: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        following = tensordict.get("next")
        with torch.no_grad():
            action, log_prob = self._act(following)
        key, rows = self.tensor_keys.action, tensordict.batch_dims
        kept = self._kept(tensordict)
        joined = TensorDict()
        for each in self.qvalue_network.in_keys:
            after = action if each == key else following.get(each)
            both = [value.flatten(0, rows - 1) for value in (tensordict.get(each), after)]
            joined.set(each, torch.cat([value if kept is None else value[kept] for value in both]))
        joined.batch_size = joined.get(key).shape[:1]
        values = self._values(self.qvalue_network, joined)
        if kept is None:
            now, after = values.chunk(2)
        else:
            shape = (len(kept), *values.shape[1:])
            now, after = (values.new_zeros(shape).index_put((kept,), v) for v in values.chunk(2))
        now, after = (value.unflatten(0, tensordict.batch_size) for value in (now, after))
        soft = self._believed(after.detach(), weights) - (alpha * log_prob).unsqueeze(-1)
        return now, self._one_step(tensordict, soft.detach())

    def _kept(self, tensordict: TensorDictBase) -> Tensor | None:
        """Rows that count ``[rows]``, where a mask says so."""
        kept = kept_by(self, tensordict, tensordict.get(("next", self.tensor_keys.terminated)))
        return None if kept is None else kept.flatten()

    def _decided(self, tensordict: TensorDictBase, action: Tensor) -> Tensor:
        training = self.qvalue_network.training
        self.qvalue_network.eval()
        try:
            return super()._decided(tensordict, action)
        finally:
            self.qvalue_network.train(training)
