"""`mislabel reproduce`: run a paper's experiment and check its claims."""

from typing import TYPE_CHECKING, Any

import click

from mislabel.sweeps.commands import options
from mislabel.sweeps.commands.options import say
from mislabel.sweeps.commands.run import Venue, run_and_report, tracking_uri_of
from mislabel.sweeps.commands.screen import columns
from mislabel.sweeps.errors import ExitCode, MislabelError

if TYPE_CHECKING:
    from mislabel.analysis.claims.claim import Finding
    from mislabel.analysis.sweep import Sweep


@click.command()
@click.argument("names", nargs=-1, metavar="[all | PAPER | PAPER/FIGURE]…")
@options.store
@options.data
@options.mlflow
@options.sets
@click.option("--quick", is_flag=True, help="Run the small version of each experiment: minutes instead of an hour.")
@click.option("--check", is_flag=True, help="Run nothing; check the claims with the runs in the store.")
@click.option("--inline", is_flag=True, help="Run in this process, without Ray.")
@click.option("--address", envvar="RAY_ADDRESS", metavar="RAY", help="A running Ray cluster. Default: start one here.")
@click.option("--no-mlflow", is_flag=True, help="Write no MLflow view now.")
@click.option("--markdown", is_flag=True, help="Print the checked claims as a Markdown table.")
@options.as_json
def command(
    names: tuple[str, ...], store: str, tracking_uri: str | None, overrides: tuple[str, ...], quick: bool, check: bool,
    inline: bool, address: str | None, no_mlflow: bool, markdown: bool, as_json: bool,
) -> int:  # fmt: skip
    """Run the papers' experiments with their settings and seeds, and check the papers' claims with the results.

    A claim is a quantity and a region in which the paper's statement holds. It is confirmed where the 95 % interval
    over seeds lies in the region, not confirmed where it lies outside, undecided where it reaches across the edge.

    \b
      mislabel reproduce                          # list all experiments and the state of their claims
      mislabel reproduce xor-clusters/theorem1    # run one, then check its claims
      mislabel reproduce all --quick              # the small version of all of them
      mislabel reproduce all --check              # check again, run nothing

    After an interruption, the same command continues. Exit code 1: a run failed, or a claim was not confirmed.
    """
    from mislabel.sweeps.papers.bundled import chosen_experiments, examples

    chosen = chosen_experiments(names)
    code: int = ExitCode.DONE
    if names and not check:
        code = _run(chosen, store, tracking_uri, overrides, quick, Venue(inline, address), no_mlflow)
        if code == ExitCode.INTERRUPTED:
            return code
    findings = {experiment: _findings(experiment, store, quick) for experiment in chosen}
    notes = {experiment: note for experiment in chosen if (note := _checkout_note(experiment, store, quick))}
    if as_json:
        options.put_json(
            [_described(name, finding, notes.get(name)) for name, found in findings.items() for finding in found]
        )
    elif markdown:
        click.echo("\n".join([_table(findings), *(f"\n`{name}`: {note}." for name, note in notes.items())]))
    elif names:
        pages = (_page(name, found, notes.get(name)) for name, found in findings.items() if found)
        click.echo("\n\n".join(pages))
    else:
        click.echo(_list(findings))
        say("`mislabel reproduce NAME` runs one and checks its claims; `plan`, `run` and `submit` take these names too")
        say(f"examples without claims, for `plan`, `run` and `submit`: {', '.join(examples())}")
    unconfirmed = any(finding.verdict == "not confirmed" for found in findings.values() for finding in found)
    return code or (ExitCode.FAILED if names and unconfirmed else ExitCode.DONE)


def _run(
    chosen: list[str], store: str, tracking_uri: str | None, overrides: tuple[str, ...], quick: bool, venue: Venue,
    no_mlflow: bool,
) -> int:  # fmt: skip
    from mislabel.sweeps.checks.reader import read_spec
    from mislabel.sweeps.papers.bundled import spec_path
    from mislabel.sweeps.plan.data_check import DataMissingError
    from mislabel.sweeps.store.store import Store

    at = Store(store)
    uri = None if no_mlflow else tracking_uri_of(at, tracking_uri)
    code, missing = 0, dict[str, None]()
    with venue.connected():
        for i, experiment in enumerate(chosen):
            say(f"[{i + 1}/{len(chosen)}] {experiment}")
            spec, task = read_spec(spec_path(experiment), overrides, quick)
            if len(chosen) > 1 and spec.resources.gpu and not venue.has_gpus():
                say("skipped: it wants a GPU, and there is none; --quick runs its small version")
                continue
            try:
                ended = run_and_report(spec, task, at, venue, uri)
            except DataMissingError as error:
                if len(chosen) == 1:
                    raise
                missing |= dict.fromkeys(str(error).splitlines())
                ended = ExitCode.FAILED
            if ended == ExitCode.INTERRUPTED:
                return ended
            code = code or ended
    for text in missing:
        say(text)
    return code


def _findings(experiment: str, store: str, quick: bool) -> "list[Finding]":
    """Check each claim of the experiment with the runs in the store."""
    import mislabel
    from mislabel.analysis.claims.claim import Finding, judged
    from mislabel.analysis.claims.registry import CLAIMS
    from mislabel.sweeps.papers.bundled import sweep_name
    from mislabel.sweeps.store.store import Store

    name = sweep_name(experiment, quick)
    claims = CLAIMS.get(experiment, {}).items()
    findings = [Finding(paper, claim) for paper, claim in claims if claim.at_any_size or not quick]
    if name not in Store(store).names():
        return findings
    sweep = mislabel.load(store, name)
    if absent := _absent_cells(sweep):
        say(f"{experiment}: {absent:,} cells have no run in {store}; claims are checked once all have one")
        return findings
    for i, finding in enumerate(findings):
        try:
            findings[i] = judged(finding.paper, finding.claim, sweep)
        except (MislabelError, KeyError, ValueError) as error:
            say(f"{experiment}: {finding.claim.quantity}: can't be checked yet: {error}")
    return findings


def _checkout_note(experiment: str, store: str, quick: bool) -> str:
    """A sentence on the experiment's runs that come from a modified checkout; empty if there are none."""
    import mislabel
    from mislabel.analysis.statistics.checkout import checkout_note
    from mislabel.sweeps.papers.bundled import sweep_name
    from mislabel.sweeps.store.store import Store

    name = sweep_name(experiment, quick)
    return checkout_note(mislabel.load(store, name)) if name in Store(store).names() else ""


def _absent_cells(sweep: "Sweep") -> int:
    """How many cells of the spec have no ended run; 0 for a search, whose spec names no cells."""
    from mislabel.sweeps.cells.space import Space
    from mislabel.sweeps.store.run_index import RunIndex
    from mislabel.tasks.registry import find_task

    if sweep.spec.method.learns:
        return 0
    ended = RunIndex(sweep.spec, sweep.files).seeds
    space = Space(sweep.spec, find_task(sweep.spec.task))
    return sum(cell not in ended for cells in space.cells() for cell in cells.ids)


def _page(experiment: str, findings: "list[Finding]", note: str | None) -> str:
    """Each claim with the paper's statement, our estimate, the theory's prediction and the verdict."""
    lines = [experiment, *([f"  note: {note}"] if note else [])]
    for finding in findings:
        claim = finding.claim
        lines += [
            f"  {finding.verdict.upper():<14}{finding.paper}",
            f"{'':<16}{claim.quantity}: {finding.estimate or '–'}, holds where {claim.rule.holds}{_theory(finding)}",
        ]
    return "\n".join(lines)


def _theory(finding: "Finding") -> str:
    return "" if finding.theory is None else f"; theory {finding.theory:.4g}"


def _table(findings: "dict[str, list[Finding]]") -> str:
    rows = [
        (
            f"`{experiment}`",
            finding.paper,
            finding.claim.quantity,
            f"{finding.estimate}{_theory(finding)}",
            str(finding.claim.rule.holds),
            f"**{finding.verdict}**" if finding.verdict == "not confirmed" else finding.verdict,
        )
        for experiment, found in findings.items()
        for finding in found
        if finding.estimate
    ]
    head = ("experiment", "the paper says", "what we measure", "ours", "holds where", "verdict")
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(word.replace("|", "\\|") for word in line) + " |" for line in lines)


def _list(findings: "dict[str, list[Finding]]") -> str:
    verdicts = ("confirmed", "not confirmed", "undecided", "not run")
    rows = []
    for experiment, found in findings.items():
        counts = [sum(finding.verdict == verdict for finding in found) for verdict in verdicts]
        rows.append((experiment, str(len(found)), *(str(n) if n else "." for n in counts)))
    return columns(rows, ("experiment", "claims", *verdicts))


def _described(experiment: str, finding: "Finding", note: str | None) -> dict[str, Any]:
    claim = finding.claim
    said = {"experiment": experiment, "paper": finding.paper, "quantity": claim.quantity}
    ours = {key: getattr(finding.estimate, key, None) for key in ("mean", "low", "high", "n")}
    judged = {"holds": str(claim.rule.holds), **ours, "theory": finding.theory, "verdict": finding.verdict}
    return {**said, **judged, "checkout": note}
