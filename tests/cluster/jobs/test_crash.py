from pathlib import Path

import pytest

from mislabel.cluster.jobs.crash import Crash, note_crash, take_crash
from mislabel.sweeps.errors import TICKET, StoreError, is_denied


def raised(error: Exception) -> Exception:
    try:
        raise error
    except Exception as found:
        return found


def test_a_crash_is_written_beside_the_ticket_and_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ticket = tmp_path / "bowls-1.json"
    note_crash(raised(ValueError("broken")))  # no queue started this process
    assert take_crash(ticket) is None
    monkeypatch.setenv(TICKET, str(ticket))
    note_crash(raised(ValueError("broken")))
    crash = take_crash(ticket)
    assert crash is not None
    assert crash.error == "ValueError: broken"
    assert crash.place.startswith(f"{__file__}:")
    assert take_crash(ticket) is None


def test_a_crash_at_another_place_differs() -> None:
    def elsewhere() -> Exception:
        try:
            raise ValueError("broken")
        except ValueError as found:
            return found

    assert Crash.of(raised(ValueError("broken"))) == Crash.of(raised(ValueError("broken")))
    assert Crash.of(elsewhere()) != Crash.of(raised(ValueError("broken")))


def test_a_denied_permission_is_found_among_the_causes() -> None:
    def converted(error: OSError) -> Exception:
        try:
            try:
                raise error
            except OSError as found:
                raise StoreError("results: can't be written") from (found if error.errno == 13 else None)
        except StoreError as found:
            return found

    assert is_denied(converted(PermissionError(13, "Permission denied")))
    assert is_denied(converted(PermissionError(1, "Operation not permitted")))
    assert not is_denied(converted(OSError(28, "No space left on device")))
