"""Secrets in files that only their owner can read. They are never printed, and never on a command line."""

import os
import re
import secrets
import stat
from pathlib import Path

from mislabel.sweeps.errors import MislabelError
from mislabel.sweeps.redaction import remember_secret

_BYTES = 32
_LONGEST = 4096


def make_secret(path: Path) -> str:
    """Write a new secret to the file, which must not exist yet."""
    secret = secrets.token_hex(_BYTES)
    remember_secret(secret)
    write_private(path, secret)
    return secret


def write_private(path: Path, text: str) -> None:
    """Create a file that only its owner can ever read."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)


def read_secret(path: Path) -> str:
    """Read the secret; MislabelError if there is none, or if other users can read the file."""
    try:
        with path.open() as file:
            mode = os.fstat(file.fileno()).st_mode
            secret = file.read(_LONGEST).strip()
    except UnicodeDecodeError:
        raise MislabelError(f"{path}: is not a token: it is not text") from None
    except OSError as error:
        raise MislabelError(f"{path}: the token can't be read: {error.strerror}") from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise MislabelError(f"{path}: other users can read this token; protect it with chmod 600 {path}")
    if not re.fullmatch(r"[\x21-\x7e]{16,}", secret):
        raise MislabelError(f"{path}: is not a token; a token is one word, as `mislabel cluster up` writes it")
    remember_secret(secret)
    return secret
