"""One analysis from its first query to its release: session, stages, plan, budget of a consortium, sites'
contributions; calibration of noise, with what rounding adds to a sensitivity; `Consortium`, and what an
analysis must define.

Not here: any particular analysis, sockets, and the policy of a site (`site`).
"""

from cape.engine.query import Analysis, AnalysisResult, Answer, Conversation, Neighbours, Query
from cape.stats.estimates import Estimate

__all__ = ["Analysis", "AnalysisResult", "Answer", "Conversation", "Estimate", "Neighbours", "Query"]
