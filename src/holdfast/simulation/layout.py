"""Where the processes of a simulated network run, and what a schedule must know of that."""

from __future__ import annotations

from itertools import combinations
from random import Random

from holdfast.core.heirs import places_of
from holdfast.core.settings import Protection
from holdfast.simulation.faults import Targets
from holdfast.simulation.networks import Fragment, NetworkSpec


def place(spec: NetworkSpec, random: Random) -> dict[str, str]:
    """A server for every process; partners never share one.

    Shards form a ring: the second replica of each is where the next one's first is, or an heir's.
    """
    shared = random.random() < 0.5
    servers = {}
    for index, fragment in enumerate(spec.fragments):
        for number, address in enumerate(fragment.addresses):
            servers[address] = f"m{number}" if shared else f"m{index}{number}"
            if fragment.plan.shard is not None and not shared:
                servers[address] = f"m{fragment.name.partition('.')[0]}{_place(fragment, number)}"
    servers |= {entry.address: f"e{index}" for index, entry in enumerate(spec.entries)}
    servers |= {client.address: f"c{index}" for index, client in enumerate(spec.clients)}
    return servers


def _place(fragment: Fragment, copy: int) -> int:
    """The shard of the ring at which a copy of a shard, or of a part of one, is."""
    assert fragment.plan.shard is not None
    number, shards = fragment.plan.shard
    shard, part = divmod(number - 1, fragment.parts)
    copies = len(fragment.addresses)
    ring = max(shards // fragment.parts, copies)
    return places_of(shard + 1, part + 1, ring, copies)[copy] - 1


def layout_of(spec: NetworkSpec, server_of: dict[str, str]) -> Targets:
    """What a schedule needs to know of a network and where it runs."""
    pairs = set()
    producers = spec.producers
    reads: dict[str, dict[str, None]] = {}

    def servers_of(fragment: Fragment) -> tuple[str, ...]:
        return tuple(server_of[name] for name in fragment.addresses)

    for address, settings in spec.replica_settings().items():
        names = [name for one in settings.inputs for name in producers[one.stream]]
        pairs |= {(server_of[name], server_of[address]) for name in names}
        pairs |= {(server_of[name], server_of[address]) for name in settings.partners}
        found = reads.setdefault(server_of[address], {})
        found |= dict.fromkeys(server_of[name] for name in names)
    copies = [(one.standby, servers_of(one)) for one in spec.fragments if one.standby is not None]
    pairs |= {pair for _, servers in copies for pair in combinations(servers, 2)}
    for client in spec.clients:
        names = list(client.input.producers)
        pairs |= {(server_of[name], server_of[client.address]) for name in names}
    return Targets(
        sorted(set(server_of.values())),
        sorted(pair for pair in pairs if pair[0] != pair[1]),
        [servers_of(one) for one in spec.fragments],
        {one: tuple(name for name in found if name != one) for one, found in reads.items()},
        [servers for _, servers in copies],
        [
            servers
            for pair, servers in copies
            if pair.benchmarks and pair.protection is Protection.HYBRID
        ],
    )
