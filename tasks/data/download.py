"""Download a file: with progress, from where an interrupted download ended, and checked."""

import os
import urllib.error
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path

from mislabel.tasks.data.folder import md5_of

Show = Callable[[str, int, int], None]
"""Told what is being fetched, how many bytes there are, and of how many (0 where it is not known)."""

_PIECE = 1 << 18
_SECONDS = 30.0


class FetchError(Exception):
    """Data could not be fetched this way; another may do."""


def download(url: str, to: Path, md5: str, show: Show) -> None:
    """Leave the file at `url` under `to`; FetchError where it can't be had or is not the one expected."""
    if to.exists() and md5_of(to) == md5:
        return
    to.parent.mkdir(parents=True, exist_ok=True)
    part = to.with_name(f"{to.name}.part")
    try:
        if not _is_complete(part, md5):
            _fetch(url, part, show)
    except (OSError, HTTPException) as error:
        raise FetchError(f"{url}: {getattr(error, 'reason', None) or error}") from None
    if md5_of(part) != md5:
        part.unlink()
        raise FetchError(f"{url}: gave another file than expected (md5)")
    os.replace(part, to)


def _is_complete(part: Path, md5: str) -> bool:
    return part.exists() and md5_of(part) == md5


def _fetch(url: str, part: Path, show: Show) -> None:
    has = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={has}-"} if has else {})
    try:
        response = urllib.request.build_opener().open(request, timeout=_SECONDS)
    except urllib.error.HTTPError as error:
        if error.code != 416:  # what is there is longer than the file: it is of another one
            raise
        part.unlink()
        return _fetch(url, part, show)
    with response:
        if response.status != 206:  # the server does not resume
            has = 0
        total = has + int(response.headers.get("Content-Length") or 0)
        with open(part, "ab" if has else "wb") as file:
            while piece := response.read(_PIECE):
                file.write(piece)
                has += len(piece)
                show(part.name.removesuffix(".part"), has, total)
        if total and has < total:
            raise OSError(f"the connection ended after {has:,} of {total:,} bytes")
    return None
