"""Libraries that only some sources and sinks need: loaded when one is opened, never before."""

from __future__ import annotations

import importlib
from typing import Any

from holdfast.errors import InputError


def library(module: str, extra: str) -> Any:
    """The module, or InputError that says how to install it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise InputError(
            f"this needs the library {error.name or module!r}, which is not installed; install it "
            f"with pip install 'holdfast[{extra}]'"
        ) from None
