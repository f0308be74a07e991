"""GD609: transfers without waiting, and which collectives they are."""

from __future__ import annotations

from typing import Any

from tb_gpudiag.digest.digest import Digest
from tb_gpudiag.rules.answer import CannotTell, Clear, Finding, Saving, Severity
from tb_gpudiag.wording.quantity import number
from tests.jobs.ranks.stage import MS, check_of, facts_of, job
from tests.wording.plain import plain

check = check_of("long_transfers")


def test_the_collectives_with_most_transfer_are_named() -> None:
    answer = check(facts_of(job(4, 5, transfer_ms=8)))
    assert isinstance(answer, Finding)
    assert plain(answer.title).endswith("most of them all-reduces of 1 MiB")
    assert answer.cost_ns == 5 * 2 * 8 * MS
    assert answer.saving is not None
    assert (answer.saving.low_ns, answer.saving.high_ns) == (0, answer.cost_ns)  # nobody waits


def test_on_a_cpu_a_fix_frees_the_transfers_and_no_more() -> None:
    answer = check(facts_of(job(4, 5, transfer_ms=8, about=lambda rank: {"devices": 0})))
    assert isinstance(answer, Finding)
    assert answer.saving == Saving(0, 5 * 16 * MS, "estimate")


def test_small_messages_are_to_be_fewer_and_not_smaller() -> None:
    def change(rank: int, number: int, row: dict[str, Any]) -> None:
        row["bytes"] = 240

    answer = check(facts_of(job(4, 5, transfer_ms=8, change=change)))
    assert isinstance(answer, Finding)
    assert "16 bits" not in answer.fix.text + answer.fix.code
    assert "torch.stack" in answer.fix.code


def broadcasts(sent: int) -> list[Digest]:
    """Each step reduces 1 MiB, and broadcasts `sent` bytes in two messages."""

    def change(rank: int, number: int, row: dict[str, Any]) -> None:
        if number % 3:
            row["kind"], row["bytes"] = "broadcast", sent // 2

    return job(2, 5, collectives=3, transfer_ms=0.5, change=change)


def test_weights_that_are_broadcast_again_are_found() -> None:
    answer = check(facts_of(broadcasts(1 << 20)))
    assert isinstance(answer, Finding)
    assert answer.title.startswith("Weights are broadcast in each step")
    assert answer.cost_ns == 5 * 2 * MS // 2
    assert "before the training" in answer.fix.text


def test_other_broadcasts_are_needed() -> None:
    assert isinstance(check(facts_of(broadcasts(1 << 16))), Clear)


def reductions(by_the_loop: int, **about: int) -> list[Digest]:
    """Each step reduces 1 MiB by hooks on gradients, and `by_the_loop` in two other messages."""

    def change(rank: int, number: int, row: dict[str, Any]) -> None:
        row["caller"], row["bytes"] = ("", by_the_loop // 2) if number % 3 else ("gradients", 1 << 20)
        row["called_at"] = "average (train.py)" if number % 3 else "step (train.py)"

    return job(2, 5, collectives=3, transfer_ms=0.5, change=change, about=lambda rank: about)


def test_gradients_that_are_reduced_twice_are_found() -> None:
    answer = check(facts_of(reductions((1 << 20) + 8)))  # and a loss
    assert isinstance(answer, Finding)
    assert answer.title.startswith("Gradients are reduced twice in each step")
    assert answer.cost_ns == 5 * 2 * MS // 2
    assert "average_gradients" in answer.fix.code
    assert [place.function for place in answer.places] == ["average"]
    assert isinstance(check(facts_of(reductions(1 << 19))), Clear)


def test_what_is_sent_again_is_no_hint_and_saves_at_least_its_transfers_on_a_cpu() -> None:
    for devices, least_ns in ((0, 5 * MS), (1, 0)):  # a GPU's host may take as long without them
        answer = check(facts_of(reductions(1 << 20, devices=devices)))
        assert isinstance(answer, Finding)
        assert answer.severity == Severity.WARNING
        assert answer.saving is not None
        assert answer.saving.low_ns == least_ns


def micro_batches(why: str, **about: int) -> list[Digest]:
    """Each step reduces in two micro-batches."""

    def change(rank: int, number: int, row: dict[str, Any]) -> None:
        row["why"] = "last_bucket" if number % 2 else why

    return job(2, 5, transfer_ms=1, change=change, about=lambda rank: about)


def test_gradients_that_are_reduced_in_each_micro_batch_are_found() -> None:
    answer = check(facts_of(micro_batches("reduced_again")))
    assert isinstance(answer, Finding)
    assert answer.title.startswith("Gradients are reduced in each micro-batch")
    assert answer.cost_ns == 5 * MS
    assert answer.saving is not None
    assert answer.saving.high_ns == 5 * MS
    assert "no_sync" in answer.fix.code
    assert isinstance(check(facts_of(micro_batches("after_computing"))), Clear)


def test_what_fsdp_sends_in_each_micro_batch_is_a_hint_as_it_saves_memory() -> None:
    def change(rank: int, place: int, row: dict[str, Any]) -> None:
        row["kind"] = ("reduce_scatter", "all_gather", "reduce_scatter")[place % 3]
        row["caller"], row["why"] = "fsdp", "waited_for" if place % 3 == 2 else "reduced_again"

    about = {"devices": 0}
    answer = check(facts_of(job(2, 5, collectives=3, transfer_ms=1, change=change, about=lambda rank: about)))
    assert isinstance(answer, Finding)
    assert answer.title.startswith("FSDP gathers weights and reduces gradients in each micro-batch")
    assert answer.severity == Severity.INFO
    assert answer.cost_ns == 5 * 2 * MS
    assert answer.saving is not None
    assert answer.saving.low_ns == 0
    assert "memory" in answer.summary
    assert "set_requires_gradient_sync" in answer.fix.code
    found = {one.label: one.value for one in answer.evidence}
    assert (found["Reductions"], found["Gathers"]) == (number(5), number(5))


def test_waiting_is_not_transfer() -> None:
    own = job(4, 5, own_ms=lambda rank, step: 20.0 if rank == 2 else 10.0, transfer_ms=0.5)
    assert isinstance(check(facts_of(own)), Clear)


def test_where_communication_is_most_of_the_time_its_transfers_are_said_sooner() -> None:
    """Transfers take 36% of the steps, in which ranks hardly wait, or for as long again."""

    def waiting(share: float) -> list[Digest]:
        own_ms = 10.0 / (1 + 3 * share)
        return job(
            2, 6, own_ms=lambda rank, step: own_ms * (1 + 3 * share * (rank == step % 2)), transfer_ms=3.2
        )

    assert isinstance(check(facts_of(waiting(0))), Clear)
    assert isinstance(check(facts_of(waiting(1))), Finding)


def test_a_size_that_was_not_recorded_is_not_said() -> None:
    def change(rank: int, number: int, row: dict[str, Any]) -> None:
        row["bytes"] = -1

    answer = check(facts_of(job(4, 5, transfer_ms=8, change=change)))
    assert isinstance(answer, Finding)
    assert plain(answer.title).endswith("most of them all-reduces")


def test_of_some_ranks_of_a_group_nothing_can_be_told() -> None:
    assert isinstance(check(facts_of(job(3, 5, transfer_ms=8)[:2])), CannotTell)


def test_an_optimizer_that_is_shared_out_has_to_send_its_weights() -> None:
    def change(rank: int, number: int, row: dict[str, Any]) -> None:
        if number % 3:
            row["kind"], row["bytes"], row["caller"] = "broadcast", 1 << 19, "optimizer"

    assert isinstance(check(facts_of(job(2, 5, collectives=3, transfer_ms=0.5, change=change))), Clear)


def in_forward(transfer_ms: float, mark: str = "DistributedDataParallel.forward") -> list[Digest]:
    """Each step broadcasts 32 MiB first, then reduces, which computing hides."""

    def change(rank: int, number: int, row: dict[str, Any]) -> None:
        if number % 2:
            row["exposed_ns"] = 0
        else:
            row["kind"], row["bytes"], row["annotation"] = "broadcast", 32 << 20, mark

    return job(2, 5, transfer_ms=transfer_ms, change=change)


def test_buffers_that_are_broadcast_before_each_forward_pass_are_found() -> None:
    answer = check(facts_of(in_forward(2)))
    assert isinstance(answer, Finding)
    assert answer.title.startswith("Buffers of the model are broadcast before each forward pass")
    assert answer.cost_ns == 5 * 2 * MS
    assert answer.saving is not None
    assert answer.saving.high_ns == 5 * 2 * MS
    assert "32 MiB" in plain(answer.summary)
    assert "broadcast_buffers=False" in answer.fix.code


def test_small_buffers_and_other_broadcasts_are_not_named() -> None:
    assert isinstance(check(facts_of(in_forward(0.5))), Clear)
    assert isinstance(check(facts_of(in_forward(2, mark="evaluate"))), Clear)
