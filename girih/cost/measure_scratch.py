"""Measure the scratch memory of libraries' kernels on this host, each call once, and keep it in a store.

A call is made once, on zeros of its shapes and memory order, with exactly its number of threads, in a thread of its
own: neither the caller's modes (fake tensors, gradients, a profiler) nor the number of its threads are touched. PyTorch
reports to that thread's profiler what its allocator gives and takes back, scratch that it hands to oneDNN included. The
highest sum of that, less the result, is the scratch: exact, in the bytes that were asked for. It takes about a
millisecond besides the call itself.

On a GPU a call is made twice, and the second one counts, by the statistics of PyTorch's allocator there: in the first,
libraries take memory that they keep. All of it is measured, however large.

Of a call with more than `MOST_OPERATIONS`, or whose tensors and bound are more than `MOST_BYTES`, fewer images are
measured, and the bytes are taken to grow with the images: an estimate, and never more than the bound from shapes. Where
one image is too much, there is only the bound.
"""

from __future__ import annotations

import os
import platform
import re
import threading
import warnings
from collections.abc import Callable, Iterable
from functools import cache
from itertools import accumulate
from math import ceil
from pathlib import Path
from typing import Any

import torch

from girih.cost.cache import usable_cache
from girih.cost.scratch import BOUND, ESTIMATE, MEASURED, ScratchSetting, ScratchStore, Told
from girih.kernels.evaluate import call as apply
from girih.ops.derive.temporaries import Operand
from girih.ops.scratch import ScratchCall
from girih.program.life.strides import contiguous_strides

MOST_OPERATIONS = 30_000_000_000
"""A third of a second to a few seconds of a core. All calls of a plan take about a step of it, once."""
MOST_BYTES = 1 << 30
INSTRUCTIONS = re.compile(r"sse4_1|avx\w*|amx\w*|asimd\w*|sve\w*|bf16|i8mm")
"""Those of the processor's flags by which libraries choose kernels."""
ADVICE = ("ONEDNN_", "DNNL_", "ATEN_CPU_CAPABILITY", "MKL_ENABLE_INSTRUCTIONS")
"""Variables of the environment that tell libraries which of these to use, or how exactly to compute."""

_one_at_a_time = threading.Lock()


class HostScratch:
    """The scratch of calls on this host: known, in the store, or measured when it is asked for."""

    def __init__(
        self, setting: ScratchSetting, store: ScratchStore, measure: Callable[[ScratchCall], Told] | None = None
    ) -> None:
        self.setting = setting
        self._measure = measured if measure is None else measure
        self._store = store
        self._known: dict[str, Told] | None = None
        self._lock = threading.Lock()
        self._warned = False

    def __call__(self, call: ScratchCall) -> Told:
        with self._lock:
            if self._known is None:
                self._known = self._store.every(self.setting)
            told = self._known.get(call.key)
            if told is None:
                told = self._known[call.key] = self._measure(call)
                self._store.put(self.setting, call.key, told)
            warn, self._warned = bool(self._store.trouble) and not self._warned, bool(self._store.trouble)
        if warn:
            warnings.warn(self._store.trouble, stacklevel=2)
        return told


def _store() -> ScratchStore:
    folder = usable_cache()
    return ScratchStore(None if folder is None else folder / "scratch.sqlite")


@cache
def card_scratch() -> HostScratch:
    """The scratch of kernels on this host's GPU, as this process measures it."""
    setting = card_setting()
    assert setting is not None
    return HostScratch(setting, _store(), measured_on_card)


@cache
def card_setting() -> ScratchSetting | None:
    """The GPU of this host and the libraries that compute on it; None where PyTorch sees none."""
    if not torch.cuda.is_available():
        return None
    library = f"torch {torch.__version__}, CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}"
    return ScratchSetting(torch.cuda.get_device_name(), library)


@cache
def host_scratch(path: Path | None = None) -> HostScratch:
    """The scratch of kernels as this process measures it. path: of the store; None: in the user's cache, beside the
    costs of `girih calibrate`."""
    return HostScratch(setting_here(), _store() if path is None else ScratchStore(path))


@cache
def setting_here() -> ScratchSetting:
    """The processor and the libraries of this process, which read their variables once, too."""
    name, flags = _processor()
    advice = [f"{key}={os.environ[key]}" for key in sorted(os.environ) if key.startswith(ADVICE)]
    caches = [f"{level} {size}" for level, size in _caches()]
    device = "; ".join([name, " ".join(flags), ", ".join(caches)])
    match = re.search(r"MKL-DNN v([\w.]+)", torch.__config__.show())
    library = f"torch {torch.__version__}, oneDNN {match[1] if match else 'unknown'}"
    ways = f"kernels for {torch.backends.cpu.get_cpu_capability()}"
    return ScratchSetting(device, ", ".join([library, ways, *advice]))


def _processor() -> tuple[str, list[str]]:
    """Its name, and those of its instruction sets by which libraries choose kernels."""
    name, flags = platform.processor() or platform.machine(), list[str]()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return name, flags
    fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in reversed(lines))}
    listed = fields.get("flags", fields.get("Features", "")).split()
    return fields.get("model name", name), sorted(flag for flag in listed if INSTRUCTIONS.fullmatch(flag))


def _caches() -> Iterable[tuple[str, str]]:
    """(level, size) of the caches that the first core sees."""
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            kind, level, size = ((folder / item).read_text().strip() for item in ("type", "level", "size"))
        except OSError:
            continue
        if kind != "Instruction":
            yield f"L{level}", size


# ------------------------------------------------------------------------------------------- measuring


def measured(call: ScratchCall) -> Told:
    """Bytes of a call's scratch on this processor: measured, an estimate, or the bound where it cannot be measured."""
    work, known = call.work, call.known
    whole = known.images(work)
    count = min(whole, _affordable(call))
    if count < 1:
        return Told(call.bound, BOUND)
    part = (
        call
        if count == whole
        else ScratchCall(call.operator, known.cut(work, count), known, call.kept * count // max(whole, 1))
    )
    try:
        size = _alone(part)
    except (RuntimeError, TypeError, ValueError, IndexError):  # what PyTorch refuses, or has no memory for
        return Told(call.bound, BOUND)
    if count == whole:
        return Told(size, MEASURED)
    return Told(min(call.bound, ceil(size * whole / count)), ESTIMATE)


def measured_on_card(call: ScratchCall) -> Told:
    """Bytes of a call's scratch on this GPU, or the bound where PyTorch refuses the call."""
    try:
        operands = _operands(call, "cuda")
        for _ in range(2):
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_stats()["requested_bytes.all.current"]
            with torch.no_grad():
                result = apply(call.operator, {**call.work.attributes, **operands})
            torch.cuda.synchronize()
            most = torch.cuda.memory_stats()["requested_bytes.all.peak"]
            del result
    except (RuntimeError, TypeError, ValueError, IndexError):
        return Told(call.bound, BOUND)
    return Told(max(0, most - before - call.kept), MEASURED)


def _affordable(call: ScratchCall) -> int:
    """How many images can be measured; all where that is not said by less."""
    work, known = call.work, call.known
    whole = known.images(work)
    count = whole
    while count > 0:
        less = work if count == whole else known.cut(work, count)
        held = sum(item.bytes for item in (*less.inputs.values(), less.output)) + known.bound(less)
        if held <= MOST_BYTES and known.operations(less) <= MOST_OPERATIONS:
            break
        count //= 2
    return count


def _alone(call: ScratchCall) -> int:
    """The scratch of one call, in a thread of its own with as many threads as the call has."""
    before = torch.get_num_threads()
    outcome: list[int | BaseException] = []

    def work() -> None:
        try:
            torch.set_num_threads(call.work.threads)
            outcome.append(_scratch(call))
        except BaseException as error:
            outcome.append(error)
        finally:
            torch.set_num_threads(before)

    with _one_at_a_time:
        thread = threading.Thread(target=work, name="girih scratch")
        thread.start()
        thread.join()
    (result,) = outcome
    if isinstance(result, BaseException):
        raise result
    return result


def _scratch(call: ScratchCall) -> int:
    operands = _operands(call)
    with torch.no_grad():
        changes = _changes(lambda: apply(call.operator, {**call.work.attributes, **operands}))
    return max(0, max(accumulate(changes, initial=0)) - (call.kept or call.work.output.bytes))


def _operands(call: ScratchCall, device: str = "cpu") -> dict[str, Any]:
    """Tensors for a call, those of a list together."""
    made: dict[str, Any] = {}
    for name, operand in call.work.inputs.items():
        base, several, _ = name.partition(".")
        tensor = _zeros(operand, device)
        if several:
            made.setdefault(base, []).append(tensor)
        else:
            made[name] = tensor
    if call.work.attributes.get("draws"):  # whose state of a generator is none where it is zeros
        made["tensors"][-1] = torch.get_rng_state()
    return made


def _zeros(operand: Operand, device: str = "cpu") -> Any:
    strides = operand.strides or contiguous_strides(operand.shape)
    return torch.empty_strided(operand.shape, strides, dtype=getattr(torch, operand.dtype), device=device).zero_()


def _changes(work: Any) -> list[int]:
    """What PyTorch's allocator gives (> 0) and takes back (< 0) in this thread, in order.

    By PyTorch's older profiler, which is there at once; the one that writes traces takes more than a second to begin
    and speaks to standard error.
    """
    profiler: Any = torch._C._autograd
    kinds: Any = torch._C._profiler
    options = (False, True, False, False, False, kinds._ExperimentalConfig())  # shapes, memory, stack, flops, modules
    profiler._enable_profiler_legacy(kinds.ProfilerConfig(kinds.ProfilerState.CPU, *options))
    try:
        result = work()
    finally:
        events = profiler._disable_profiler_legacy()
    del result
    return [event.cpu_memory_usage() for thread in events for event in thread if event.kind() == "memory_alloc"]
