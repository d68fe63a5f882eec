"""A state in a file: whole or not there, checked before it is read, and never code.

A file is the header (magic, format version, SHA-256 of everything else, length) and what
:func:`torch.save` wrote.
"""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import struct
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

MAGIC = b"TTRLCKPT"
FORMAT = 1

_HEADER = struct.Struct(">8sI32sQ")
_HASHED = struct.Struct(">8sIQ")

_LEAVES = (int, float, bool, str, bytes, type(None), torch.Size, torch.dtype, torch.device)
_ALLOWED = (
    "dicts, lists and tuples of tensors, numbers, strings, bytes, None, torch.Size, torch.dtype "
    "and torch.device"
)


class CheckpointError(RuntimeError):
    """A checkpoint that cannot be written or read: which, why, and what to do."""


def save(path: Path, state: Mapping[str, Any]) -> None:
    """Writes a state: the file is there completely, or what was there before stays.

    Tensors that share their whole memory share it again after loading; a view into a larger
    memory is saved as a tensor of its own. Attributes that somebody set on a tensor are dropped.

    Args:
        path: the file; its folder is made where there is none.
        state: dicts (with any plain keys, tuples of strings too), lists and tuples of tensors,
            parameters, numbers, strings, bytes, ``None``, ``torch.Size``, dtypes and devices.

    Raises:
        CheckpointError: the state holds something else, or the file cannot be written.
    """
    write(serialised(path, state), path)


def load(path: Path) -> dict[str, Any]:
    """The state in a checkpoint, its tensors on the CPU.

    The bytes are verified first, and then can only become what :func:`save` takes: no code that
    a file names is run.

    Raises:
        CheckpointError: the file is missing, damaged, of another format, or holds anything else.
    """
    payload = io.BytesIO(_verified(path))
    try:
        state = torch.load(payload, map_location="cpu", weights_only=True)
    except Exception as error:  # any: the bytes are as somebody meant them
        unsafe = isinstance(error, pickle.UnpicklingError)
        fault = "it holds what is not safe to load" if unsafe else repr(error)
    else:
        if isinstance(state, dict):
            return state
        fault = f"it holds a {type(state).__name__}, not a dict"
    raise CheckpointError(f"{path} cannot be loaded: {fault}; use one that this package wrote")


def checksum(path: Path) -> str:
    """The SHA-256 that a file carries, in hex: what tells two of them apart without reading them.

    Raises:
        CheckpointError: the file is missing, or does not begin as one.
    """
    try:
        with open(path, "rb") as file:
            header = file.read(_HEADER.size)
    except OSError as error:
        raise CheckpointError(
            f"{path} cannot be read ({error.strerror}); load one that is there"
        ) from error
    if len(header) < _HEADER.size or not header.startswith(MAGIC):
        raise CheckpointError(f"{path} does not begin like a checkpoint; delete it")
    return _HEADER.unpack(header)[2].hex()


def serialised(path: Path, state: Mapping[str, Any]) -> memoryview:
    """What torch writes of a state, for :func:`write`; errors name the path."""
    buffer = io.BytesIO()
    try:
        torch.save(_plain(state, f"{path}: state"), buffer)
    except CheckpointError:
        raise
    except (RuntimeError, KeyError) as error:  # what torch raises for odd tensors
        raise CheckpointError(f"{path}: this state cannot be saved: {error}") from error
    return buffer.getbuffer()


def _plain(value: Any, place: str) -> Any:
    """A copy in exactly the types that load without running code; tensors keep their memory."""
    kind = type(value)
    if kind in (dict, OrderedDict):
        copy = kind(
            (_plain(key, f"{place}, key {key!r}"), _plain(item, f"{place}[{key!r}]"))
            for key, item in value.items()
        )
        # Where `state_dict()` of a module keeps its versions.
        for name, item in getattr(value, "__dict__", {}).items():
            setattr(copy, name, _plain(item, f"{place}.{name}"))
        return copy
    if kind in (list, tuple):
        return kind(_plain(item, f"{place}[{index}]") for index, item in enumerate(value))
    if kind in (Tensor, Parameter):
        return _plain_tensor(value, place)
    if kind not in _LEAVES:
        raise CheckpointError(
            f"{place} is of type {kind.__module__}.{kind.__qualname__}; a checkpoint holds "
            f"{_ALLOWED}: turn it into these first"
        )
    # What torch writes of these types and then refuses to read.
    if (kind is bytes and not value) or (kind is int and value.bit_length() >= 8 * 255):
        what = "an integer of over 2039 bits" if value else "empty bytes"
        raise CheckpointError(f"{place} is {what}, which do not load: turn it into a string")
    return value


def _plain_tensor(tensor: Tensor, place: str) -> Tensor:
    if tensor.layout != torch.strided or tensor.is_nested or tensor.is_meta:
        raise CheckpointError(
            f"{place} is a sparse, nested or meta tensor; a checkpoint holds dense ones: "
            "convert it first"
        )
    # A new object leaves attributes behind, the compiler's say, which may hold anything.
    plain = tensor.detach()
    if plain.untyped_storage().nbytes() > plain.nbytes:
        plain = plain.clone()
    if isinstance(tensor, Parameter):
        return Parameter(plain, requires_grad=tensor.requires_grad)
    return plain.requires_grad_() if tensor.requires_grad else plain


def _digest(payload: bytes | memoryview) -> bytes:
    digest = hashlib.sha256(_HASHED.pack(MAGIC, FORMAT, len(payload)))
    digest.update(payload)
    return digest.digest()


def write(payload: bytes | memoryview, *paths: Path) -> None:
    """Header and payload to one path after the other."""
    header = _HEADER.pack(MAGIC, FORMAT, _digest(payload), len(payload))
    for path in paths:
        _put(path, header, payload)


def _put(path: Path, *parts: bytes | memoryview) -> None:
    """The parts, complete on the disk before anything has this name."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "wb") as file:
            file.writelines(parts)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise CheckpointError(
            f"{path} cannot be written ({error.strerror}), what it held before it still holds; "
            "make room or choose another folder, then save again"
        ) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def _verified(path: Path) -> bytes:
    """The payload of a file that is exactly as it was written."""
    try:
        # Unbuffered: a buffered reader would join its buffer and the rest into a second copy.
        with open(path, "rb", buffering=0) as file:
            header, payload = file.read(_HEADER.size), file.read()
    except OSError as error:
        raise CheckpointError(
            f"{path} cannot be read ({error.strerror}); load one that is there"
        ) from error
    if len(header) == _HEADER.size:
        magic, version, digest, length = _HEADER.unpack(header)
        if magic != MAGIC:
            fault = "does not begin like a checkpoint"
        elif version != FORMAT:
            fault = f"is of format {version} where this version reads {FORMAT}"
        elif length != len(payload):
            fault = f"is cut or longer than written: {len(payload)} bytes of {length}"
        elif digest != _digest(payload):
            fault = "is damaged: its checksum does not fit"
        else:
            return payload
    else:
        fault = f"is cut: {len(header)} bytes, fewer than its header has"
    raise CheckpointError(f"{path} {fault}; delete it and load an earlier checkpoint")
