"""The proof that a job trained on each trajectory exactly once: from its ledger, its checkpoints, and by replay."""
