"""One Ray cluster for all tests here: two nodes with a processor each, on this machine.

What its nodes fetch is kept in another folder than what this process would.
"""

import faulthandler
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key


@pytest.fixture(autouse=True)
def _crashes_are_told(request: pytest.FixtureRequest) -> Iterator[None]:
    """Ray takes the place of the handler that prints where a process crashes, and keeps it to the end."""
    yield
    faulthandler.disable()
    faulthandler.enable(file=request.config.stash[fault_handler_stderr_fd_key])


@pytest.fixture(scope="session")
def kept_by_nodes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the nodes fetch is kept below."""
    return tmp_path_factory.mktemp("nodes") / "benchmarco"


@pytest.fixture(scope="session")
def cluster(kept_by_nodes: Path) -> Iterator[str]:
    """The cluster's address."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BENCHMARCO_CACHE", str(kept_by_nodes))
        idle = {"include_dashboard": False, "include_log_monitor": False, "no_monitor": True}
        started = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, **idle})
        started.add_node(num_cpus=1)
    yield started.address
    started.shutdown()
