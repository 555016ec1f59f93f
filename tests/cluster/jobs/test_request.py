import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mislabel.cluster.jobs.request import (
    CommandRequest,
    FactsRequest,
    SweepRequest,
    is_id,
    new_id,
    request_from_metadata,
)
from mislabel.sweeps.errors import MislabelError

SPEC = "name: noise\ntask: bowl\n"
SWEEP = SweepRequest("noise", SPEC, "ann", 3, True)


@pytest.mark.parametrize("request_", [SWEEP, CommandRequest(("status", "noise", "--json")), FactsRequest()])
def test_a_request_comes_through_as_text(request_: SweepRequest | CommandRequest | FactsRequest) -> None:
    metadata = json.loads(json.dumps(request_.metadata()))
    assert all(isinstance(value, str) for value in metadata.values())
    assert request_from_metadata(metadata) == request_


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sweep": "../other"}, "is not a valid name"),
        ({"sweep": "noise; rm -rf /"}, "is not a valid name"),
        ({"sweep": "other"}, "this is not the spec of other"),
        ({"owner": "ann/../.."}, "is not a valid name"),
        ({"owner": ""}, "is not a valid name"),
        ({"priority": "1e3"}, "is not a priority; it goes from -100 to 100"),
        ({"priority": "101"}, "is not a priority"),
        ({"spec": "!!python/object/apply:os.system ['true']"}, "spec"),
        ({"kind": "code"}, "'code' is not something that can be asked of a cluster"),
        ({"mislabel": "2"}, "another version of Mislabel"),
    ],
)
def test_what_does_not_fit_is_refused_on_the_head_too(changes: dict[str, str], message: str) -> None:
    with pytest.raises(MislabelError, match=message):
        request_from_metadata({**SWEEP.metadata(), **changes})


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "spec.yaml"], "list, status"),
        (["cluster", "down"], "is not a command"),
        ([], "is not a command"),
        (["status", "x", "--store=/etc"], "--store can't be given with --cluster: a cluster has its own"),
        (["results", "x", "--store", "/etc"], "--store can't be given"),
    ],
)
def test_only_the_listed_commands_are_run_for_a_client(words: list[str], message: str) -> None:
    with pytest.raises(MislabelError, match=message):
        CommandRequest(tuple(words)).metadata()


@pytest.mark.parametrize("text", ["", "status x", '"status x"', '["status", 3]', '["status", "a\\u0000b"]'])
def test_a_command_is_a_list_of_words(text: str) -> None:
    with pytest.raises(MislabelError, match="a command is a list of words"):
        request_from_metadata({"mislabel": "1", "kind": "command", "words": text})


def test_what_is_too_long_to_send_is_told_before_it_is_sent() -> None:
    long = SPEC + "parameters: {x: {values: [" + ", ".join(map(str, range(30_000))) + "]}}\n"
    with pytest.raises(MislabelError, match="the limit is"):
        SweepRequest("noise", long, "ann").metadata()


@given(st.dictionaries(st.sampled_from(["mislabel", "kind", "sweep", "spec", "owner", "priority", "words"]), st.text()))
def test_nonsense_is_refused_in_a_sentence(metadata: dict[str, str]) -> None:
    with suppress(MislabelError):
        assert isinstance(request_from_metadata({"mislabel": "1", **metadata}), FactsRequest)


def test_ids_are_safe_in_paths_and_differ() -> None:
    assert new_id("noise") != new_id("noise")
    assert is_id(new_id("a.b-c_d"))
    assert not any(is_id(text) for text in ("", ".", "..", "a/b", "../a", "a b", "a\n"))
