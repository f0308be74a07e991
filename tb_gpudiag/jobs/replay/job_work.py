"""The work of a job's ranks, as a replay needs it: collectives, and what each rank did between them."""

from __future__ import annotations

from tb_gpudiag.arrays import Bool, Int64
from tb_gpudiag.frozen import dataclass


@dataclass(frozen=True, eq=False)
class JobWork:
    """Collectives of all ranks and the work between them. A member is a rank; all times are on one clock.

    Columns have shape (n,), by member and then start, if the comment says nothing else; p is the number of
    parts.
    """

    member: Int64
    collective: Int64  # number of the matched collective, or NONE
    kind: Int64  # transfers of the same kind and bytes should take as long
    bytes: Int64
    stream: Int64
    start_ns: Int64
    end_ns: Int64
    exposed_ns: Int64  # while nothing computes
    receives: Bool  # from one other rank
    kernels: Int64  # that compute and start since the member's previous start
    parts_ns: Int64  # what the member did since its previous start, without exposed communication; (n, p)
    rest_ns: Int64  # the same after the member's last start, shape (members, p)
    called_ns: Int64  # when the host called it
    host_parts_ns: Int64  # what the host did since its previous call, without being blocked; shape (n, p)
    begin_ns: Int64  # of the member's step window, shape (members,)
    finish_ns: Int64
    host: Int64  # where the member runs, shape (members,)
    part_names: tuple[str, ...]
    step: Int64  # that launched it, the same number on all members; NONE outside of steps

    def __len__(self) -> int:
        return len(self.member)

    @property
    def members(self) -> int:
        return len(self.begin_ns)
