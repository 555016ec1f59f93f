from sweeps.bundled import experiments
from sweeps.store import Store
from tests.sweeps.commands.conftest import Mislabel

SMALL = (
    "--quick", "--inline", "--no-mlflow", "--set", "seeds=2", "--set", "parameters.dim={values: [20, 40]}",
    "--set", "parameters.samples=80", "--set", "parameters.width=20", "--set", "parameters.test_samples=40",
)  # fmt: skip


def test_without_a_name_all_experiments_are_listed_and_nothing_is_run(mislabel: Mislabel) -> None:
    said = mislabel("reproduce")
    assert said.code == 0
    assert [line.split()[0] for line in said.out.splitlines()[1:]] == experiments()
    assert Store("results").names() == []


def test_an_experiment_is_run_and_its_claims_are_judged(mislabel: Mislabel) -> None:
    said = mislabel("reproduce", "xor-clusters/theorem1", *SMALL)
    assert said.code in (0, 1)
    assert "[1/1] xor-clusters/theorem1" in said.err
    assert said.out.startswith("xor-clusters/theorem1\n  ")
    assert Store("results").names() == ["xor-clusters.theorem1-quick"]
    findings = mislabel("reproduce", "xor-clusters/theorem1", "--quick", "--check", "--json").json
    assert findings
    assert {finding["verdict"] for finding in findings} <= {"confirmed", "not confirmed", "undecided"}
    unconfirmed = any(finding["verdict"] == "not confirmed" for finding in findings)
    assert said.code == (1 if unconfirmed else 0)


def test_a_claim_of_an_experiment_that_was_not_run_is_not_judged(mislabel: Mislabel) -> None:
    said = mislabel("reproduce", "xor-clusters/theorem1", "--check", "--json")
    assert said.code == 0
    assert {finding["verdict"] for finding in said.json} == {"not run"}


def test_an_experiment_that_is_not_bundled_is_named_with_the_nearest(mislabel: Mislabel) -> None:
    said = mislabel("reproduce", "xor-clusters/theorem2")
    assert said.code == 2
    assert said.out == ""
    assert "did you mean xor-clusters/theorem1?" in said.err
