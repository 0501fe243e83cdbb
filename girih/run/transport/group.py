"""Groups of torch.distributed for workers on processors and on GPUs: who carries their messages and their replies.

Between processors gloo does. Between GPUs NCCL carries the messages of steps, and gloo, through the host's memory, what
is said between the ranks; or gloo carries all, where the user says so (GIRIH_TRANSPORT=gloo): it sends from the host's
memory alone, so that messages are copied there and back (`HostTransport`), and several workers may share a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from girih.run.transport.gloo import through_host
from girih.run.transport.transport import GroupTransport, Messages

SMALL_BYTES = 1 << 16
"""Of a tensor that travels inside what is said: a loss, or a few numbers."""


def backend_of(device: Any) -> str:
    """What a group of workers on such a device is formed with."""
    return "cpu:gloo,cuda:nccl" if device.type == "cuda" and not through_host() else "gloo"


def form(device: Any, **options: Any) -> None:
    """Form the group of all workers. options: of torch.distributed.init_process_group."""
    backend = backend_of(device)
    if backend != "gloo":
        options["device_id"] = device
    dist.init_process_group(backend, **options)


def transport_on(device: Any) -> GroupTransport:
    """This worker's transport over the group that was formed, by girih or by the user.

    Makes its GPU the current one, and has the workers meet in a first collective: the first messages of NCCL between
    some of them would otherwise wait for all.
    """
    if device.type != "cuda":
        return GroupTransport()
    torch.cuda.set_device(device)
    if "nccl" not in dist.get_backend_config():
        return HostTransport()
    dist.all_reduce(torch.zeros(1, device=device))
    torch.cuda.synchronize(device)
    return GroupTransport(batched=True)


class HostTransport(GroupTransport):
    """Between GPUs through the host's memory: gloo sends and receives copies there."""

    def begin(self, sends: Messages, receives: Messages) -> Callable[[], None]:
        copies = [(peer, tensor.cpu()) for peer, tensor in sends]  # waits until it is computed
        places = [(peer, torch.empty(tensor.shape, dtype=tensor.dtype)) for peer, tensor in receives]
        finish = super().begin(copies, places)

        def wait() -> None:
            finish()
            copies.clear()
            for (_, tensor), (_, place) in zip(receives, places, strict=True):
                tensor.copy_(place)

        return wait


def gathered(reply: Any, rank: int, size: int) -> list[Any]:
    """The replies of all ranks, on each. Of a reply that is a mapping, tensors that are not small travel as tensors,
    one after another, each from the rank that has it: no rank holds more beside its own copy of all than one of them.
    """
    own = reply if isinstance(reply, dict) else {}
    large = {name: item for name, item in own.items() if isinstance(item, torch.Tensor) and item.nbytes > SMALL_BYTES}
    forms = {name: (tuple(item.shape), item.dtype) for name, item in large.items()}
    rest = {name: item for name, item in own.items() if name not in large} if large else reply
    words: list[Any] = [None] * size
    dist.all_gather_object(words, (rest, forms))
    # A group that the user has formed may know NCCL alone.
    place = torch.device("cpu" if "gloo" in dist.get_backend_config() else "cuda")
    replies = []
    for source, (said, theirs) in enumerate(words):
        for name, (shape, dtype) in theirs.items():
            mine = large[name] if source == rank else torch.empty(shape, dtype=dtype)
            raw = mine.detach().contiguous().reshape(-1).view(torch.uint8).to(place)
            dist.broadcast(raw, source)
            said[name] = mine if source == rank else raw.cpu().view(dtype).reshape(shape)
        replies.append(said)
    return replies
