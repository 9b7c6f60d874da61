"""The managers: what an RL job's requests, trajectories, batches and weight versions are kept by.

One process (``python -m robustrl.managers``) beside no trainer and no rollout. Everything it knows is
either in its ledger or announced again by its agents every second, so it restarts alone and loses nothing.
"""
