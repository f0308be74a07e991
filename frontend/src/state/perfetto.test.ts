import { beforeEach, expect, test, vi } from "vitest";
import { openInPerfetto, PERFETTO } from "./perfetto";

const tab = { closed: false, postMessage: vi.fn() };
const open = vi.fn();
const trace = new ArrayBuffer(3);

beforeEach(() => {
  vi.useFakeTimers();
  tab.closed = false;
  tab.postMessage.mockReset();
  open.mockReturnValue(tab);
  vi.stubGlobal("open", open);
});

function answer(data: unknown, origin: string, source: unknown = tab): void {
  const event = new MessageEvent("message", { data, origin });
  Object.defineProperty(event, "source", { value: source });
  window.dispatchEvent(event);
}

test("the trace is sent once Perfetto answers, and to Perfetto only", async () => {
  const handed = openInPerfetto(trace, "run", "run.json.gz");
  vi.advanceTimersByTime(250);
  expect(tab.postMessage.mock.calls).toEqual([
    ["PING", PERFETTO],
    ["PING", PERFETTO],
  ]);
  answer("PONG", "https://evil.example");
  answer("PONG", PERFETTO, window);
  expect(tab.postMessage).toHaveBeenCalledTimes(2);
  answer("PONG", PERFETTO);
  expect(await handed).toBe("handed");
  expect(tab.postMessage).toHaveBeenLastCalledWith(
    { perfetto: { buffer: trace, title: "run", fileName: "run.json.gz" } },
    PERFETTO,
  );
});

test("a page that never answers, a closed tab and a blocked one are told apart from success", async () => {
  const silent = openInPerfetto(trace, "run", "run.json.gz");
  vi.advanceTimersByTime(60_000);
  expect(await silent).toBe("silent");
  const closed = openInPerfetto(trace, "run", "run.json.gz");
  tab.closed = true;
  vi.advanceTimersByTime(200);
  expect(await closed).toBe("silent");
  open.mockReturnValue(null);
  expect(await openInPerfetto(trace, "run", "run.json.gz")).toBe("blocked");
});
