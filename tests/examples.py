"""How many examples hypothesis tries: fewer in `make check`."""

from typing import Any

from hypothesis import settings


def examples(count: int, **options: Any) -> settings:
    """Settings for this many examples, or those of the profile `check` if they are fewer."""
    most = settings.get_profile("check").max_examples if settings.get_current_profile_name() == "check" else count
    return settings(max_examples=min(count, most), **options)
