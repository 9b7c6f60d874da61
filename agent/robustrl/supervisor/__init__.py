"""The in-pod agent: PID 1 of a role's container. It imports no torch and starts in well under a second."""
