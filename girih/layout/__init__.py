"""How tensors lie over devices, and the transfers that turn one layout into another."""

from girih.layout.mesh import PARTIAL, REPLICATE, Layout, Mesh, bounds, regions_of
from girih.layout.transfer import Links, Placement, Placements, Transfers, full_layouts, level_volumes, route

__all__ = [
    "PARTIAL",
    "REPLICATE",
    "Layout",
    "Links",
    "Mesh",
    "Placement",
    "Placements",
    "Transfers",
    "bounds",
    "full_layouts",
    "level_volumes",
    "regions_of",
    "route",
]
