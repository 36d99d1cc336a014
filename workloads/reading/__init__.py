"""Reading samples that lie one after the other in a file: in which order, in which pieces, and how far ahead."""

from paceline.workloads.reading.orders import Held, Order, Piece, Strategy, following
from paceline.workloads.reading.settings import Reading

__all__ = ["Held", "Order", "Piece", "Reading", "Strategy", "following"]
