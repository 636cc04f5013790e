"""Virtual slices: groups of devices that clients have reserved.

A slice may move to other devices when workers are replaced or their number changes.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from meshwright.errors import ClusterError
from meshwright.features.cluster.controller.tenants import Session
from meshwright.features.cluster.wire.messages import Define, End, Request, WorkerTask


class Slices:
    """The devices of the slices of all sessions.

    A client names a slice by the positions that its devices had at first
    (`Session.slices`). If these devices no longer exist, `Session.moved` has the
    positions of others.
    """

    def __init__(self, sessions: Mapping[str, Session]) -> None:
        self._sessions = sessions
        self._numbers = itertools.count(1)

    def add(
        self, owner: Session, count: int, total: int
    ) -> tuple[int, tuple[int, ...]]:
        """The number and the positions of a new slice of `count` of `total` devices.

        Raises `ClusterError` if the tenant may not have so many.
        """
        self._require_devices(owner, count)
        number, devices = next(self._numbers), self._least_used(count, total)
        owner.slices[number] = devices
        return number, devices

    def fit(self, total: int) -> None:
        """Assign devices to each slice, after the gang has changed to `total` devices.

        A slice keeps the devices that it was given at first if they still exist. Otherwise
        it gets as many others. A slice larger than the gang has none until the gang grows.
        """
        self._fit(tuple(self._sessions.values()), total)

    def take_back(self, owner: Session, total: int) -> None:
        """Assign devices of `total` to the slices of a session that had none for a while.

        Raises `ClusterError` if other sessions of its tenant have taken too many.
        """
        self._require_devices(owner, sum(map(len, owner.slices.values())))
        self._fit((owner,), total)

    def _fit(self, sessions: Sequence[Session], total: int) -> None:
        homeless: list[tuple[Session, tuple[int, ...]]] = []
        for each in sessions:
            homes = dict.fromkeys(each.slices.values())
            each.moved = {home: None for home in homes if max(home) >= total}
            homeless += [(each, home) for home in each.moved if len(home) <= total]
        for session, home in homeless:
            session.moved[home] = self._least_used(len(home), total)

    def placed(self, session: str, request: Request | End) -> Request | End:
        """A request with the present positions of its devices, as workers need it."""
        owner = self._sessions.get(session)
        if owner is None or not isinstance(request, Define | WorkerTask):
            return request
        devices = owner.present(request.devices)
        if devices is None or devices == request.devices:
            return request
        return replace(request, devices=devices)

    def _least_used(self, count: int, total: int) -> tuple[int, ...]:
        """Positions of neighbouring devices that belong to as few slices as possible."""
        load = [0] * total
        for devices in self._all_present():
            for device in devices:
                load[device] += 1
        starts = range(0, total - count + 1, count)
        start = min(starts, key=lambda s: (max(load[s : s + count]), s))
        return tuple(range(start, start + count))

    def _all_present(self) -> Iterator[tuple[int, ...]]:
        for each in self._sessions.values():
            for devices in each.slices.values():
                yield each.present(devices) or ()

    def _require_devices(self, owner: Session, count: int) -> None:
        tenant = owner.tenant
        taken = sum(
            len(devices)
            for each in self._sessions.values()
            if each.tenant is tenant
            for devices in each.slices.values()
        )
        if taken + count > tenant.max_devices:
            raise ClusterError(
                f"tenant {tenant.name} may have {tenant.max_devices:.0f} devices and has "
                f"{taken}; release a slice, or ask for one of fewer than {count}"
            )
