"""From a job's spec to its pods: pure functions of plain data."""
