"""Machines made of namespaces: each has an address, a name and a /tmp of its own, and a cable to a switch.

The switch is in a namespace too, so that nothing else on the machine is touched: with the namespaces, all is gone.
Processes, files and everything below /tmp that the tests themselves need are shared, as a network file system would be.
"""

import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from mislabel.sweeps.process import Process
from tests.cluster.heads import DRIFT, MISLABEL, title_of, until
from tests.pace import VARIABLE, Pace

_PREFIX = "mislabel"
_TMP = Path("/tmp")
_ROOT = Path(__file__).parent.parent.parent
# Under the name $1, with the folder $2 as /tmp, in which the folders $3 are still where they are; then what follows.
_ENTER = """
set -e
echo "$1" > /proc/sys/kernel/hostname
own="$2" shared="$3"
IFS=:
for folder in $shared; do
    mkdir -p "$own/${folder#/tmp/}"
    mount --bind "$folder" "$own/${folder#/tmp/}"
done
mount --rbind "$own" /tmp
unset IFS
shift 3
exec "$@"
"""


@dataclass(frozen=True)
class Host:
    name: str
    address: str
    space: str
    """Its network namespace."""
    switch: str
    folder: Path
    """What no other host has."""
    shared: Path
    """The folder that all have."""
    children: "list[subprocess.Popen[bytes]]" = field(default_factory=list)

    @property
    def tmp(self) -> Path:
        return self.folder / "tmp"

    def environment(self) -> dict[str, str]:
        drift = (*DRIFT, "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "TMPDIR")
        plain = {name: value for name, value in os.environ.items() if not name.upper().startswith(drift)}
        return {**plain, "MISLABEL_CLUSTER_DIR": str(self.folder / "cluster"), VARIABLE: str(self.pace.path)}

    @property
    def pace(self) -> Pace:
        """The speed of the bowls on all hosts."""
        return Pace(self.shared / "pause")

    def command(self, *words: str) -> list[str]:
        """How this host is made to run these words."""
        shared = {self.folder.parent, _ROOT, Path(sys.prefix), Path(sys.base_prefix)}
        own = ":".join(sorted(str(path) for path in shared if path.is_relative_to(_TMP)))
        enter = ["ip", "netns", "exec", self.space, "unshare", "--uts", "--mount", "sh", "-c", _ENTER, "sh"]
        return [*enter, self.name, str(self.tmp), own, *words]

    def run(self, *words: str, code: int | None = 0, seconds: float = 240) -> "subprocess.CompletedProcess[str]":
        done = subprocess.run(
            self.command(*words), cwd=self.folder, env=self.environment(), capture_output=True, text=True, check=False,
            timeout=seconds,
        )  # fmt: skip
        assert code is None or done.returncode == code, done.stdout + done.stderr
        return done

    def mislabel(self, *words: str, code: int | None = 0) -> "subprocess.CompletedProcess[str]":
        """A command as it is typed on this host."""
        return self.run(MISLABEL, *words, code=code)

    def start(self, *words: str) -> "subprocess.Popen[bytes]":
        """A command that goes on, with what it says in the host's log."""
        with self.log.open("ab") as log:
            child = subprocess.Popen(
                self.command(*words), cwd=self.folder, env=self.environment(), stdin=subprocess.DEVNULL, stdout=log,
                stderr=log,
            )  # fmt: skip
        self.children.append(child)
        return child

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def status_of(self, url: str, *words: str) -> int:
        """Of curl's answer, asked from here; 0 where there is none."""
        asked = ["curl", "--silent", "--output", "/dev/null", "--max-time", "60", "--write-out", "%{http_code}"]
        return int(self.run(*asked, *words, url, code=None).stdout)

    def processes(self) -> list[Process]:
        """All that run on this host."""
        return _processes(self.space)

    def trains(self) -> bool:
        """Whether a pack is trained here."""
        return any("Trainable." in title_of(process) for process in self.processes())

    def kill(self) -> None:
        """Pull the plug: nobody here has a last word."""
        self.cut_off()
        _kill(self.space)

    def cut_off(self) -> None:
        """Pull the cable: what is sent is lost, and nobody is told."""
        _ip("-n", self.switch, "link", "set", self.name, "nomaster")

    def connect(self) -> None:
        _ip("-n", self.switch, "link", "set", self.name, "master", "bridge")


def reason_against_hosts() -> str | None:
    """Why there can be no hosts here; None where there can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "network namespaces can only be made by root on Linux"
    for tool in ("ip", "unshare", "mount", "curl"):
        if shutil.which(tool) is None:
            return f"network namespaces can't be made: there is no command {tool!r}"
    space = f"{_PREFIX}-{os.getpid()}-probe"
    try:
        with _space(space):
            _ip("-n", space, "link", "add", "bridge", "type", "bridge")
            _ip("-n", space, "link", "add", "one", "type", "veth", "peer", "name", "two")
            enter = ["ip", "netns", "exec", space, "unshare", "--uts", "--mount", "sh", "-c", _ENTER, "sh"]
            _checked([*enter, "probe", "/var", "", "true"])
    except subprocess.CalledProcessError as error:
        return f"network namespaces can't be made: {str(error.stderr).strip()}"
    return None


@contextmanager
def hosts(path: Path, names: Sequence[str]) -> Iterator[dict[str, Host]]:
    """Hosts that can reach each other and nobody else; afterwards nothing of them is left but their folders."""
    _remove_leftovers()
    prefix = f"{_PREFIX}-{os.getpid()}-{secrets.token_hex(2)}"
    switch = f"{prefix}-switch"
    made: dict[str, Host] = {}
    with ExitStack() as stack:
        stack.enter_context(_ended_politely())
        stack.enter_context(_space(switch))
        _ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        _ip("-n", switch, "link", "set", "bridge", "up")
        for number, name in enumerate(names, 1):
            host = Host(name, f"10.77.0.{number}", f"{prefix}-{name}", switch, path / name, path / "shared")
            for folder in (host.tmp, host.shared):
                folder.mkdir(parents=True, exist_ok=True)
            stack.enter_context(_space(host.space))
            _ip("-n", switch, "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", host.space)
            _ip("-n", switch, "link", "set", name, "up", "master", "bridge")
            _ip("-n", host.space, "address", "add", f"{host.address}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                _ip("-n", host.space, "link", "set", device, "up")
            made[name] = host
            stack.callback(_reap, host)
        yield made


def _reap(host: Host) -> None:
    _kill(host.space)
    for child in host.children:
        child.wait()


@contextmanager
def _space(name: str) -> Iterator[None]:
    """A network namespace; in the end all that runs in it is killed."""
    _ip("netns", "add", name)
    try:
        yield
    finally:
        _remove(name)


@contextmanager
def _ended_politely() -> Iterator[None]:
    """Take a polite kill for Ctrl-C, so that hosts are removed."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _remove_leftovers() -> None:
    """Of tests that were killed before they could."""
    for line in _ip("netns", "list").splitlines():
        name = line.split()[0]
        found = re.fullmatch(rf"{_PREFIX}-(\d+)-[a-z0-9-]+", name)
        if found and Process.of(int(found[1])) is None:
            _remove(name)


def _remove(space: str) -> None:
    _kill(space)
    _ip("netns", "delete", space)


def _kill(space: str) -> None:
    def none_is_left() -> bool:
        left = _processes(space)
        for process in left:
            process.send(signal.SIGKILL)
        return not left

    until(none_is_left, 60, lambda: [title_of(process) for process in _processes(space)])


def _processes(space: str) -> list[Process]:
    pids = _ip("netns", "pids", space).split()
    return [process for pid in pids if (process := Process.of(int(pid)))]


def _ip(*words: str) -> str:
    return _checked(["ip", *words])


def _checked(command: list[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
