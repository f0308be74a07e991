"""Open pages that poll and zoom, as one program, so that they do not share Python's lock with the server.

    python -m tests.benchmarks.tabs PLUGIN_ADDRESS TABS SECONDS ID…

Each page polls the list of traces, asks for its report until it is there, and then for the slices that
zooming in and out of the timeline needs. Prints the number of answers and the waiting times of the slices.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import math
import random
import sys
import time
import urllib.parse
from dataclasses import dataclass, field

POLL_S = 0.8
# A user who zooms all the time: the page waits for a pause, and many steps of the wheel share a slice.
ZOOM_S = 0.4
WIDTH_PX = 3072
DEEPEST = 12


@dataclass
class Tally:
    """What all pages have seen."""

    answers: int = 0
    slices_s: list[float] = field(default_factory=list)
    pending: int = 0


async def main() -> None:
    address, tabs, seconds, *ids = sys.argv[1:]
    tally = Tally()
    end_s = time.monotonic() + float(seconds)
    pages = [Page(address, ids[number % len(ids)], tally, number) for number in range(int(tabs))]
    await asyncio.gather(*(part for page in pages for part in (page.poll(end_s), page.zoom(end_s))))
    tally.slices_s.sort()
    print(json.dumps({"answers": tally.answers, "pending": tally.pending, "slices_s": tally.slices_s}))


class Page:
    """One open page."""

    def __init__(self, address: str, id_: str, tally: Tally, seed: int) -> None:
        self._url = urllib.parse.urlsplit(address)
        self._id = id_
        self._tally = tally
        self._chance = random.Random(seed)

    async def poll(self, end_s: float) -> None:
        known = -1
        while time.monotonic() < end_s:
            known = json.loads(await self._get(f"traces?known={known}"))["generation"]
            await asyncio.sleep(POLL_S * self._chance.uniform(0.5, 1.5))

    async def zoom(self, end_s: float) -> None:
        while time.monotonic() < end_s:
            if json.loads(await self._get(f"report?id={self._id}")).get("state") == "ready":
                break
            await asyncio.sleep(POLL_S)
        whole = json.loads(await self._get(f"timeline?id={self._id}&width={WIDTH_PX}"))
        begin_us, end_us = whole.get("start_us", 0.0), whole.get("end_us", 1.0)
        while time.monotonic() < end_s:
            length_us = (end_us - begin_us) / 2 ** self._chance.randrange(1, DEEPEST)
            grid_us = length_us / 4
            place = self._chance.randrange(max(1, math.floor((end_us - begin_us - length_us) / grid_us)))
            start_us = begin_us + place * grid_us
            began_s = time.monotonic()
            found = await self._get(
                f"timeline?id={self._id}&start_us={start_us}&end_us={start_us + length_us}&width={WIDTH_PX}"
            )
            self._tally.slices_s.append(time.monotonic() - began_s)
            self._tally.pending += b'"state":"ready"' not in found
            await asyncio.sleep(ZOOM_S * self._chance.uniform(0.5, 1.5))

    async def _get(self, route: str) -> bytes:
        """Return the body."""
        reader, writer = await asyncio.open_connection(self._url.hostname, self._url.port)
        path = f"{self._url.path}/{route}"
        writer.write(f"GET {path} HTTP/1.0\r\nHost: tensorboard\r\nAccept-Encoding: gzip\r\n\r\n".encode())
        answer = await reader.read()
        writer.close()
        self._tally.answers += 1
        return gzip.decompress(answer.partition(b"\r\n\r\n")[2])


if __name__ == "__main__":
    asyncio.run(main())
