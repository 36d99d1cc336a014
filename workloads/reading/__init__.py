"""Reads samples from a record file: the order, the requests, and the read-ahead."""

from paceline.workloads.reading.orders import Held, Order, Piece, ReadingSettings, Strategy, following

__all__ = ["Held", "Order", "Piece", "ReadingSettings", "Strategy", "following"]
