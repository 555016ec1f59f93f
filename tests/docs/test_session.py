"""A page whose displayed output is not the real one is found, and can be rewritten."""

from pathlib import Path

import pytest

from docs.tools.session import Session, updated

PAGE = """
```yaml
# tiny.yaml
name: tiny
task: xor_clusters
parameters: {samples: 40, width: 10, test_samples: 100, steps: 5, frames: 2}
seeds: 2
resources: {pack: 2}
```

```console
$ mislabel run tiny.yaml --inline
tiny: 1 cell × 2 seeds = 2 runs; 1 pack on 1 worker, about 40 s
2 runs in 1 s: 2 done (5.00 µs per run-step)
...
```

```pycon
>>> 40 + 2
42
>>> for word in ("a", "b"):
...     print(word)
a
b
```
"""


def _differences(page: str, folder: Path) -> list[str]:
    return [shown.source for shown in Session(folder).run(page) if not shown.agrees]


@pytest.mark.long
def test_times_and_speeds_may_differ_and_dots_stand_for_any_lines(tmp_path: Path) -> None:
    assert _differences(PAGE, tmp_path) == []


@pytest.mark.long
@pytest.mark.parametrize(
    ("right", "wrong"), [("2 runs;", "3 runs;"), ("1 pack ", "2 packs "), ("42", "43"), ("\nb\n", "\nc\n")]
)
def test_a_changed_output_is_found_and_rewritten(right: str, wrong: str, tmp_path: Path) -> None:
    changed = PAGE.replace(right, wrong)
    for folder in ("checked", "updated"):
        (tmp_path / folder).mkdir()
    assert len(_differences(changed, tmp_path / "checked")) == 1
    assert right in updated(changed, tmp_path / "updated")


def test_a_command_that_would_start_ray_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        _differences(PAGE.replace(" --inline", ""), tmp_path)
