"""The environment variables that configure Ray and Tune for a sweep.

They are set while a sweep is connected or runs, not when a module is imported, and are restored afterwards: the process
may be a notebook that uses Ray for something else.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

_VARIABLES = {
    # Results and checkpoints go to the store: Tune keeps no record of its own.
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_GLOBAL_CHECKPOINT_S": "1000000000",
    "TUNE_WARN_SLOW_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "1000000000",
    # Our own handler lets packs checkpoint.
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    # Our own progress line is shown.
    "RAY_AIR_NEW_OUTPUT": "0",
    # Ray does not hide GPUs from actors that asked for none.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
_DEFAULTS = {"RAY_USAGE_STATS_ENABLED": "0"}


@contextmanager
def configured() -> Iterator[None]:
    """Set the variables in the body."""
    names = {*_VARIABLES, *_DEFAULTS}
    before = {name: os.environ[name] for name in names & os.environ.keys()}
    os.environ.update(_DEFAULTS | before | _VARIABLES)
    try:
        yield
    finally:
        for name in names:
            os.environ.pop(name, None)
        os.environ.update(before)
