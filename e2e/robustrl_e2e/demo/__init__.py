"""`make demo`: an RL job on a real cluster loses a trainer's machine and a rollout, and ends as if nothing happened."""
