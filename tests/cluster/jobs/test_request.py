import json
import re
from contextlib import suppress

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mislabel.cluster.jobs.request import (
    COMMANDS,
    LARGEST_BYTES,
    CommandRequest,
    FactsRequest,
    SweepRequest,
    is_id,
    new_id,
    request_from_metadata,
)
from mislabel.sweeps.commands.main import cli
from mislabel.sweeps.commands.options import Query
from mislabel.sweeps.errors import MislabelError

SPEC = "name: noise\ntask: bowl\n"
SWEEP = SweepRequest("noise", SPEC, "ann", 3, True)


@pytest.mark.parametrize("request_", [SWEEP, CommandRequest(("status", "noise", "--json")), FactsRequest()])
def test_a_request_is_read_as_it_was_written(request_: SweepRequest | CommandRequest | FactsRequest) -> None:
    metadata = json.loads(json.dumps(request_.metadata()))
    assert all(isinstance(value, str) for value in metadata.values())
    assert request_from_metadata(metadata) == request_


@pytest.mark.parametrize(
    ("changes", "value"),
    [
        ({"sweep": "../other"}, "'../other'"),
        ({"sweep": "noise; rm -rf /"}, "'noise; rm -rf /'"),
        ({"sweep": "other"}, "other"),
        ({"owner": "ann/../.."}, "'ann/../..'"),
        ({"owner": ""}, "''"),
        ({"priority": "1e3"}, "'1e3'"),
        ({"priority": "101"}, "'101'"),
        ({"spec": "!!python/object/apply:os.system ['true']"}, "spec"),
        ({"kind": "code"}, "'code'"),
        ({"mislabel": "2"}, "version"),
    ],
)
def test_the_head_refuses_invalid_requests(changes: dict[str, str], value: str) -> None:
    with pytest.raises(MislabelError, match=re.escape(value)):
        request_from_metadata({**SWEEP.metadata(), **changes})


@pytest.mark.parametrize(
    ("words", "value"),
    [
        (["run", "spec.yaml"], "list, status"),
        (["cluster", "down"], "'cluster down'"),
        ([], "''"),
        (["status", "x", "--store=/etc"], "--store"),
        (["results", "x", "--store", "/etc"], "--store"),
    ],
)
def test_clients_can_run_only_the_listed_commands(words: list[str], value: str) -> None:
    with pytest.raises(MislabelError, match=value):
        CommandRequest(tuple(words)).metadata()


def test_clients_can_run_every_command_that_takes_the_address_of_a_cluster() -> None:
    context = click.Context(cli)
    queries = [name for name in cli.list_commands(context) if isinstance(cli.get_command(context, name), Query)]
    assert set(queries) == {command for command in COMMANDS if " " not in command}
    assert CommandRequest(("compare", "noise", "width=1", "width=2")).metadata()


@pytest.mark.parametrize("text", ["", "status x", '"status x"', '["status", 3]', '["status", "a\\u0000b"]'])
def test_a_command_is_a_list_of_words(text: str) -> None:
    with pytest.raises(MislabelError, match="list of words"):
        request_from_metadata({"mislabel": "1", "kind": "command", "words": text})


def test_a_spec_that_is_too_long_is_refused_before_it_is_sent() -> None:
    long = SPEC + "parameters: {x: {values: [" + ", ".join(map(str, range(30_000))) + "]}}\n"
    with pytest.raises(MislabelError, match=f"{LARGEST_BYTES:,}"):
        SweepRequest("noise", long, "ann").metadata()


@pytest.mark.long
@given(st.dictionaries(st.sampled_from(["mislabel", "kind", "sweep", "spec", "owner", "priority", "words"]), st.text()))
def test_nonsense_is_refused_in_a_sentence(metadata: dict[str, str]) -> None:
    with suppress(MislabelError):
        assert isinstance(request_from_metadata({"mislabel": "1", **metadata}), FactsRequest)


def test_ids_are_safe_in_paths_and_differ() -> None:
    assert new_id("noise") != new_id("noise")
    assert is_id(new_id("a.b-c_d"))
    assert not any(is_id(text) for text in ("", ".", "..", "a/b", "../a", "a b", "a\n"))
