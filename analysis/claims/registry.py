"""Check the claims of an experiment with the runs of a sweep. Each paper's module has the measures of its claims."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import ModuleType

from mislabel.analysis.claims import clean_priority, label_noise_sgd, misclassification, self_labeling, xor_clusters
from mislabel.analysis.claims.claim import Claim, Measure, Prediction, claims_of
from mislabel.analysis.claims.judging import Judgement, Verdict, judge
from mislabel.analysis.sweep import Sweep
from mislabel.sweeps.errors import MislabelError

_MODULES: dict[str, ModuleType] = {
    "clean-priority": clean_priority,
    "label-noise-sgd": label_noise_sgd,
    "misclassification": misclassification,
    "self-labeling": self_labeling,
    "xor-clusters": xor_clusters,
}


@dataclass(frozen=True)
class Finding:
    """A claim of an experiment and what the runs say about it."""

    experiment: str
    name: str
    claim: Claim
    judgement: Judgement
    theory: float | None = None
    """The theory's prediction for the quantity."""
    rule_is_newer: bool = False
    """Whether the rule was changed after some of the runs were launched."""

    @property
    def verdict(self) -> Verdict:
        return self.judgement.verdict


def measures(paper: str) -> dict[str, Measure]:
    """The measure of each claim of a paper, by the claim's name."""
    found: dict[str, Measure] = _MODULES[paper].MEASURES
    return found


def predictions(paper: str) -> dict[str, Prediction]:
    """The predictions that depend on the sweep's settings, by the claim's name."""
    found: dict[str, Prediction] = getattr(_MODULES[paper], "PREDICTIONS", {})
    return found


def not_tested(experiment: str, reason: str, quick: bool = False) -> list[Finding]:
    """The experiment's claims without runs."""
    missing = Judgement("not tested", reason)
    return [Finding(experiment, name, claim, missing, claim.theory) for name, claim in _chosen(experiment, quick)]


def findings(experiment: str, sweep: Sweep, quick: bool = False) -> list[Finding]:
    """Check each claim of the experiment."""
    launches = [launch.get("rules", {}) for launch in sweep.files.launches()]

    def found(name: str, claim: Claim) -> Finding:
        newer = not launches or any(rules.get(name) != claim.hash for rules in launches)
        return check(experiment, name, sweep, quick, newer)

    return [found(name, claim) for name, claim in _chosen(experiment, quick)]


def check(experiment: str, name: str, sweep: Sweep, quick: bool = False, rule_is_newer: bool = False) -> Finding:
    """Check one claim."""
    paper, claim = experiment.partition("/")[0], claims_of(experiment)[name]
    try:
        judgement = judge(claim, measures(paper)[name](sweep), quick)
        predict: Callable[[Sweep], float] | None = predictions(paper).get(name)
        theory = predict(sweep) if predict else claim.theory
    except (MislabelError, KeyError, ValueError) as error:
        judgement, theory = Judgement("not tested", f"can't be checked yet: {error}"), claim.theory
    return Finding(experiment, name, claim, judgement, theory, rule_is_newer)


def _chosen(experiment: str, quick: bool) -> Iterable[tuple[str, Claim]]:
    return [(name, claim) for name, claim in claims_of(experiment).items() if claim.quick or not quick]
