"""Python imports this file at the start of every process that a test starts, Ray's workers included."""

import os

if {"TEST_STEP_DELAY", "TEST_TRAIN_EVERY"} & os.environ.keys():
    import training_speed  # type: ignore[import-not-found]

    training_speed.change_on_import()
