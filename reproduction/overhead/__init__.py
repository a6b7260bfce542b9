"""Bytes on the wire, counted message by message, and the powers with which they grow: Table 1."""

from reproduction.overhead.growth import Power, grows
from reproduction.overhead.protocols import PROTOCOLS, Measured, measure

__all__ = ["PROTOCOLS", "Measured", "Power", "grows", "measure"]
