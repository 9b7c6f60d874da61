"""An installation that was cut off does not lock the next one out."""

from __future__ import annotations

import pytest

from robustrl_e2e.stack import freeing


@pytest.mark.parametrize(
    ("statuses", "command"),
    [
        (["pending-install"], "uninstall robustrl --wait"),
        (["failed", "pending-upgrade"], "uninstall robustrl --wait"),
        (["deployed", "pending-upgrade"], "rollback robustrl 1"),
        (["superseded", "deployed", "failed", "pending-upgrade"], "rollback robustrl 2"),
        (["superseded", "superseded", "pending-upgrade"], "rollback robustrl 2"),
        (["deployed", "pending-upgrade", "pending-rollback"], "rollback robustrl 1"),
    ],
)
def test_a_release_that_is_pending_goes_back_to_what_was_installed(statuses: list[str], command: str) -> None:
    history = [{"revision": number, "status": status} for number, status in enumerate(statuses, 1)]
    assert " ".join(freeing(history)) == command
