import { describe, expect, it, vi } from "vitest";
import { span } from "../../base/viewport";
import { usePage, type PageState } from "../../state/store";
import type { TimelineEvent } from "../../wire/report";
import { onKey, onTimelineKey, type Stage } from "./keys";

const bounds = { start_us: 0, end_us: 10_000 };
const view = { start_us: 2000, end_us: 3000 };
const event: TimelineEvent = {
  ...{ number: 12, name: "aten::mm", kind: 1, lane: 4, depth: 2 },
  ...{ start_us: 2100, duration_us: 50 },
};

function stage(more: Partial<Stage> = {}): Stage {
  const gaps = { longer: null, shorter: null };
  return { view, bounds, selected: null, gaps, search: vi.fn(), help: vi.fn(), ...more };
}

/** Press a key, and return what it changed on the page. */
function pressed(key: string, more: Partial<Stage> = {}, inLanes = true): Partial<PageState> | null {
  const before = usePage.getState();
  if (!onTimelineKey(key, inLanes, stage(more))) return null;
  const changed = Object.entries(usePage.getState()).filter(
    ([name, value]) => before[name as keyof PageState] !== value,
  );
  return Object.fromEntries(changed);
}

describe("without a selected event", () => {
  it("arrows, W, A, S and D pan by a part of the view, and zoom on its middle", () => {
    const right = { view: { start_us: 2200, end_us: 3200 } };
    const left = { view: { start_us: 1800, end_us: 2800 } };
    for (const key of ["ArrowRight", "d", "D"]) expect(pressed(key)).toEqual(right);
    for (const key of ["ArrowLeft", "a"]) expect(pressed(key)).toEqual(left);
    for (const key of ["ArrowUp", "w", "+", "="])
      expect(pressed(key)).toEqual({ view: { start_us: 2200, end_us: 2800 } });
    for (const key of ["ArrowDown", "s", "-"]) {
      const wider = pressed(key)?.view ?? view;
      expect(span(wider)).toBeCloseTo(1000 / 0.6);
      expect((wider.start_us + wider.end_us) / 2).toBeCloseTo(2500);
    }
  });

  it("0 shows the whole recording, and Home its start without zooming", () => {
    usePage.setState({ view });
    expect(pressed("0")).toEqual({ view: null });
    expect(pressed("Home")).toEqual({ view: { start_us: 0, end_us: 1000 } });
  });

  it("M selects what is visible, and Enter zooms to the selection", () => {
    expect(pressed("m")).toEqual({ selection: view });
    expect(pressed("Enter", { view: bounds })).toEqual({ view, selection: null });
    expect(pressed("Enter")).toEqual({});
  });
});

describe("with a selected event", () => {
  const selected = event;

  it("arrows go to the event before and after it, around it and in it", () => {
    const [lane, depth] = [4, 2];
    expect(pressed("ArrowLeft", { selected })?.event).toEqual({ lane, depth, start_us: 2100, previous: 1 });
    expect(pressed("ArrowRight", { selected })?.event).toEqual({ lane, depth, start_us: 2150 });
    expect(pressed("ArrowUp", { selected })?.event).toEqual({ lane, depth: 1, start_us: 2100 });
    expect(pressed("ArrowDown", { selected })?.event).toEqual({ lane, depth: 3, start_us: 2100 });
  });

  it("the next event after one without duration is another one", () => {
    const instant = { ...event, duration_us: 0 };
    const next = pressed("ArrowRight", { selected: instant })?.event;
    expect(next).toMatchObject({ lane: 4, depth: 2 });
    expect(next !== null && typeof next === "object" ? next.start_us : 0).toBeGreaterThan(2100);
  });

  it("nothing is around an outermost event", () => {
    expect(pressed("ArrowUp", { selected: { ...event, depth: 0 } })).toEqual({});
  });

  it("letters still pan and zoom, M selects its range, and Enter shows it with room around it", () => {
    expect(pressed("d", { selected })?.view).toEqual({ start_us: 2200, end_us: 3200 });
    usePage.setState({ event: 12 });
    expect(pressed("m", { selected })).toEqual({ selection: { start_us: 2100, end_us: 2150 }, event: null });
    const around = pressed("Enter", { selected })?.view;
    expect(around?.start_us).toBeLessThan(2100);
    expect(around?.end_us).toBeGreaterThan(2150);
  });
});

describe("everywhere", () => {
  it("N and P go to the next shorter and longer gap, if there is one", () => {
    const shorter = { device: 1, gap: 5, start_us: 4000, end_us: 4400 };
    const found = pressed("n", { gaps: { longer: null, shorter } });
    expect(found).toEqual({ gap: { device: 1, gap: 5 }, view: { start_us: 3900, end_us: 4500 } });
    expect(pressed("p", { gaps: { longer: null, shorter } })).toEqual({});
    expect(pressed("p", { gaps: { longer: { ...shorter, gap: 6 }, shorter } })?.gap).toEqual({
      device: 1,
      gap: 6,
    });
  });

  it("/ goes to the search field, and ? shows the keys", () => {
    const [search, help] = [vi.fn(), vi.fn()];
    expect(pressed("/", { search })).toEqual({});
    expect(search).toHaveBeenCalledOnce();
    expect(pressed("?", { help })).toEqual({});
    expect(help).toHaveBeenCalledOnce();
  });

  it("Escape closes what is open", () => {
    usePage.setState({ selection: view, gap: { device: 0, gap: 1 }, shown: { row: "x", place: 0 } });
    expect(pressed("Escape", {}, false)).toEqual({ selection: null, gap: null, shown: null });
  });

  it("keys that buttons and lists need do nothing while one of these has the focus", () => {
    for (const key of ["ArrowLeft", "ArrowUp", "Enter", "Home"])
      expect(pressed(key, { selected: event }, false)).toBeNull();
    expect(pressed("d", {}, false)).not.toBeNull();
  });

  it("other keys are left to the browser", () => {
    for (const key of ["x", "Tab", "F5"]) expect(pressed(key)).toBeNull();
    expect(onKey("n", view, bounds)).toBe(false);
  });
});
