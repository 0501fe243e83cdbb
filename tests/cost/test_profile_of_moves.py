"""What was measured of copies to the large memory is kept in a profile, and becomes the machine's."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest
from test_store_damaged import PROFILE

from girih.cost.profile import Moving, parse_profile
from girih.machine import MachineError, machine

MOVING = Moving(4e9, 2e9, 1e-4, 0.4)


def test_a_profile_has_what_copies_take() -> None:
    profile = replace(PROFILE, moving=MOVING)
    text = json.dumps(asdict(profile))
    assert parse_profile(text) == profile
    host = profile.applied(machine(profile.machine)).host
    assert host is not None
    assert (host.out_bytes_per_second, host.in_bytes_per_second) == (4e9, 2e9)
    assert (host.latency_seconds, host.computing_share) == (1e-4, 0.4)
    old = json.loads(text)
    del old["moving"]
    assert parse_profile(json.dumps(old)).applied(machine(profile.machine)).host == machine(profile.machine).host
    with pytest.raises(MachineError, match="this is no profile"):
        parse_profile(json.dumps({**old, "moving": {**asdict(MOVING), "share": 2.0}}))
