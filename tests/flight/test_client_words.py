"""What a client is told that asks for tuples that are gone."""

from __future__ import annotations

import contextlib

import pytest

from holdfast.client import Client
from holdfast.core.messages import NotServed, SubscribeRefused
from holdfast.ports import free_port


@pytest.mark.parametrize("named", [True, False])
def test_a_client_that_the_deployment_names_is_not_told_to_be_named(named: bool) -> None:
    with contextlib.ExitStack() as held:
        nobody = {"main-1": f"grpc://127.0.0.1:{free_port('127.0.0.1', held)}"}
        client = held.enter_context(Client("out", nobody, name="mine", named=named))
        refusal = SubscribeRefused(7, NotServed.NOT_HERE, "not here: below 179, asked for 0")
        said = client._refused("main-1", refusal)
    assert "below 179, asked for 0" in said
    assert "next_id" in said
    assert ("name 'mine' in the deployment's file" in said) is not named
    assert ("An earlier life of 'mine' has acknowledged what is below" in said) is named
