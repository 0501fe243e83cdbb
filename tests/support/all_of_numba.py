"""Loaded by the processes of which others are forks: all of Numba, most of which it otherwise loads as a process first
compiles or takes what was compiled from the disk. That takes as long as compiling ten loops."""

from numba.core.registry import cpu_target

cpu_target.typing_context.refresh()
cpu_target.target_context.refresh()
