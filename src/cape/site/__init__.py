"""What a site holds and allows: the schema of its columns, its table, and the sums it can be asked for."""

from cape.site.blocks import Axis, Block, Counts, Custom, Gram, Moments
from cape.site.schema import Category, Number, Schema

__all__ = ["Axis", "Block", "Category", "Counts", "Custom", "Gram", "Moments", "Number", "Schema"]
