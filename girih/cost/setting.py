"""The setting in which costs are measured on this host: its processor, PyTorch, and the threads of its workers."""

from __future__ import annotations

import platform
from pathlib import Path

from girih.cost.store import Setting
from girih.host import cores_here
from girih.machine.names import threads_here

METHOD = 2
"""The number of the way in which processors are measured, to be raised where a figure comes to mean something else. It
is a part of each setting, so that figures of two ways are never mixed. 1, of which no number was kept: operators,
copies and exchanges each apart. 2: those of plans in steps of the plans."""
_MEASURED_SO = f", method {METHOD}"


def threads_of(workers: int, one_process: bool = False) -> int:
    """How many threads each worker has where nothing else is said, as the workers themselves decide. one_process: they
    are threads of this process, or this process is one of them, and has threads of kernels already."""
    if one_process:
        import torch

        return int(torch.get_num_threads())
    return threads_here(workers)


def setting_of(threads: int, together: int, device: str = "cpu", one_process: bool = False) -> Setting:
    """What measurements made here and now belong to. one_process: of workers that are threads of this process."""
    import torch

    on_card = device.startswith("cuda")
    name = (torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU") if on_card else _processor()
    if one_process:
        name += ", one process"
    library = f"torch {torch.__version__}" + ("" if on_card else _MEASURED_SO)
    return Setting(name, library, threads, together)


def is_of_this_method(setting: Setting) -> bool:
    """Was it measured on a processor as this version of girih measures?"""
    return setting.library.endswith(_MEASURED_SO)


def _processor() -> str:
    """The processor, and on how many of its cores this process may run."""
    name = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), name)
    except OSError:
        pass
    return f"{name}, {cores_here()} cores"
