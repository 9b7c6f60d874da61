"""XIDs: the NVIDIA driver's error numbers, what each means and what is to be done about it.

Which numbers there are and the immediate action for each are facts of NVIDIA's XID catalogue
(docs.nvidia.com/deploy/xid-errors), in our own words. Its actions fold into three: ignore it; restart the application;
reset or replace the GPU, the machine, or whatever connects them. Where catalogues of others disagree (63, 94, 109, 121)
the table follows NVIDIA, and `overridden` lets an operator of clusters follow somebody else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from robustrl_api.node import XidSeverity

IGNORE, APPLICATION, GPU = XidSeverity.IGNORE, XidSeverity.APPLICATION, XidSeverity.GPU


@dataclass(frozen=True, slots=True)
class XidMeaning:
    meaning: str
    severity: XidSeverity


UNKNOWN = XidMeaning("an XID that is not in the table", IGNORE)
"""A number that nobody has weighed convicts nobody."""

XIDS: Mapping[int, XidMeaning] = {
    8: XidMeaning("the GPU stopped processing", APPLICATION),
    13: XidMeaning("exception in the graphics engine, often an access out of bounds", APPLICATION),
    31: XidMeaning("page fault in the GPU's memory management", APPLICATION),
    32: XidMeaning("the driver was sent a corrupt command stream", APPLICATION),
    43: XidMeaning("a process's channel was reset after an error of its own", IGNORE),
    45: XidMeaning("channels were taken down, as when a process is killed", IGNORE),
    46: XidMeaning("the GPU did not stop in time", GPU),
    48: XidMeaning("double-bit ECC error", GPU),
    62: XidMeaning("the GPU's power management controller halted", GPU),
    63: XidMeaning("a memory row or page was marked to be replaced", IGNORE),
    64: XidMeaning("a memory row or page could not be replaced", GPU),
    68: XidMeaning("exception in the video decoder", APPLICATION),
    69: XidMeaning("exception in the graphics engine's class", APPLICATION),
    74: XidMeaning("NVLink error", GPU),
    79: XidMeaning("the GPU has fallen off the bus", GPU),
    92: XidMeaning("many single-bit ECC errors", IGNORE),
    94: XidMeaning("uncorrectable memory error, contained to one process", APPLICATION),
    95: XidMeaning("uncorrectable memory error, not contained", GPU),
    109: XidMeaning("switching between contexts timed out", GPU),
    119: XidMeaning("the GPU's system processor does not answer", GPU),
    120: XidMeaning("the GPU's system processor failed", GPU),
    121: XidMeaning("error on the link between chips, corrected", IGNORE),
    140: XidMeaning("ECC error that could not be recovered from", GPU),
    154: XidMeaning("the driver's advice on how to recover has changed", IGNORE),
}


def meaning_of(code: int, table: Mapping[int, XidMeaning] = XIDS) -> XidMeaning:
    """What a number means; unknown ones are to be ignored."""
    return table.get(code, UNKNOWN)


def overridden(text: str) -> Mapping[int, XidMeaning]:
    """The table with other severities: "63=Gpu,94=Gpu".

    Raises:
        ValueError: the text has another form or names no severity.
    """
    table = dict(XIDS)
    for entry in filter(None, (part.strip() for part in text.split(","))):
        number, _, severity = entry.partition("=")
        if not number.isdecimal() or severity not in set(XidSeverity):
            raise ValueError(f"{entry!r}: expected NUMBER=SEVERITY, with one of {', '.join(XidSeverity)}")
        known = table.get(int(number), UNKNOWN)
        table[int(number)] = replace(known, severity=XidSeverity(severity))
    return table
