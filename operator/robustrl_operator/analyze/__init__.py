"""Which pod is well, which has failed, and why: verdicts with their evidence. Pure: no I/O, no clock.

Evidence is taken fastest first (DESIGN section 10): an exit that the agent saw, what the API server says of pod
and node, what its node's agent says of its GPUs, then silence. Silence alone convicts nobody: it takes a probe that
got no answer.
"""

from robustrl_operator.analyze.analyzer import analyze
from robustrl_operator.analyze.verdict import Cause, Detector, Health, Question, Verdict, Verdicts

__all__ = ["Cause", "Detector", "Health", "Question", "Verdict", "Verdicts", "analyze"]
