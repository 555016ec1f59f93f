import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeps.commands.options import _without_nan, put_json, say

numbers = st.floats() | st.integers() | st.text(max_size=3) | st.none() | st.booleans()


@given(st.recursive(numbers, lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=3), inner)))
def test_whatever_is_printed_is_json(value: object) -> None:
    text = json.dumps(_without_nan(value), allow_nan=False)
    assert "NaN" not in text.replace('"NaN"', "")


def test_numbers_that_are_not_there_are_null(capfd: pytest.CaptureFixture[str]) -> None:
    put_json({"a": [1.5, math.nan], "b": (math.inf, "x")})
    assert json.loads(capfd.readouterr().out) == {"a": [1.5, None], "b": [None, "x"]}


def test_talk_goes_to_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    say("hello")
    assert capfd.readouterr() == ("", "hello\n")
