"""One private sum across sites: planned, calibrated, run through a scheme, and paid for from a budget."""

from cape.engine.query import Analysis, AnalysisResult, Answer, Conversation, Neighbours, Query
from cape.stats.estimates import Estimate

__all__ = ["Analysis", "AnalysisResult", "Answer", "Conversation", "Estimate", "Neighbours", "Query"]
