"""`mislabel reproduce`: run a paper's experiment and check its claims."""

from typing import TYPE_CHECKING, Any

import click

from mislabel.sweeps.commands import options
from mislabel.sweeps.commands.options import say
from mislabel.sweeps.commands.run import Venue, run_and_report, tracking_uri_of
from mislabel.sweeps.commands.screen import columns
from mislabel.sweeps.errors import ExitCode
from mislabel.sweeps.formatting import count

if TYPE_CHECKING:
    from mislabel.analysis.claims.registry import Finding
    from mislabel.analysis.sweep import Sweep


@click.command()
@click.argument("names", nargs=-1, metavar="[all | PAPER | PAPER/FIGURE]…")
@options.store
@options.data
@options.mlflow
@options.sets
@click.option("--quick", is_flag=True, help="Run the small version of each experiment: minutes instead of an hour.")
@click.option("--check", is_flag=True, help="Run nothing; check the claims with the runs in the store.")
@click.option(
    "--fresh", is_flag=True,
    help="Run everything again, in a new empty store inside the store, and check the claims with these runs alone.",
)  # fmt: skip
@click.option("--inline", is_flag=True, help="Run in this process, without Ray.")
@click.option("--address", envvar="RAY_ADDRESS", metavar="RAY", help="A running Ray cluster. Default: start one here.")
@click.option("--no-mlflow", is_flag=True, help="Write no MLflow view now.")
@click.option("--markdown", is_flag=True, help="Print Markdown: a paper's page, or tables of claims.")
@options.as_json
def command(
    names: tuple[str, ...], store: str, tracking_uri: str | None, overrides: tuple[str, ...], quick: bool, check: bool,
    fresh: bool, inline: bool, address: str | None, no_mlflow: bool, markdown: bool, as_json: bool,
) -> int:  # fmt: skip
    """Run the papers' experiments with their settings and seeds, and check the papers' claims with the results.

    A claim is a quantity and a rule. A region is confirmed where the 95 % confidence
    interval over seeds lies inside it, and contradicted where it lies outside. A number of the paper is confirmed where
    our 95 % prediction interval contains it and is narrow enough, and contradicted where it does not contain it.

    \b
      mislabel reproduce                          # list all experiments and the state of their claims
      mislabel reproduce xor-clusters/theorem1    # run one, then check its claims
      mislabel reproduce all --quick              # the small version of all of them
      mislabel reproduce all --check              # check again, run nothing
      mislabel reproduce xor-clusters --fresh     # run a paper again from an empty store

    After an interruption, the same command continues. Exit code 1: a run failed, or a claim was contradicted.
    """
    from mislabel.sweeps.papers.bundled import chosen_experiments, examples

    chosen = chosen_experiments(names)
    if fresh:
        store = _fresh_store(store, names, check)
    code: int = ExitCode.DONE
    if names and not check:
        code = _run(chosen, store, tracking_uri, overrides, quick, Venue(inline, address), no_mlflow)
        if code == ExitCode.INTERRUPTED:
            return code
    findings = {experiment: _findings(experiment, store, quick) for experiment in chosen}
    notes = {experiment: note for experiment in chosen if (note := _checkout_note(experiment, store, quick))}
    if as_json:
        options.put_json(
            [_described(finding, notes.get(name)) for name, found in findings.items() for finding in found]
        )
    elif markdown:
        click.echo(_markdown(names, findings, notes, store))
    elif names:
        from mislabel.analysis.claims.page import summary

        pages = [_page(name, found, notes.get(name)) for name, found in findings.items() if found]
        click.echo("\n\n".join([*pages, summary([finding for found in findings.values() for finding in found])]))
    else:
        click.echo(_list(findings))
        click.echo(f"\n{_coverage()}")
        say("`mislabel reproduce NAME` runs one and checks its claims; `plan`, `run` and `submit` take these names too")
        say(f"examples without claims, for `plan`, `run` and `submit`: {', '.join(examples())}")
    contradicted = any(finding.verdict == "contradicted" for found in findings.values() for finding in found)
    return code or (ExitCode.FAILED if names and contradicted else ExitCode.DONE)


def _fresh_store(store: str, names: tuple[str, ...], check: bool) -> str:
    """The address of a new store inside the store."""
    from datetime import UTC, datetime

    from mislabel.sweeps.store.filesystem import within

    if check or not names:
        raise click.UsageError("--fresh runs experiments: name them, and leave out --check")
    found = within(store, f"fresh-{datetime.now(UTC):%Y%m%dT%H%M%S}")
    say(f"runs go to {found}; after an interruption, continue with --store {found} instead of --fresh")
    return found


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
    from mislabel.analysis.claims.registry import findings, not_tested
    from mislabel.sweeps.papers.bundled import sweep_name
    from mislabel.sweeps.store.store import Store

    name = sweep_name(experiment, quick)
    if name not in Store(store).names():
        return not_tested(experiment, "not run", quick)
    sweep = mislabel.load(store, name)
    if absent := _absent_cells(sweep):
        return not_tested(experiment, f"{count(absent, 'cell')} of the spec have no run", quick)
    return findings(experiment, sweep, quick)


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
    from mislabel.analysis.claims.page import ours, reason

    lines = [experiment, *([f"  note: {note}"] if note else [])]
    for finding in findings:
        claim, why = finding.claim, reason(finding)
        lines += [
            f"  {finding.verdict.upper():<14}{claim.statement}",
            f"{'':<16}{claim.quantity}: {ours(finding)}, holds where {claim.rule}",
            *([f"{'':<16}{why}"] if why else []),
        ]
    return "\n".join(lines)


def _markdown(names: tuple[str, ...], findings: "dict[str, list[Finding]]", notes: dict[str, str], store: str) -> str:
    """The pages of papers that were named as a whole, or a table per experiment."""
    from mislabel.analysis.claims.claim import papers
    from mislabel.analysis.claims.page import claims_table, page, summary

    if set(names) <= set(papers()):
        return "\n".join(page(name, store).rstrip() for name in names or papers())
    parts = []
    for experiment, found in findings.items():
        parts += [f"### {experiment}", claims_table(found)]
        parts += [f"Note: {notes[experiment]}."] if experiment in notes else []
    return "\n\n".join([*parts, summary([finding for found in findings.values() for finding in found])])


def _list(findings: "dict[str, list[Finding]]") -> str:
    from mislabel.analysis.claims.page import counts

    rows = [
        (experiment, str(len(found)), *(str(n) if n else "." for n in counts(found).values()))
        for experiment, found in findings.items()
    ]
    return columns(rows, ("experiment", "claims", *counts([])))


def _coverage() -> str:
    """How many figures, tables, theorems and statements of each paper have a claim."""
    from mislabel.analysis.claims.claim import paper, papers

    rows = [(name, *map(str, paper(name).coverage)) for name in papers()]
    return columns(rows, ("paper", "items with claims", "items"))


def _described(finding: "Finding", note: str | None) -> dict[str, Any]:
    claim, judgement = finding.claim, finding.judgement
    ours = {key: getattr(judgement.estimate, key, None) for key in ("mean", "low", "high", "n")}
    return {
        "experiment": finding.experiment,
        "claim": finding.name,
        "item": claim.item,
        "says": claim.says,
        "quantity": claim.quantity,
        "holds": str(claim.rule),
        "origin": claim.origin,
        "rule": claim.hash,
        **ours,
        "predicted": judgement.prediction,
        "cell": judgement.cell,
        "theory": finding.theory,
        "verdict": finding.verdict,
        "reason": judgement.reason,
        "seeds_needed": judgement.seeds_needed,
        "rule_is_newer": finding.rule_is_newer,
        "checkout": note,
    }
