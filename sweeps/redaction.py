"""Remove secrets from texts that are stored, logged or shown.

Two things are replaced: what looks like a secret (the password of an address, a query parameter such as `sig`, an
`Authorization` header), and every literal occurrence of a secret that this process knows. A process knows the values
of variables such as AWS_SECRET_ACCESS_KEY, the passwords of addresses in its environment and on its command line, and
the secrets that it has read from files. Data are never redacted: a parameter's value may equal a password.
"""

import os
import re
import sys
from collections.abc import Iterator
from urllib.parse import unquote

HIDDEN = "…"
SHORTEST = 6
"""Shorter values occur in ordinary words, so only their form hides them, as in `password=abc`."""
_WORDS = r"passw(?:or)?d|passphrase|secret|credential|signature|(?<![a-z])token(?![a-z])"
_VARIABLE = re.compile(rf"{_WORDS}|(?:^|_)(?:key|apikey|sas|auth|dsn)(?:_|$)|connection_?string", re.IGNORECASE)
# Such as RAY_AUTH_TOKEN_PATH and AWS_ACCESS_KEY_ID: where a secret is, and what is public.
_PUBLIC = re.compile(r"_(?:path|file|dir|folder|mode|type|id|name|user|username|host|port|sock)$", re.IGNORECASE)
# The user and password of an address. A password may contain unescaped @ and /; a port is not a password.
_USER_FORM = r"(?P<scheme>\b[a-z][a-z0-9+.-]*://)(?P<user>[^\s/?#:@{0}]*(?::(?!\d{{1,5}}[/?#])[^\s{0}]*)?)@"
_USER = re.compile(_USER_FORM.format(r"\"'<>"), re.IGNORECASE)
_USER_OF_WORD = re.compile(_USER_FORM.format(""), re.IGNORECASE)
_ASSIGNED = (
    re.compile(rf"(?P<name>[?&;][^=&;\s]*(?:{_WORDS}|pwd|key|sig|sas|auth)[^=&;\s]*=)[^&;#\s\"'<>]+", re.IGNORECASE),
    re.compile(
        r"(?P<name>\b\w*(?:passw(?:or)?d|pwd|secret|account_?key|shared_?access_?(?:signature|key))=)"
        r"(?:'[^']*'|\"[^\"]*\"|[^\s;,&'\"]+)",
        re.IGNORECASE,
    ),
    re.compile(r"(?P<name>\bauthorization['\"]?\s*[:=]\s*['\"]?(?:bearer|basic)\s+)[^\s'\",]+", re.IGNORECASE),
)
_remembered: set[str] = set()


def redacted(text: str) -> str:
    """The text without secrets."""
    for secret in sorted({*_remembered, *_known()}, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return _without_forms(text)


def has_secret(address: str) -> bool:
    """Whether the address contains a password or another secret."""
    return _without_forms(address) != address


def remember_secret(secret: str) -> None:
    """Redact this text from now on in this process."""
    _remembered.update(_spellings(secret))


def _without_forms(text: str) -> str:
    text = _USER.sub(lambda found: f"{found['scheme']}{HIDDEN}@" if _is_secret(found) else found.group(), text)
    for pattern in _ASSIGNED:
        text = pattern.sub(rf"\g<name>{HIDDEN}", text)
    return text


def _is_secret(found: re.Match[str]) -> bool:
    """A name without a password is no secret, except on the web: some servers take a token as the name."""
    return ":" in found["user"] or found["scheme"].lower() in ("http://", "https://")


def _known() -> Iterator[str]:
    for name, value in os.environ.items():
        # GOOGLE_APPLICATION_CREDENTIALS is a path. A secret may begin with a slash, so the file must exist.
        if _VARIABLE.search(name) and not _PUBLIC.search(name) and not (os.path.isabs(value) and os.path.exists(value)):
            yield from _spellings(value)
        yield from _secrets_of_address(value)
    for word in sys.argv[1:]:
        yield from _secrets_of_address(word)


def _secrets_of_address(text: str) -> Iterator[str]:
    """The secrets of an address, as programs show them after they have taken it apart."""
    if "=" in text:
        for pattern in _ASSIGNED:
            for found in pattern.finditer(text):
                yield from _spellings(found.group()[len(found["name"]) :])
    for found in _USER_OF_WORD.finditer(text):
        if _is_secret(found):
            name, _, password = found["user"].partition(":")
            yield from _spellings(password or name)


def _spellings(secret: str) -> Iterator[str]:
    """The secret as it is, and decoded; nothing if it is too short."""
    yield from (text for text in {secret, unquote(secret), secret.strip("'\"")} if len(text) >= SHORTEST)
