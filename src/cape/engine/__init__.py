"""One private sum across sites: planned, calibrated, run through a scheme, and paid for from a budget."""

from cape.engine.query import Analysis, Answer, Conversation, Estimate, Finding, Neighbours, Query

__all__ = ["Analysis", "Answer", "Conversation", "Estimate", "Finding", "Neighbours", "Query"]
