"""`make bench`: benchmarks with bounds. Each measures a ratio of two times in one run, or a time that users notice."""

import json
import sys
from pathlib import Path

from tests.benchmarks import (
    estimates,
    images,
    live,
    packing,
    reading,
    scale,
    search,
    self_labeling,
    spine,
    stopping,
    tracking,
)
from tests.benchmarks.figure import Figure


def main() -> int:
    wanted = set(sys.argv[1:])
    figures: list[Figure] = []
    modules = (spine, scale, live, reading, packing, images, search, stopping, self_labeling, estimates, tracking)
    for measure in (measure for module in modules for measure in module.MEASURES):
        if wanted and measure.__name__ not in wanted:
            continue
        print(f"… {measure.__name__.replace('_', ' ')}", file=sys.stderr, flush=True)
        for figure in measure():
            figures.append(figure)
            print(figure, flush=True)
    Path("results").mkdir(exist_ok=True)
    Path("results/bench.json").write_text(json.dumps([vars(figure) for figure in figures], indent=1))
    bounded = [figure for figure in figures if figure.bound is not None]
    met = sum(figure.met for figure in bounded)
    print(f"{met} of {len(bounded)} bounds met", file=sys.stderr)
    return 0 if met == len(bounded) else 1


sys.exit(main())
