from collections.abc import Mapping

import pytest

from mislabel.sweeps.checks.reader import checked_spec
from mislabel.sweeps.errors import SpecError
from mislabel.sweeps.spec.document import read_document

SUGGESTIONS: Mapping[str, str] = {
    "parameters: {x: {values: [1], when: surface == rough}}": "surface == 'rough'",
    "parameters: {seed: 3}": "seeds: 3",
    "seed: 3": "seeds",
    "parameters: {rate: '0.1,0.2'}": "{values: [0.1, 0.2]}",
    "parameters: {x: [1, 2]}": "{values: [1, 2]}",
}


@pytest.mark.parametrize("text", SUGGESTIONS)
def test_a_message_says_what_to_write_instead(text: str) -> None:
    with pytest.raises(SpecError) as caught:
        checked_spec(read_document(f"name: a\ntask: bowl\n{text}\n", "a.yaml"))
    (problem,) = caught.value.problems
    assert problem.place == "line 3"
    assert SUGGESTIONS[text] in problem.text


def test_an_unknown_data_set_is_reported_at_its_line() -> None:
    text = "name: a\ntask: misclassification.images\nparameters:\n  width: 8\n  data: cifar100\n"
    with pytest.raises(SpecError) as caught:
        checked_spec(read_document(text, "a.yaml"))
    (problem,) = caught.value.problems
    assert (problem.place, problem.path) == ("line 5", "parameters.data")
    assert "'cifar100'" in problem.text
