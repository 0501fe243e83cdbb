"""How tensors lie over devices, and the transfers that turn one layout into another."""

from girih.layout.mesh import (
    PARTIAL,
    REPLICATE,
    Layout,
    Mesh,
    among,
    bounds,
    coordinates_of,
    kind_of,
    part_shape,
    regions_of,
    taking_part,
)
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
    "among",
    "bounds",
    "coordinates_of",
    "full_layouts",
    "kind_of",
    "level_volumes",
    "part_shape",
    "regions_of",
    "route",
    "taking_part",
]
