"""Runs the router as in a pod, with the service account in another folder: `python -m bench.in_cluster FOLDER serve ...`."""

from __future__ import annotations

import sys
from pathlib import Path

from router.cli import main
from router.kube import cluster_access

if __name__ == "__main__":
    cluster_access.SERVICE_ACCOUNT_FOLDER = Path(sys.argv.pop(1))
    main()
