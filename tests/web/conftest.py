"""Tests in a browser are there where a browser is; ``make test-all`` installs one."""

from __future__ import annotations

from benchmarks.web_browser import browser_path

collect_ignore_glob = [] if browser_path() else ["test_browser*.py"]
