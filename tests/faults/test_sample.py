"""A sample of every topic of the fault suite, and the suite itself."""

import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.faults import suite
from tests.faults.suite import Case, Suite

# Samples of kills take minutes, and test_driver and tests/cluster/test_hosts kill the same things.
LEFT_OUT = ("ray_kills", "host_kills")


def _with_marks(topic: str) -> object:
    return pytest.param(topic, marks=[getattr(pytest.mark, mark) for mark in suite.marks_of(topic)])


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("topic", [_with_marks(topic) for topic in suite.topics() if topic not in LEFT_OUT])
def test_a_sample_of_the_topic_passes(topic: str) -> None:
    faults = Suite(limit=False)
    faults.run(topic, full=False)
    assert not faults.failures, "\n\n".join(map(str, faults.failures))
    if all(row.skipped == row.cases for row in faults.rows):
        pytest.skip("; ".join(reason for row in faults.rows for reason in row.reasons) or "the topic has no sample")


def test_the_record_has_no_failures_and_no_unknown_topics() -> None:
    rows = json.loads(suite.RECORD.read_text())
    assert {row["topic"] for row in rows} <= set(suite.topics())
    assert [row for row in rows if row["failed"]] == []


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A topic with a case that passes, one that fails, one that is skipped and one that hangs; and what it did."""
    events: list[str] = []

    def passes(folder: Path) -> None:
        assert list(folder.iterdir()) == []
        events.append("passed")

    def fails(folder: Path) -> None:
        raise ValueError("broken")

    both = threading.Barrier(min(2, os.cpu_count() or 1))

    def meet(folder: Path) -> None:
        both.wait(20)

    def cases(full: bool) -> Iterator[Case | list[Case]]:
        events.append(f"began {full}")
        try:
            yield Case("a", "passes", passes, count=3)
            yield Case("a", "fails", fails)
            yield Case("b", "skips", lambda folder: pytest.skip("no tool"))
            yield Case("b", "hangs", lambda folder: time.sleep(60), seconds=0.1)
            yield [Case("c", str(i), meet) for i in range(2)]
        finally:
            events.append("ended")

    monkeypatch.setattr(suite, "module_of", lambda topic: SimpleNamespace(cases=cases))
    return events


def test_the_suite_counts_what_passed_failed_was_skipped_and_hung(planted: list[str]) -> None:
    faults = Suite()
    faults.run("planted", full=True)
    counts = [(row.what, row.cases, row.passed, row.failed, row.skipped) for row in faults.rows]
    assert counts == [("a", 4, 3, 1, 0), ("b", 2, 0, 1, 1), ("c", 2, 2, 0, 0)]
    assert [(failure.case.name, failure.error.splitlines()[-1]) for failure in faults.failures] == [
        ("fails", "ValueError: broken"),
        ("hangs", "TimeoutError: the case takes longer than 0.1 s"),
    ]
    assert planted == ["began True", "passed", "ended"]
    assert faults.table.count("\n") == 4


def test_a_topic_is_ended_when_the_suite_is_interrupted(planted: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(text: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Suite(interrupt).run("planted", full=False)
    assert planted == ["began False", "passed", "ended"]


def test_a_record_keeps_the_topics_that_were_not_run() -> None:
    before = [{"topic": "a", "what": "old"}, {"topic": "b", "what": "kept"}]
    assert [(row["topic"], row["what"]) for row in suite.recorded([suite.Row("a", "new")], before)] == [
        ("a", "new"),
        ("b", "kept"),
    ]
