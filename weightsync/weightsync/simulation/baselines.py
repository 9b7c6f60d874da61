"""How long other ways of spreading weights take on the same links, in S/B: what one link needs for all the weights.

n receivers, k publishers, L chunks; every link carries B each way. Formulas, without latency and without faults.
"""

from __future__ import annotations

from math import ceil, floor, log2


def serial(n: int, k: int) -> float:
    """Everybody pulls from the publishers, one after the other."""
    return ceil(n / k)


def whole_model_relay(n: int, k: int) -> float:
    """The RobustRL paper: whoever has finished serves the next. The number of holders doubles each S/B."""
    return ceil(log2(n / k + 1))


def chain(n: int, k: int, chunks: int) -> float:
    """Each forwards to the next, chunk by chunk (verl's nixl engine). A death cuts off all behind it."""
    return 1 + (ceil(n / k) - 1) / chunks


def lower_bound(n: int, k: int, chunks: int) -> float:
    """No way is faster: the last chunk that leaves the publishers must still double its way to everybody.

    Mundinger, Weber, Weiss: Optimal scheduling of peer-to-peer file dissemination, Journal of Scheduling 11 (2008).
    """
    return 1 + floor(log2(max(1.0, n / k))) / chunks
