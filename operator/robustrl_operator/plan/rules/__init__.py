"""One rule a file; `planner.RULES` gives their order."""
