"""One network for many symbols: a shared trunk, and one small head a symbol."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from trading_torchrl.modules.networks import MLP, EnsembleMLP


class SymbolHeads(nn.Module):
    """One linear layer a symbol, saved by the symbol's name.

    Its ``state_dict`` has ``<symbol>.weight`` and ``<symbol>.bias``, so that heads find their
    symbols wherever these stand. Loaded with ``strict=False``, a symbol that has no head there gets
    the mean of those that are there: on a trunk that is trained it then acts, and is valued, as the
    average symbol, from where its own data lead it away. ``strict=True`` refuses, and names it.

    Args:
        symbols: names of the S symbols, in the order of their index.
        width: of what the trunk puts out.
        outputs: width of a head's output.
        members: heads of each symbol, for an ensemble of networks; None is one network.
    """

    def __init__(
        self, symbols: Sequence[str], width: int, outputs: int, members: int | None = None
    ) -> None:
        super().__init__()
        self.symbols = tuple(symbols)
        if not self.symbols or len(set(self.symbols)) < len(self.symbols):
            raise ValueError(f"symbols must be names that differ, at least one, got {symbols}")
        if outputs < 1:
            raise ValueError(f"outputs must be at least 1, got {outputs}")
        bound = 1 / math.sqrt(width)  # as in nn.Linear
        size = (len(self.symbols), *(() if members is None else (members,)), outputs)
        self.weight = nn.Parameter(torch.empty(*size, width).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(*size).uniform_(-bound, bound))

    def forward(self, symbol: Tensor, seen: Tensor) -> Tensor:
        """``[*batch, (members,) outputs]``.

        Args:
            symbol: index ``[*batch, 1]``.
            seen: what the trunk puts out, ``[*batch, (members,) width]``.
        """
        batch = symbol.shape[:-1]
        index = symbol.reshape(-1)
        flat = seen.reshape(-1, *seen.shape[len(batch) :]).unsqueeze(-2)
        out = (self.weight.index_select(0, index) * flat).sum(-1) + self.bias.index_select(0, index)
        return out.reshape(*batch, *out.shape[1:])

    def _save_to_state_dict(
        self, destination: dict[str, Any], prefix: str, keep_vars: bool
    ) -> None:
        for part, rows in self.named_parameters():
            for name, row in zip(self.symbols, rows.unbind(0), strict=True):
                destination[f"{prefix}{name}.{part}"] = row if keep_vars else row.detach()

    def _load_from_state_dict(
        self,
        state_dict: Mapping[str, Any],
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        for part, rows in self.named_parameters():
            found = {
                key[len(prefix) : -len(part) - 1]: value
                for key, value in state_dict.items()
                if key.startswith(prefix)
                and key.endswith(f".{part}")
                and value.shape == rows.shape[1:]
            }
            fresh = [name for name in self.symbols if name not in found]
            missing_keys += [f"{prefix}{name}.{part}" for name in fresh]
            unexpected_keys += [
                f"{prefix}{name}.{part}" for name in found if name not in self.symbols
            ]
            if found:
                mean = torch.stack(list(found.values())).mean(0)
                given = torch.stack([found.get(name, mean) for name in self.symbols])
                with torch.no_grad():
                    rows.copy_(given)

    def extra_repr(self) -> str:
        """Shown by ``repr``."""
        return f"{len(self.symbols)} symbols, weight {list(self.weight.shape)}"


class PerSymbolMLP(nn.Module):
    """A perceptron whose hidden layers all symbols share, with one linear head a symbol.

    Heads are saved by symbol (see :class:`SymbolHeads`). A trunk that is frozen takes no gradient,
    here and in every copy.

    Args:
        inputs: sum of the inputs' widths, the symbol left out.
        hidden: widths of the hidden layers, which are the trunk; at least one.
        outputs: width of the output.

    Keyword Args:
        symbols: names of the symbols, in the order of their index.
        freeze_trunk: train the heads alone.
        members: several such networks of the same inputs, one batched product a layer; None is one.

    Example:
        >>> network = PerSymbolMLP(3, [64, 64], 2, symbols=["AAA", "BBB"])
        >>> symbol = torch.tensor([[0], [1], [0]])
        >>> network(symbol, torch.zeros(3, 3)).shape
        torch.Size([3, 2])
    """

    reads = (("market", "symbol"),)
    """What it takes before all other inputs."""

    def __init__(
        self,
        inputs: int,
        hidden: Sequence[int],
        outputs: int,
        *,
        symbols: Sequence[str],
        freeze_trunk: bool = False,
        members: int | None = None,
    ) -> None:
        super().__init__()
        if not hidden:
            raise ValueError("the hidden layers are what symbols share: hidden needs at least one")
        *layers, width = hidden
        self.trunk = (
            MLP(inputs, layers, width)
            if members is None
            else EnsembleMLP(members, inputs, layers, width)
        )
        self.heads = SymbolHeads(symbols, width, outputs, members)
        self.freeze_trunk = freeze_trunk
        self.members, self.outputs = members, outputs
        self.trunk.requires_grad_(not freeze_trunk)

    @classmethod
    def ensemble(
        cls, members: int, inputs: int, hidden: Sequence[int], outputs: int, **settings: Any
    ) -> PerSymbolMLP:
        """Several with one call: ``[*batch, members, outputs]``."""
        return cls(inputs, hidden, outputs, members=members, **settings)

    def forward(self, symbol: Tensor, *inputs: Tensor) -> Tensor:
        """``[*batch, (members,) outputs]``, of symbols by their index ``[*batch, 1]``."""
        return self.heads(symbol, self.trunk(*inputs).relu())
