"""Which digests belong together. What does not is said, and nothing is guessed."""

from __future__ import annotations

from dataclasses import replace

from tb_gpudiag.digest.digest import Digest
from tb_gpudiag.jobs.ranks.members import find_sets
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.wording.good_recording import THINNED_TITLE
from tests.jobs.ranks.stage import MS, job

HOUR = 3_600_000


def other_time(digest: Digest, ms: float, **about: object) -> Digest:
    """The same digest, recorded later."""
    origin = digest.about.origin_ns + round(ms * MS)
    id = f"{digest.about.id}+{ms}"
    return replace(digest, about=replace(digest.about, origin_ns=origin, id=id, **about))  # type: ignore[arg-type]


def test_ranks_of_a_run_are_a_set() -> None:
    found = find_sets(job(4))
    assert [(one.world_size, one.ranks, one.missing, one.notes) for one in found.sets] == [
        (4, [0, 1, 2, 3], (), ())
    ]
    assert not found.notes


def test_ranks_of_which_most_events_were_removed_are_left_out() -> None:
    one, *others = job(3)
    thinned = replace(one, findings=[pb.Finding(rule="GD906", title=THINNED_TITLE)])
    found = find_sets([thinned, *others])
    assert [one.ranks for one in found.sets] == [[1, 2]]
    assert [note for note in found.notes if "events were removed" in note]


def test_missing_ranks_are_named() -> None:
    (found,) = find_sets(job(4)[:2]).sets
    assert found.missing == (2, 3)
    assert found.notes == ("2 ranks of 4 missing: 2, 3",)


def test_a_world_of_1024_with_two_files() -> None:
    digests = job(2, about=lambda rank: {"world_size": 1024})
    (found,) = find_sets(digests).sets
    assert len(found.missing) == 1022
    assert found.notes == ("1,022 ranks of 1,024 missing: 2, 3, 4, 5, 6, 7, 8, 9 and 1,014 more",)


def test_jobs_of_different_size_in_one_folder_are_two_sets() -> None:
    found = find_sets([*job(4), *job(2, about=lambda rank: {"id": f"small{rank}"})])
    assert [(one.world_size, len(one.members)) for one in found.sets] == [(2, 2), (4, 4)]
    assert all("ranks of different jobs" in one.notes[0] for one in found.sets)


def test_two_recordings_of_a_job_are_two_sets() -> None:
    first = job(2)
    found = find_sets([*first, *(other_time(digest, 60_000) for digest in first)])
    assert [one.ranks for one in found.sets] == [[0, 1], [0, 1]]
    assert "2 recordings of this job" in found.sets[0].notes[0]


def test_a_copy_of_a_file_counts_once() -> None:
    digests = job(2)
    found = find_sets([*digests, other_time(digests[1], 0, path="copy.json")])
    assert found.sets[0].ranks == [0, 1]
    assert found.notes == ["“copy.json” is the same recording as another file: it counts once"]


def test_of_two_recordings_of_one_rank_at_one_time_none_is_used() -> None:
    digests = job(3)
    found = find_sets([*digests, other_time(digests[1], 1)])
    assert found.sets[0].ranks == [0, 2]
    assert found.sets[0].missing == (1,)
    assert "Rank 1 has 2 recordings of the same time" in found.notes[0]


def test_a_recording_from_another_time_is_left_out() -> None:
    digests = job(3)
    found = find_sets([*digests[:2], other_time(digests[2], HOUR)])
    # Numbers of the collectives agree, so on another host this may be a wrong clock.
    assert found.sets[0].ranks == [0, 1, 2]
    unnumbered = job(3, sequence=False)
    found = find_sets([*unnumbered[:2], other_time(unnumbered[2], HOUR)])
    assert found.sets[0].ranks == [0, 1]
    assert "rank 2" in found.notes[0]


def test_clocks_of_two_hosts_may_be_off_by_hours() -> None:
    digests = job(4, host=lambda rank: f"node{rank // 2}", offset_ms=lambda rank: 5 * HOUR * (rank // 2))
    (found,) = find_sets(digests).sets
    assert found.ranks == [0, 1, 2, 3]


def test_a_truncated_trace_is_said() -> None:
    digests = job(2, about=lambda rank: {"status": "PARTIAL" if rank else "COMPLETE"})
    assert find_sets(digests).sets[0].notes == (
        "The recording of rank 1 is truncated or still being written",
    )


def test_a_trace_without_a_rank_is_said() -> None:
    found = find_sets(job(3, about=lambda rank: {"rank": -1 if rank == 2 else rank, "world_size": 0}))
    assert found.sets[0].ranks == [0, 1]
    assert "does not say which rank it is" in found.notes[0]
    assert "how many ranks the job has" in found.sets[0].notes[0]


def test_groups_that_ranks_disagree_on_are_said() -> None:
    digests = job(3, about=lambda rank: {"groups": {"0": [0, 1] if rank == 2 else [0, 1, 2]}})
    assert find_sets(digests).sets[0].notes == ("Ranks 0 and 2 disagree on process group “0”: 3 and 2 ranks",)


def test_one_rank_alone_is_no_set() -> None:
    found = find_sets(job(4)[:1])
    assert not found.sets
    assert "no other rank" in found.notes[0]
