"""`python -m robustrl.audit LEDGER`: the audit's report and the curve of the committed steps, as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from robustrl.audit import report
from robustrl.audit.record import BadLedger


def main() -> int:
    """Exit status as that of `robustrl audit`, which prints more and needs the operator's packages."""
    if len(sys.argv) != 2:
        print("usage: python -m robustrl.audit LEDGER", file=sys.stderr)
        return 2
    try:
        found = report.read(Path(sys.argv[1]))
    except BadLedger as error:
        print(f"robustrl.audit: {error}", file=sys.stderr)
        return 2
    print(json.dumps(found))
    return 0 if found["audit"]["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
