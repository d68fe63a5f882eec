"""What a surprise is worth: intrinsic rewards, mixed in when a batch is sampled."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from tensordict import TensorDictBase
from tensordict.utils import NestedKey
from torch import Tensor
from torchrl.envs import Transform

from trading_torchrl.checks import check_share
from trading_torchrl.modules.curiosity import Curiosity

LEAST = 1e-8
"""Deviation of the errors that counts as none."""


class CuriosityReward(Transform):
    """Mixes what a model of the world did not expect into the rewards of a sampled batch.

    The intrinsic reward is ``eta x forward error / running deviation of it``, clipped to
    ``[0, most]``; the new reward ``(1 - share) x reward + share x intrinsic``, where the second
    part is at most ``cap`` times the running mean of the absolute rewards, or of one where that is
    more. Rewards should therefore be scaled to about one before. There is no centring: it would
    punish what is familiar.

    Append it to a replay buffer after what scales rewards: it is computed on the batch that is
    sampled, by the models as they are by then. Or call it on any batch with ``next``, such as a
    collector's, for learners on policy. Writes in ``next``, each ``[*, 1]``: ``intrinsic``,
    ``added`` (what of it is in the reward) and ``reward``. Until ``warmup_frames`` rows went into
    the buffer and ``warmup_batches`` were sampled, rewards stay as they are; called by hand, tell
    it the frames by :meth:`count`.

    The models are those of :class:`~trading_torchrl.objectives.ICMLoss`, which trains them: they
    are no part of this transform's state.

    Args:
        curiosity: the models.
        in_keys: what they see, in the root and in ``next``.
        eta: scale of the intrinsic reward.
        share: of the intrinsic reward in the mixed one, in [0, 1]; 0 leaves rewards as they are.
        most: largest intrinsic reward.
        cap: see above.
        momentum: of running figures.
        warmup_frames: see above.
        warmup_batches: see above.
        action_key: where the action is.
        reward_key: where the reward is, in ``next``.

    Example:
        >>> from tensordict import TensorDict
        >>> reward = CuriosityReward(Curiosity(4, 1), warmup_frames=0, warmup_batches=1)
        >>> batch = TensorDict({
        ...     "observation": torch.randn(8, 4), "action": torch.zeros(8, 1),
        ...     "next": {"observation": torch.randn(8, 4), "reward": torch.zeros(8, 1)}}, [8])
        >>> bool((reward(batch)["next", "reward"] > 0).all())
        True
    """

    running: Tensor
    """means of the forward error, of its square and of the absolute reward"""

    def __init__(
        self,
        curiosity: Curiosity,
        in_keys: Sequence[NestedKey] = ("observation",),
        *,
        eta: float = 0.01,
        share: float = 0.1,
        most: float = 5.0,
        cap: float = 0.1,
        momentum: float = 0.01,
        warmup_frames: int = 1_000,
        warmup_batches: int = 10,
        action_key: NestedKey = "action",
        reward_key: NestedKey = "reward",
    ) -> None:
        super().__init__()
        for name, value in (("eta", eta), ("most", most), ("cap", cap)):
            if not 0 <= value < math.inf:
                raise ValueError(f"{name} must not be negative, got {value}")
        check_share("share", share)
        check_share("momentum", momentum)
        self._curiosity = (curiosity,)  # in a tuple it is not registered: the loss saves it
        self.seen, self.action_key, self.reward_key = tuple(in_keys), action_key, reward_key
        self.eta, self.share, self.most, self.cap = eta, share, most, cap
        self.momentum = momentum
        self.warmup_frames, self.warmup_batches = warmup_frames, max(warmup_batches, 1)
        self.frames, self.batches = 0, 0
        self.register_buffer("running", torch.zeros(3))

    def count(self, frames: int) -> None:
        """So many rows were collected by now; for who calls it by hand."""
        self.frames = frames

    def _inv_call(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Rows on their way into the buffer are counted."""
        self.frames += tensordict.numel()
        return tensordict

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """A batch with its rewards mixed."""
        (curiosity,) = self._curiosity
        following = tensordict.get("next")
        error = curiosity.surprise(
            [tensordict.get(key) for key in self.seen],
            tensordict.get(self.action_key),
            [following.get(key) for key in self.seen],
        )
        reward = following.get(self.reward_key)
        mean, square, extrinsic = self._remember(error, reward)
        deviation = max(math.sqrt(max(square - mean * mean, 0.0)), LEAST)
        intrinsic = (self.eta / deviation * error).clamp(max=self.most)
        on = self.frames >= self.warmup_frames and self.batches >= self.warmup_batches
        intrinsic = (intrinsic if on else torch.zeros_like(intrinsic)).unsqueeze(-1)
        tensordict = tensordict.copy()  # and all that is nested in it
        following = tensordict.get("next")
        following.set("intrinsic", intrinsic)
        added = (self.share * intrinsic).clamp(max=self.cap * max(extrinsic, 1.0))
        following.set("added", added)
        if on and self.share:
            following.set(self.reward_key, (1 - self.share) * reward + added)
        return tensordict

    @torch.no_grad()
    def _remember(self, error: Tensor, reward: Tensor) -> list[float]:
        """Running figures; the first batch is where they start."""
        rate = self.momentum if self.batches else 1.0
        found = [error.mean(), error.square().mean(), reward.abs().mean()]
        self.running.lerp_(torch.stack(found), rate)
        self.batches += 1
        return self.running.tolist()

    def get_extra_state(self) -> dict[str, Any]:
        """What was counted."""
        return {"frames": self.frames, "batches": self.batches}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Goes on counting."""
        self.frames, self.batches = state["frames"], state["batches"]
