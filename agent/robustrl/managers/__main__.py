"""``python -m robustrl.managers``."""

import sys

from robustrl.managers.program import main

sys.exit(main())
