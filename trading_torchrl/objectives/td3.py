"""Twin delayed deterministic policy gradients."""

from __future__ import annotations

import math
from copy import deepcopy

import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import ProbabilisticTensorDictModule, TensorDictModule, dispatch
from torch import Tensor

from trading_torchrl.modules.averages import follow_slowly, frozen, moving
from trading_torchrl.objectives.actor_critic import ActorCriticLoss


class TD3Loss(ActorCriticLoss):
    """Twin delayed deterministic policy gradients; DDPG where nothing is twin, delayed or noisy.

    Fujimoto et al., "Addressing Function Approximation Error in Actor-Critic Methods", 2018,
    https://arxiv.org/abs/1802.09477

    The critics' target is ``reward + gamma x (1 - terminated) x min Q`` of the slow critics at what
    the slow actor does next, with clipped noise on it. The actor follows the first critic, at every
    ``actor_every``-th call, and only then :meth:`update_targets` moves what is slow. DDPG
    (Lillicrap et al., 2015, https://arxiv.org/abs/1509.02971) has one critic, ``target_noise=0``
    and ``actor_every=1``. Several objectives and masks are as
    :class:`~trading_torchrl.objectives.actor_critic.ActorCriticLoss` has them.

    Args:
        actor_network: policy whose distribution's mode has a gradient, from
            :func:`~trading_torchrl.modules.make_deterministic_actor` for one.
        qvalue_network: critics, which write ``state_action_value`` ``[*, members, K]``.

    Keyword Args:
        gamma: discount, in [0, 1].
        target_noise: deviation of the noise on the next action, of actions in [-1, 1].
        noise_clip: largest noise.
        actor_every: calls from one step of the actor to the next.
        objective_weights: K numbers, none negative, that sum to 1; None for one objective. A
            tensordict that holds ``("objectives", "weights")`` ``[*, K]`` is read instead.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``, over the batch.

    Example:
        >>> from trading_torchrl.modules import make_critics, make_deterministic_actor
        >>> actor, critics = make_deterministic_actor(4, 1, [32]), make_critics(4, 1, [32])
        >>> loss = TD3Loss(actor, critics, gamma=0.95)
        >>> batch = TensorDict({
        ...     "observation": torch.zeros(8, 4), "action": torch.zeros(8, 1),
        ...     "next": {"observation": torch.zeros(8, 4), "reward": torch.ones(8, 1),
        ...              "terminated": torch.zeros(8, 1, dtype=torch.bool)}}, [8])
        >>> out = loss(batch)
        >>> sum(out[key] for key in ("loss_actor", "loss_qvalue")).backward()
        >>> loss.update_targets(0.005)
    """

    out_keys = ["loss_actor", "loss_qvalue", "q", "td_error"]  # noqa: RUF012

    actor_network: ProbabilisticTensorDictModule
    target_actor_network: ProbabilisticTensorDictModule
    calls: Tensor

    def __init__(
        self,
        actor_network: TensorDictModule,
        qvalue_network: TensorDictModule,
        *,
        gamma: float = 0.99,
        target_noise: float = 0.2,
        noise_clip: float = 0.5,
        actor_every: int = 2,
        objective_weights: Tensor | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(
            actor_network, qvalue_network,
            gamma=gamma, objective_weights=objective_weights, reduction=reduction,
        )  # fmt: skip
        if not 0 <= target_noise < math.inf or not noise_clip >= 0:
            raise ValueError(
                "target_noise and noise_clip must not be negative,"
                f" got {target_noise} and {noise_clip}"
            )
        if actor_every < 1:
            raise ValueError(f"actor_every must be at least 1 call, got {actor_every}")
        self.target_noise, self.noise_clip = target_noise, noise_clip
        self.actor_every = actor_every
        self.target_actor_network = deepcopy(actor_network).requires_grad_(False)
        self._actor, self._target_actor = moving(actor_network), moving(self.target_actor_network)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    # Without a batch size: guessed from tensors of width 1 it would be one dimension too long.
    @dispatch(auto_batch_size=False)
    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Losses, the actor's 0 between its turns, and detached: mean value, mean TD error."""
        tensordict, masked = self._without_masked(tensordict)
        weights = self._weights(tensordict)
        wanted = self._wanted(tensordict, weights)
        values = self._values(self.qvalue_network, tensordict)
        error = values - wanted.unsqueeze(-2)
        loss_qvalue = self._reduce_loss(0.5 * error.square().sum((-1, -2)), masked)

        self.calls += 1
        if self._acts():
            decided = self._mode(self.actor_network, tensordict)
            with frozen(self._critics):
                worth = self._values(self.qvalue_network, tensordict, decided)
            loss_actor = self._reduce_loss(-self._total(worth, weights)[..., 0], masked)
        else:
            loss_actor = torch.zeros_like(loss_qvalue)
        return TensorDict._new_unsafe(
            {
                "loss_actor": loss_actor,
                "loss_qvalue": loss_qvalue,
                **self._shown(
                    masked,
                    q=self._total(values, weights)[..., 0],
                    td_error=error.abs().mean((-1, -2)),
                ),
            },
            batch_size=torch.Size([]),
        )

    def update_targets(self, rate: float) -> None:
        """After a turn of the actor, moves what is slow by ``rate`` of the way."""
        if self._acts():
            super().update_targets(rate)
            follow_slowly(self._target_actor, self._actor, rate)

    def _acts(self) -> bool:
        return int(self.calls) % self.actor_every == 0

    @torch.no_grad()
    def _wanted(self, tensordict: TensorDictBase, weights: Tensor | None) -> Tensor:
        """The critics' target ``[*, K]``."""
        following = tensordict.get("next")
        actor = self.target_actor_network
        dist = actor.get_dist(following.select(*actor.in_keys))
        noise = self.target_noise * torch.randn_like(dist.mode)
        noise = noise.clamp(-self.noise_clip, self.noise_clip)
        through = hasattr(dist, "around")  # what carries actions out knows what is near
        action = dist.around(noise) if through else (dist.mode + noise).clamp(-1, 1)
        values = self._values(self.target_qvalue_network, following, action)
        return self._one_step(tensordict, self._lowest(values, weights)[0])

    def _mode(self, actor: ProbabilisticTensorDictModule, tensordict: TensorDictBase) -> Tensor:
        """What a policy does without noise ``[*, A]``."""
        return actor.get_dist(tensordict.select(*actor.in_keys)).mode
