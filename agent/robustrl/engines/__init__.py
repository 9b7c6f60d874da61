"""Rollout engines: the HTTP adapter that every engine is driven through, and the embedded engine.

Nothing here imports torch at import time: the in-pod supervisor loads the adapter and must stay light.
"""
