import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from mislabel.cluster import ray_private
from mislabel.cluster.address import Address
from mislabel.cluster.tune import watch
from mislabel.cluster.tune.watch import Watch, watched
from mislabel.sweeps.errors import ExitCode, RayLostError


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def watch_of(server: socket.socket, patience_seconds: float = 0.0) -> Watch:
    return Watch([Address(*server.getsockname())], patience_seconds)


def test_a_body_returns_and_raises_through_the_watch(server: socket.socket) -> None:
    assert watched(lambda: 7, watch_of(server)) == 7
    with pytest.raises(KeyError, match="absent"):
        watched(lambda: {"present": 7}["absent"], watch_of(server))


def test_a_body_that_waits_is_left_when_the_server_ends(server: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_LOOK_SECONDS", 0.02)
    states: list[str] = []

    def waits() -> None:
        try:
            server.close()
            while True:
                time.sleep(0.01)
        finally:
            states.append("ended")

    with pytest.raises(RayLostError) as lost:
        watched(waits, watch_of(server))
    assert lost.value.exit_code == ExitCode.FAILED
    assert lost.value.retry
    assert states == ["ended"], "a thread that can be interrupted is ended"


def test_a_thread_that_can_not_be_interrupted_is_left_behind(
    server: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock without a time limit, as in calls of Ray."""
    monkeypatch.setattr(watch, "_LOOK_SECONDS", 0.02)
    monkeypatch.setattr(watch, "_LEAVE_SECONDS", 0.1)
    calls: list[str] = []
    never: Any = lambda: calls.append("never start again")  # noqa: E731
    monkeypatch.setattr(watch, "never_start_again", never)
    held = threading.Event()

    def waits() -> None:
        server.close()
        held.wait()

    with pytest.raises(RayLostError):
        watched(waits, watch_of(server))
    assert calls == ["never start again"]
    held.set()


def test_an_error_of_the_body_is_a_loss_if_the_server_has_ended(server: socket.socket) -> None:
    def fails() -> None:
        server.close()
        raise ConnectionError("the actor died")

    with pytest.raises(RayLostError):
        watched(fails, watch_of(server, patience_seconds=600))


def test_a_server_on_another_machine_may_be_away_for_a_moment(server: socket.socket) -> None:
    watch = watch_of(server, patience_seconds=600)
    server.close()
    watch.look()
    with pytest.raises(RayLostError):
        watch.look(patient=False)


def test_an_error_of_this_process_says_nothing_about_the_server(
    server: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_descriptors(*arguments: Any, **options: Any) -> socket.socket:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(socket, "create_connection", no_descriptors)
    watch_of(server).look()


def test_ray_does_not_start_again_for_a_thread_that_was_left(monkeypatch: pytest.MonkeyPatch) -> None:
    from ray._private import auto_init_hook

    monkeypatch.setattr(auto_init_hook, "enable_auto_connect", True)
    ray_private.never_start_again()
    assert not auto_init_hook.enable_auto_connect
