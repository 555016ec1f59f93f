"""The pages, and the commands in the pages and files."""

import re
import shlex
import subprocess

import click
import pytest

from mislabel.sweeps.commands.main import COMMANDS, cli
from tests.cluster.deploy.commands import check_mislabel, check_ray
from tests.cluster.deploy.files import DEPLOY, PAGES, TEXTS, read
from tests.cluster.deploy.kuberay import RayJob

COMMAND = re.compile(r"(?<![\w/.\[\"-])(mislabel|ray) (?=[a-z])([^`'\"\n;|()\[\]]+)")
LINES = [(page, line) for page, text in PAGES.items() for line in re.findall(r"^\$ (.*)", text, re.MULTILINE)]


def whole(text: str) -> str:
    """Join continued lines: those that end with a backslash, and those of a folded YAML string."""
    return re.sub(r"\\?\n +(?=--)", " ", text)


@pytest.mark.parametrize("name", [name for name in TEXTS if name != "slurm.sh" and TEXTS[name]])
def test_every_command_exists_with_its_options(name: str) -> None:
    for program, rest in COMMAND.findall(whole(TEXTS[name])):
        words = shlex.split(rest, comments=True)
        if program == "mislabel":
            assert words[0] in COMMANDS, f"{name}: mislabel {rest}"
            command = cli.get_command(click.Context(cli), words[0])
            assert command is not None
            known = {option for parameter in command.params for option in parameter.opts}
            assert {word for word in words if word.startswith("--")} <= known, f"{name}: mislabel {rest}"
        else:
            check_ray(words)


def test_commands_are_complete() -> None:
    """The options of the commands exist, and no argument is missing."""
    ours = [line[line.index("mislabel ") :] for _, line in LINES if re.search(r"(?<![\w/-])mislabel [a-z]", line)]
    ours.append(RayJob.model_validate(read("kuberay/rayjob.yaml")).spec.entrypoint)
    assert len(ours) > 15
    for line in ours:
        check_mislabel(shlex.split(line, comments=True)[1:])
    rays = [line for text in TEXTS.values() for program, line in COMMAND.findall(whole(text)) if program == "ray"]
    assert len([line for line in rays if line.startswith("start ")]) >= 7


def test_an_unknown_command_or_option_is_found() -> None:
    with pytest.raises(AssertionError):
        check_mislabel(["sumbit", "noise.yaml"])
    with pytest.raises(click.NoSuchOption):
        check_mislabel(["run", "noise.yaml", "--adress", "auto"])
    with pytest.raises(AssertionError):
        check_ray(["start", "--haed"])


def test_shell_lines_of_the_pages_are_valid_shell() -> None:
    assert {page for page, _ in LINES} == PAGES.keys()
    for page, line in LINES:
        done = subprocess.run(["bash", "-n", "-c", line], capture_output=True, text=True)
        assert done.returncode == 0, f"{page}: {line}: {done.stderr}"


def test_pages_name_existing_files_and_say_what_was_not_run() -> None:
    for page, text in PAGES.items():
        for path in re.findall(r"cluster/deploy/([\w./-]+\w)", text):
            assert (DEPLOY / path).exists(), f"{page}: {path}"
        for link in re.findall(r"\]\(([^):]+)\)", text):
            assert (DEPLOY / link).exists(), f"{page}: {link}"
        assert re.search(r"[Ww]e have not\s+(run|built)", text), page
    for heading in ("## Down", "## Run"):
        assert {page for page, text in PAGES.items() if heading in text} >= {
            "aws.md",
            "gcp.md",
            "slurm.md",
            "docker.md",
        }
