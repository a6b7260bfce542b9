"""One private sum across sites: planned, calibrated, run through a scheme, and paid for from a budget."""

from cape.release.query import Analysis, Answer, Estimate, Neighbours, Query

__all__ = ["Analysis", "Answer", "Estimate", "Neighbours", "Query"]
