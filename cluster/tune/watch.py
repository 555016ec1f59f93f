"""Notice that Ray is lost: its processes have ended, or can't be reached any more.

Calls of Ray then wait for minutes or forever, and signals do not interrupt all of them. So they run in a thread, and
the caller watches Ray's servers. A thread that does not come back is left behind.
"""

import ctypes
import errno
import socket
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from typing import TypeVar

from mislabel.cluster.address import Address
from mislabel.cluster.ray_private import never_start_again, servers, started_processes
from mislabel.sweeps.errors import RayLostError

_T = TypeVar("_T")
_LOOK_SECONDS = 1.0
_ANSWER_SECONDS = 3.0
# A network may fail for a moment. A process of this machine that does not listen any more has ended.
_PATIENCE_SECONDS = 6.0
# How long a thread may take to end, if nothing keeps it.
_LEAVE_SECONDS = 3.0
_NO_CONNECTION = {errno.ECONNREFUSED, errno.ECONNRESET, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ETIMEDOUT}


def watched(body: Callable[[], _T], watch: "Watch | None" = None) -> _T:
    """Call the body in a thread; RayLostError within seconds if Ray is lost, whatever the body waits for."""
    answer: Future[_T] = Future()
    watch = watch or Watch(servers(), 0.0 if started_processes() else _PATIENCE_SECONDS)
    thread = threading.Thread(target=_call, args=(body, answer), name="mislabel-ray", daemon=True)
    thread.start()
    try:
        while not wait([answer], _LOOK_SECONDS).done:
            watch.look()
        if answer.exception() is not None:
            watch.look(patient=False)  # a call of Ray may fail before the next look
        return answer.result()
    except BaseException:
        _leave(thread)
        raise


class Watch:
    def __init__(self, servers: Sequence[Address], patience_seconds: float) -> None:
        self._servers = servers
        self._patience_seconds = patience_seconds
        self._reached = time.monotonic()

    def look(self, patient: bool = True) -> None:
        """RayLostError if a server has not been reached for too long, or can't be reached now if not `patient`."""
        missing = next((server for server in self._servers if not _listens(server)), None)
        if missing is None:
            self._reached = time.monotonic()
        elif not patient or time.monotonic() - self._reached >= self._patience_seconds:
            raise RayLostError(
                f"Ray was lost (its server at {missing} ended or can't be reached); finished runs and checkpoints are "
                "kept, and the same command continues"
            )


def _listens(server: Address) -> bool:
    try:
        socket.create_connection((server.host, server.port), timeout=_ANSWER_SECONDS).close()
    except OSError as error:  # for example too many open files, which says nothing about the server
        return not (isinstance(error, TimeoutError) or error.errno in _NO_CONNECTION)
    return True


def _call(body: Callable[[], _T], answer: "Future[_T]") -> None:
    try:
        answer.set_result(body())
    except BaseException as error:
        answer.set_exception(error)


class _Left(BaseException):
    """Ends a thread."""


def _leave(thread: threading.Thread) -> None:
    """End the thread. One that waits inside of Ray stays behind, and must not start a new Ray later."""
    if thread.is_alive():
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(_Left))
        thread.join(_LEAVE_SECONDS)
    if thread.is_alive():
        never_start_again()
