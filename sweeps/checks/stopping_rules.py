"""Check that `early_terminate` can compare the sweep's runs and stop some of them."""

from collections.abc import Iterator
from typing import Any

from mislabel.sweeps.checks.draft import Draft
from mislabel.sweeps.spec.messages import Mistake
from mislabel.sweeps.stopping.rules import decision_steps, shortest_run
from mislabel.tasks.training import measured_steps


def stopping_rules(draft: Draft) -> Iterator[Mistake]:
    spec, task, wanted = draft.spec, draft.task, draft.spec.early_terminate
    if wanted is None or not draft.sound("early_terminate.type"):
        return
    if draft.sound("metric") and len(spec.metric) != 1:
        remedy = "keep one, or remove this" if spec.metric else "add metric: {name: .., goal: minimize}"
        text = f"compares runs by exactly one objective, not {len(spec.metric)}; {remedy}"
        yield Mistake(("early_terminate",), text)
    if task is None or not draft.sound("early_terminate.min_steps", "parameters.steps"):
        return
    shortest = shortest_run(spec, task)
    path = ("early_terminate", "min_steps")
    if wanted.min_steps >= shortest:
        yield Mistake(path, f"{wanted.min_steps} is not below steps = {shortest}; no run would be stopped")
    elif draft.sound("early_terminate.eta", "parameters.frames", "parameters.spacing"):
        values: dict[str, Any] = {name: parameter.default for name, parameter in task.parameters.items()}
        values |= {name: value for name, value in spec.fixed().items() if name in values}
        measured = measured_steps(task.settings({**values, "steps": shortest}))
        if not any(step >= wanted.min_steps for step in decision_steps(wanted, measured)):
            text = f"no step but the last is measured from {wanted.min_steps} on; raise parameters.frames, or lower it"
            yield Mistake(path, text)
