import jsonschema
import pytest

from tests.bowls import bowl_values
from tests.sweeps.commands.conftest import Mislabel


@pytest.mark.parametrize("arguments", [(), ("--task", "bowl")])
def test_the_schema_is_printed_and_specs_fit_it(mislabel: Mislabel, arguments: tuple[str, ...]) -> None:
    said = mislabel("schema", *arguments)
    assert said.code == 0
    assert said.err == ""
    jsonschema.Draft202012Validator(said.json).validate(bowl_values())


def test_a_task_that_is_not_installed_is_named_with_the_nearest(mislabel: Mislabel) -> None:
    said = mislabel("schema", "--task", "bwl")
    assert said.code == 2
    assert said.err == "mislabel: 'bwl' is not an installed task; did you mean bowl?\n"
