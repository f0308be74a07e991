import { expect, it, vi } from "vitest";
import { address, fetchReport, fetchSlice, fetchTraces, ServerError, within } from "./client";

function serve(status: number, body: unknown) {
  const fetched = vi.fn<typeof fetch>(() => Promise.resolve(new Response(JSON.stringify(body), { status })));
  vi.stubGlobal("fetch", fetched);
  return fetched;
}

it("uses relative URLs, so that any path prefix works", () => {
  expect(address("report", { id: "a&b=c/ü" })).toBe("./report?id=a%26b%3Dc%2F%C3%BC");
  expect(address("traces")).toBe("./traces");
});

it("requests a slice or the whole trace", async () => {
  const fetched = serve(200, { state: "ready" });
  await fetchSlice("timeline", "x", { ...within({ start_us: 1.5, end_us: 2 }), width: 512 });
  await fetchSlice("timeline", "x", { ...within(null), width: 512 });
  await fetchSlice("gap", "x", { device: 0, gap: 3 });
  expect(fetched.mock.calls.map(([url]) => url)).toEqual([
    "./timeline?id=x&start_us=1.5&end_us=2&width=512",
    "./timeline?id=x&width=512",
    "./gap?id=x&device=0&gap=3",
  ]);
});

it("keeps the known list of traces until it changes", async () => {
  const x = { id: "x", run: "r", worker: "w", span: "1" };
  serve(200, { generation: 7, traces: [x], unchanged: false, whole: true });
  const known = await fetchTraces();
  const fetched = serve(200, { generation: 7, traces: [], unchanged: true });
  expect(await fetchTraces(known)).toBe(known);
  expect(fetched.mock.calls[0]?.[0]).toBe("./traces?known=7");
  serve(200, { generation: 8, traces: [], removed: ["x"], unchanged: false });
  const later = await fetchTraces(known);
  expect([later.generation, later.traces]).toEqual([8, []]);
});

it("requests the list of traces until it has all parts", async () => {
  const part = (id: string, more: object) => ({
    traces: [{ id, run: id, worker: "", span: "" }],
    removed: [],
    ...more,
  });
  const parts = [
    part("b", { generation: 1, whole: true, more: true }),
    part("c", { generation: 2, more: true }),
    part("a", { generation: 3 }),
  ];
  const fetched = vi.fn<(url: string) => Promise<Response>>(() =>
    Promise.resolve(new Response(JSON.stringify(parts.shift()))),
  );
  vi.stubGlobal("fetch", fetched);
  const list = await fetchTraces();
  expect(list.traces.map(({ id }) => id)).toEqual(["a", "b", "c"]);
  expect(fetched.mock.calls.map(([url]) => url)).toEqual([
    "./traces",
    "./traces?known=1",
    "./traces?known=2",
  ]);
});

it("passes the signal on, so that requests can be aborted", async () => {
  const fetched = serve(200, {});
  const { signal } = new AbortController();
  await fetchReport("x", signal);
  expect(fetched.mock.calls[0]?.[1]?.signal).toBe(signal);
});

it("reports which route failed, and with which status", async () => {
  serve(404, {});
  await expect(fetchReport("gone")).rejects.toEqual(new ServerError("report", 404));
});
