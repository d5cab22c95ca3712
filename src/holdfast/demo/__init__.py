"""``holdfast demo``: a minute of wide-area monitoring, after the demonstration of Borealis-R."""

from holdfast.demo.run import run_demo

__all__ = ["run_demo"]
