"""Which tensors have a graph, and how large it is."""

from __future__ import annotations

from typing import Any

import pytest

from tb_gpudiag.training import tensor_holders
from tb_gpudiag.training.tensor_holders import graph_nodes, needing_gradients, node_kinds


def test_results_have_a_graph_and_leaves_need_gradients(torch: Any) -> None:
    weight = torch.ones(3, requires_grad=True)
    result = weight * 2
    attached, leaves = needing_gradients([torch.ones(3), weight, result, result.detach()])
    assert [id(one) for one in attached] == [id(result)]
    assert [id(one) for one in leaves] == [id(weight)]


def test_a_view_that_autograd_refuses_to_look_at_is_left_out(torch: Any) -> None:
    whole = torch.ones(2, 3, requires_grad=True) * 1
    view = whole.unbind(0)[0]
    whole.mul_(2)
    with pytest.raises(RuntimeError):
        _ = view.is_leaf
    attached, leaves = needing_gradients([view, whole])
    assert ([id(one) for one in attached], leaves) == ([id(whole)], [])


def test_nodes_of_graphs_are_counted_once(torch: Any) -> None:
    weight = torch.ones(3, requires_grad=True)
    shared = weight * 2
    first, second = shared.exp(), shared.sum()
    assert graph_nodes([first, second, shared], []) == 4  # with the one that adds to weight.grad
    assert graph_nodes([], [first.grad_fn]) == 3
    assert graph_nodes([], []) == 0


def test_nodes_are_counted_up_to_a_limit(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_holders, "MOST_NODES", 20)
    value = torch.ones(3, requires_grad=True)
    for _ in range(50):
        value = value * 2
    assert graph_nodes([value], []) == 20


def test_nodes_are_torchs_own_and_those_of_the_jobs_functions(torch: Any) -> None:
    class Twice(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(_: Any, value: Any) -> Any:
            return value * 2

    weight = torch.ones(3, requires_grad=True)
    own, torchs = type(Twice.apply(weight).grad_fn), type((weight * 2).grad_fn)
    assert {own, torchs} <= node_kinds({own, torchs, list})
    assert list not in node_kinds({own, torchs, list})
