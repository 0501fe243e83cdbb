"""What a program was made for: the structure, shapes, dtypes and values that it was called with. Another call needs
another program, since sizes and all that is no tensor are numbers in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import is_
from typing import Any

import torch
from torch import Tensor
from torch._C._dynamo.guards import TensorGuards
from torch.nn import Parameter
from torch.utils._pytree import tree_flatten, tree_flatten_with_path

from girih.capture.torch.settings import Found, differences, listed, surroundings
from girih.inference.quick.words import form_of

PLAIN = (bool, int, float, complex, str, bytes, type(None))


@dataclass(frozen=True)
class Call:
    """positional: how many arguments; names: of the others. structure: of both together, as PyTorch's trees have it.
    leaves: what each is, one after the other. around: where the caller stood, such as in an autocast. flat: each
    argument is a leaf, such as a tensor or a number. guard: where all are tensors, by which PyTorch compares them with
    these in one call; it says no where strides, modes or `requires_grad` are others, too. form: by which `way.c` does
    so in no call."""

    positional: int
    names: tuple[str, ...]
    structure: Any
    leaves: tuple[tuple[Any, ...], ...]
    around: Found
    flat: bool
    guard: Any = field(default=None, compare=False, repr=False)
    form: bytes | None = field(default=None, compare=False, repr=False)

    def is_quickly(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> bool:
        """Is a call this one, as far as it is told without flattening it? Around it is not looked."""
        if not self.flat or len(arguments) != self.positional or len(named) != len(self.names):
            return False
        if named:
            if named.keys() != set(self.names):
                return False
            arguments = (*arguments, *[named[name] for name in self.names])
        for leaf, known in zip(arguments, self.leaves, strict=True):
            if type(leaf) is not Tensor or known[0] is not Tensor:
                if _described(leaf) != known:
                    return False
                continue
            _, shape, dtype, device, layout = known
            if leaf.shape != shape or leaf.dtype is not dtype or leaf.device != device or leaf.layout is not layout:
                return False
        return True


def call_of(arguments: Sequence[Any], named: Mapping[str, Any]) -> Call:
    """What distinguishes this call from others. Keywords may come in any order."""
    leaves, structure = tree_flatten((tuple(arguments), batch_of((), named)))
    flat = is_flat(arguments, named, leaves)
    described = tuple(map(_described, leaves))
    guard = form = None
    if flat and leaves and not named and all(type(leaf) is Tensor for leaf in leaves):
        guard = TensorGuards(*leaves, dynamic_dims_sizes=None, dynamic_dims_strides=None)
        forms = [*map(form_of, leaves)]
        form = None if None in forms else b"".join(forms)  # type: ignore[arg-type]
    return Call(len(arguments), tuple(sorted(named)), structure, described, surroundings(), flat, guard, form)


def is_flat(arguments: Sequence[Any], named: Mapping[str, Any], leaves: Sequence[Any]) -> bool:
    """Is each argument a leaf?"""
    every = (*arguments, *(named[name] for name in sorted(named)))
    return len(leaves) == len(every) and all(map(is_, leaves, every))


def is_of_other_sizes(call: Call, example: Call) -> bool:
    """Are the two the same but for the sizes of tensors?"""
    if (call.structure, call.names, call.around) != (example.structure, example.names, example.around):
        return False
    return all(
        one == other
        or (
            len(one) == len(other) == 5
            and one[::2] == other[::2]
            and one[3] == other[3]
            and len(one[1]) == len(other[1])
        )
        for one, other in zip(call.leaves, example.leaves, strict=True)
    )


def difference(arguments: Sequence[Any], named: Mapping[str, Any], example: Call) -> str:
    """A clause that says how a call differs from an example."""
    call = call_of(arguments, named)
    if call.structure != example.structure:
        return f"it was called with {_structure(call)}, and optimised for {_structure(example)}"
    paths = [path for path, _ in tree_flatten_with_path((tuple(arguments), batch_of((), named)))[0]]
    for (_, *path), now, then in zip(paths, call.leaves, example.leaves, strict=True):
        if now != then:
            place = "".join(str(key) for key in path)
            return f"its argument {place} is {_text(now)}, and it was optimised for {_text(then)}"
    return f"{listed(differences(example.around, call.around))} since it was optimised"


def batch_of(arguments: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """What a call gives, all by name or all by position, in one order whichever the keywords have."""
    return {name: named[name] for name in sorted(named)} if named else tuple(arguments)


def _described(leaf: Any) -> tuple[Any, ...]:
    if isinstance(leaf, Tensor):
        kind = type(leaf)
        if kind is not Tensor and kind is Parameter:
            kind = Tensor
        return kind, leaf.shape, leaf.dtype, leaf.device, leaf.layout
    return type(leaf), repr(leaf) if type(leaf) in PLAIN else id(leaf)


def _structure(call: Call) -> str:
    words = [f"{call.positional} argument{'' if call.positional == 1 else 's'} by position"] if call.positional else []
    words += [f"{', '.join(call.names)} by name"] if call.names else []
    nested = "" if len(call.leaves) == call.positional + len(call.names) else f", {len(call.leaves)} values in them"
    return " and ".join(words or ["nothing"]) + nested


def _text(described: tuple[Any, ...]) -> str:
    if len(described) == 2:
        kind, value = described
        return str(value) if kind in PLAIN else f"another {kind.__name__}"
    kind, shape, dtype, device, layout = described
    words = [str(dtype).removeprefix("torch.") + str(list(shape))]
    words += [str(device)] if device.type != "cpu" else []
    words += [str(layout)] if layout is not torch.strided else []
    words += [kind.__name__] if kind is not torch.Tensor else []
    return " ".join(words)
