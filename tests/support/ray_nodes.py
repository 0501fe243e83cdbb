"""One Ray cluster for the tests that follow each other: starting one takes ten seconds of a core, and a cluster that
nobody uses keeps part of a core busy. So `tests/conftest.py` puts these tests behind each other, and ends it behind the
last of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).resolve().parents[1]
IMPORTED = (TESTS / "support", TESTS / "loop" / "shared_tables")  # what tests hand to workers is defined there
LEAN = {"include_log_monitor": False}  # nobody reads its logs


class RayNodes:
    """Two nodes of this host with one processor each; workers are spread over them. As long as they are there, a node
    that a test adds has what the others have."""

    def __init__(self) -> None:
        self.cluster: Any = None
        self.patch = pytest.MonkeyPatch()

    def __call__(self) -> Any:
        """The cluster, started if it is not there."""
        if self.cluster is None:
            from ray.cluster_utils import Cluster

            self.patch.setenv("PYTHONPATH", os.pathsep.join(map(str, IMPORTED)), prepend=os.pathsep)
            head = {"num_cpus": 1, **LEAN, "include_dashboard": False, "no_monitor": True}
            self.cluster = Cluster(initialize_head=True, head_node_args=head)
            self.cluster.add_node(num_cpus=1, **LEAN)
        return self.cluster

    def end(self) -> None:
        if self.cluster is not None:
            self.cluster.shutdown()
            self.cluster = None
            self.patch.undo()
