"""Machines: devices, memories and links, and what work costs on them."""

from girih.machine.machine import Device, Level, Machine, MachineError, unequal
from girih.machine.names import machine
from girih.machine.presets import presets

__all__ = ["Device", "Level", "Machine", "MachineError", "machine", "presets", "unequal"]
