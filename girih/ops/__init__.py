"""What operators compute: the index notation, the operators written in it, and what is derived from them."""

from girih.ops.describe import description_of, descriptions_of, first_description
from girih.ops.operator import Description, Operator, Piece, TensorType

__all__ = [
    "Description", "Operator", "Piece", "TensorType", "description_of", "descriptions_of", "first_description",
]  # fmt: skip
