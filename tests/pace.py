"""The speed of bowls. A test that acts while a sweep runs slows the bowls down, acts, and lets them continue."""

import json
from pathlib import Path

VARIABLE = "BOWL_PAUSE"
"""The environment variable with the file's path. The processes that train must have it."""
HELD_SECONDS = 0.5
"""At this many seconds per step, 2000 steps take longer than any test."""


class Pace:
    """A file with the seconds that a step takes, for each surface of a bowl."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def take_for_a_step(self, seconds: float, *surfaces: str) -> None:
        """Let bowls of these surfaces, or all bowls, take this long for a step from now on."""
        told = json.loads(self.path.read_text()) if self.path.exists() else {}
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps({**told, **dict.fromkeys(surfaces or ("smooth", "rough"), seconds)}))
        new.replace(self.path)

    def hold(self, *surfaces: str) -> None:
        """Keep bowls from ending; their workers still report, checkpoint and stop."""
        self.take_for_a_step(HELD_SECONDS, *surfaces)

    def release(self) -> None:
        """Let all bowls train at full speed."""
        self.take_for_a_step(0.0)
