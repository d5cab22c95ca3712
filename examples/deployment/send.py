"""Sends readings to the deployment beside this file and shows what comes out.

holdfast up examples/deployment/deployment.toml       # in one terminal
python examples/deployment/send.py                    # in another
holdfast chaos examples/deployment/deployment.toml kill entry-load    # in a third
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

import holdfast

DEPLOYMENT = Path(__file__).with_name("deployment.toml")


def send(stop: threading.Event) -> None:
    random = np.random.default_rng()
    with holdfast.Producer.of(DEPLOYMENT, "load", name="send.py") as producer:
        number = producer.tuples  # goes on where an earlier run stopped
        while not stop.wait(0.05):
            rows = {
                "number": np.arange(number, number + 50),
                "server": random.integers(0, 4, 50),
                "cpu": random.random(50),
            }
            producer.send(pa.table(rows))
            number += 50


def main(seconds: float = 60.0) -> None:
    stop = threading.Event()
    sender = threading.Thread(target=send, args=(stop,))
    sender.start()
    view = holdfast.View()
    end = time.monotonic() + seconds
    try:
        with holdfast.Client.of(DEPLOYMENT, "busy") as client:
            while time.monotonic() < end:
                event = client.read(1.0)
                if event is not None:
                    view.apply(event)
                if view.table is not None:
                    print(view.table.num_rows, "results, stable until", view.stable_until)
    finally:
        stop.set()
        sender.join()


if __name__ == "__main__":
    main()
