"""Download a file, with progress and a checksum; an interrupted download continues."""

import os
import urllib.error
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path

from mislabel.tasks.data.folder import md5_of

Show = Callable[[str, int, int], None]
"""Called with the name of what is being fetched, the bytes so far and the total (0 if unknown)."""

_PIECE = 1 << 18
_SECONDS = 30.0


class FetchError(Exception):
    """Data could not be fetched from one source; another source may work."""


def download(url: str, to: Path, md5: str, show: Show) -> None:
    """Download `url` to `to`; FetchError if that fails or the file is not the expected one."""
    if to.exists() and md5_of(to) == md5:
        return
    to.parent.mkdir(parents=True, exist_ok=True)
    part = to.with_name(f"{to.name}.part")
    try:
        if not part.exists() or md5_of(part) != md5:
            _fetch(url, part, show)
    except (OSError, HTTPException) as error:
        raise FetchError(f"{url}: {getattr(error, 'reason', None) or error}") from None
    if md5_of(part) != md5:
        part.unlink()
        raise FetchError(f"{url}: the file is not the expected one (md5 differs)")
    os.replace(part, to)


def _fetch(url: str, part: Path, show: Show) -> None:
    has = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={has}-"} if has else {})
    try:
        response = urllib.request.build_opener().open(request, timeout=_SECONDS)
    except urllib.error.HTTPError as error:
        if error.code != 416:  # the partial file is longer than the file, so it is another one
            raise
        part.unlink()
        return _fetch(url, part, show)
    with response:
        if response.status != 206:  # the server does not support resuming
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
