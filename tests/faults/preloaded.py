"""What the server of forks imports: everything that a sweep of bowls uses."""
# ruff: noqa: F401

import importlib
import os

import torch

import mislabel
import mislabel.analysis.mlflow_view.view
import mislabel.analysis.statistics.ranking
import mislabel.sweeps.commands.results
import mislabel.sweeps.commands.run
import mislabel.sweeps.run.launch
import mislabel.sweeps.search.search
import tests.bowls
import tests.conftest
import tests.faults.bowl_sweeps
from mislabel.sweeps.run.provenance import _owners
from tests.cluster.objects import ENVIRONMENT

importlib.import_module("optuna.samplers._cmaes")
importlib.import_module("pyarrow.dataset")
importlib.import_module("mislabel.cluster.queue.fair_share")
os.environ.update(ENVIRONMENT)  # of the object store that topics start
torch.set_num_threads(1)
_owners("bowl")  # reads the files of all installed packages
