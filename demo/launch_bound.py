"""GD201 launch_bound: hundreds of kernels so short that the GPU waits for each launch.

The fix: capture them as a CUDA graph once, and launch the graph.
"""

from __future__ import annotations

import torch
from torch import nn

from common import needs_gpu, parse, record


def main() -> None:
    arguments = parse(__doc__)
    needs_gpu(arguments, "there is nothing to launch")
    layers = [layer for _ in range(200) for layer in (nn.Linear(128, 128), nn.LayerNorm(128), nn.GELU())]
    model = nn.Sequential(*layers).to(arguments.device).eval()
    x = torch.rand(16, 128, device=arguments.device)

    @torch.no_grad()
    def eager() -> None:
        model(x)

    for _ in range(3):
        eager()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        eager()
    record(graph.replay if arguments.fixed else eager, arguments.logdir)


if __name__ == "__main__":
    main()
