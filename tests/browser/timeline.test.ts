// The timeline, and the table rows that are shown on it.

import { describe, expect, it } from "vitest";
import { tableOf } from "../../frontend/src/base/tables";
import { aired, AROUND_US } from "../../frontend/src/base/viewport";
import type { Report, StepAccount, TimeRange, Timeline } from "../../frontend/src/wire/report";
import { tabFrame } from "./browser";
import type { ViewName } from "../../frontend/src/base/hash";
import { goTo, Session, shownTime, timelineOf } from "./session";

const RUN = "input_pipeline";

const session = new Session();

function stepRange({ start_us, duration_us }: StepAccount): TimeRange {
  return { start_us, end_us: start_us + duration_us, device: 0 };
}

describe("the timeline", () => {
  it("zooms with the wheel at the pointer, and pans by dragging", async () => {
    const frame = await session.openTimeline(RUN);
    const before = await shownTime(frame).innerText();
    const box = await frame.locator(".gd-lanes canvas").boundingBox();
    if (!box) throw new Error("the timeline is not on the screen");
    const { mouse } = session.page;
    await mouse.move(box.x + box.width / 2, box.y + 90, { steps: 3 });
    await mouse.wheel(0, -400);
    await expect.poll(() => shownTime(frame).innerText()).not.toBe(before);
    const zoomed = await session.untilHash((hash) => hash.includes("t0="));
    const start = (hash: string) => Number(/t0=([\d.]+)/.exec(hash)?.[1]);
    await mouse.down();
    await mouse.move(box.x + box.width / 2 + 200, box.y + 90, { steps: 4 });
    await mouse.up();
    await session.untilHash((hash) => start(hash) < start(zoomed));
    await timelineOf(frame).getByRole("button", { name: "Fit" }).click();
    await session.untilHash((hash) => !hash.includes("t0="));
    await expect.poll(() => shownTime(frame).innerText()).toBe(before);
  });

  it("selects a range, and zooms to it", async () => {
    const frame = await session.openTimeline(RUN);
    const before = await shownTime(frame).innerText();
    const box = await frame.locator(".gd-lanes canvas").boundingBox();
    if (!box) throw new Error("the timeline is not on the screen");
    const { mouse, keyboard } = session.page;
    await keyboard.down("Shift");
    await mouse.move(box.x + 100, box.y + 90);
    await mouse.down();
    await mouse.move(box.x + 300, box.y + 90, { steps: 4 });
    await mouse.up();
    await keyboard.up("Shift");
    await frame.locator(".gd-gap").getByRole("button", { name: "Zoom in" }).click();
    await expect.poll(() => shownTime(frame).innerText()).not.toBe(before);
  });

  it("selects on the ruler: a range by dragging, a step by a click", async () => {
    const { id } = await session.entryOf(RUN);
    const frame = await session.openTimeline(RUN);
    const { steps, start_us, end_us } = (await session.tensorboard.get(
      `timeline?id=${id}&width=1000`,
    )) as Timeline;
    const box = await frame.locator(".gd-lanes canvas").boundingBox();
    const step = steps[1];
    if (!box || !step) throw new Error("the timeline is not on the screen, or has no second step");
    const before = await shownTime(frame).innerText();
    const { mouse } = session.page;
    const selected = frame.locator(".gd-gap h3");
    await mouse.move(box.x + 100, box.y + 10);
    await mouse.down();
    await mouse.move(box.x + 300, box.y + 10, { steps: 4 });
    await mouse.up();
    const drawn = await selected.innerText();
    await expect.poll(() => shownTime(frame).innerText()).toBe(before);
    const middle = ((step.start_us + step.end_us) / 2 - start_us) / (end_us - start_us);
    // Statistics of the range have appeared next to the lanes, which are narrower now.
    const canvas = frame.locator(".gd-lanes canvas");
    await expect.poll(async () => (await canvas.boundingBox())?.width).toBeLessThan(box.width);
    const narrower = (await canvas.boundingBox()) ?? box;
    await mouse.click(narrower.x + middle * narrower.width, narrower.y + 28);
    await expect.poll(() => selected.innerText()).not.toBe(drawn);
    await frame.locator(".gd-gap").getByRole("button", { name: "Zoom in" }).click();
    await session.untilHash(
      (hash) =>
        hash.includes(`t0=${step.start_us.toFixed(3)}&`) && hash.includes(`t1=${step.end_us.toFixed(3)}`),
    );
  });

  it("describes what is under the pointer, and explains a gap that is clicked", async () => {
    const { id } = await session.entryOf(RUN);
    const frame = await session.openTimeline(RUN);
    const timeline = (await session.tensorboard.get(`timeline?id=${id}&width=1000`)) as Timeline;
    const lane = timeline.lanes.find(({ kind }) => kind === "gaps");
    const lengths = lane?.box_duration_us ?? [];
    const at = lengths.indexOf(Math.max(...lengths));
    const middle = (lane?.box_start_us[at] ?? 0) + (lengths[at] ?? 0) / 2;
    const share = (middle - timeline.start_us) / (timeline.end_us - timeline.start_us);
    const box = await frame.locator(".gd-lanes canvas").boundingBox();
    if (!box) throw new Error("the timeline is not on the screen");
    const spot = [box.x + share * box.width, box.y + 50] as const;
    await session.page.mouse.move(...spot);
    await frame.getByRole("tooltip").filter({ hasText: "Data loading" }).waitFor();
    await session.page.mouse.click(...spot);
    const panel = frame.getByRole("complementary", {
      name: "Selected gap",
    });
    await panel.getByText("Launched by").waitFor();
    const text = await panel.innerText();
    expect(text).toContain("On the host during the gap");
    expect(text).toContain("Data loading");
    expect(text).toContain("On the GPU after the gap");
  });

  it("paints the queue depth, and shows it under the pointer", async () => {
    const { id } = await session.entryOf(RUN);
    const frame = await session.openTimeline(RUN);
    const timeline = (await session.tensorboard.get(`timeline?id=${id}&width=1000`)) as Timeline;
    const queue = timeline.lanes.find(({ kind }) => kind === "queue");
    const times = queue?.queue?.time_us ?? [];
    const depths = queue?.queue?.low ?? [];
    const whole_us = timeline.end_us - timeline.start_us;
    /** Middle of the longest stretch with such a depth, as a share of the lanes' width. */
    const share = (wanted: (depth: number) => boolean) => {
      const stretches = times.flatMap((start, at) =>
        wanted(depths[at] ?? 0) ? [{ start, end: times[at + 1] ?? timeline.end_us }] : [],
      );
      const longest = stretches.sort((a, b) => b.end - b.start - (a.end - a.start))[0];
      if (!longest) throw new Error("the queue is never that deep");
      return ((longest.start + longest.end) / 2 - timeline.start_us) / whole_us;
    };
    const full = share((depth) => depth > (queue?.queue_most ?? 0) / 2);
    const empty = share((depth) => depth === 0);
    const label = frame.locator('.gd-label[data-kind="queue"]').first();
    const { top, height } = await label.evaluate((element) => {
      const style = getComputedStyle(element);
      return { top: Number.parseFloat(style.top), height: Number.parseFloat(style.height) };
    });
    const canvas = frame.locator(".gd-lanes canvas");
    const color = (x: number, y: number) =>
      canvas.evaluate(
        (element: HTMLCanvasElement, at) => {
          const ratio = element.width / element.clientWidth;
          const pixel = element.getContext("2d")?.getImageData(at.x * element.width, at.y * ratio, 1, 1);
          return [...(pixel?.data ?? [])].join();
        },
        { x, y },
      );
    const middle = top + 0.7 * height;
    await expect.poll(() => color(empty, middle)).toBe("255,255,255,255");
    expect(await color(full, middle)).not.toBe("255,255,255,255");
    const box = await canvas.boundingBox();
    if (!box) throw new Error("the timeline is not on the screen");
    await session.page.mouse.move(box.x + full * box.width, box.y + middle);
    await frame
      .getByRole("tooltip")
      .filter({ hasText: /[1-9]\d* launch(es)? queued/ })
      .waitFor();
    await session.page.mouse.move(box.x + empty * box.width, box.y + middle);
    await frame.getByRole("tooltip").filter({ hasText: "0 launches queued" }).waitFor();
  });

  it("steps through the gaps with the keyboard, longest first", async () => {
    const frame = await session.openTimeline(RUN);
    await frame.locator(".gd-lanes").focus();
    const lengths: number[] = [];
    for (const place of ["Gap 1 of", "Gap 2 of"]) {
      await session.page.keyboard.press("n");
      await timelineOf(frame).locator(".gd-toolbar", { hasText: place }).waitFor();
      const title = await frame.locator(".gd-gap h3").innerText();
      lengths.push(Number.parseFloat(title.replace(/^Gap of /, "")));
    }
    expect(lengths[0]).toBeGreaterThanOrEqual(lengths[1] ?? Infinity);
    await session.page.keyboard.press("Escape");
    await frame.locator(".gd-gap").waitFor({ state: "detached" });
  });
});

describe("a row", () => {
  /** Wait until the timeline shows the range with a margin. Returns the URL's hash. */
  async function untilShown(range: TimeRange | undefined, row = "row"): Promise<string> {
    if (!range) throw new Error(`the report has no place for this ${row}`);
    const { start_us, end_us } = aired(range, AROUND_US);
    return session.untilHash(
      (hash) => hash.includes(`t0=${start_us.toFixed(3)}&`) && hash.includes(`t1=${end_us.toFixed(3)}`),
    );
  }

  interface Row {
    readonly what: string;
    /** The first row of its list. */
    readonly at: string;
    readonly ranges: (report: Report) => readonly TimeRange[] | undefined;
  }

  interface Rows {
    readonly run: string;
    readonly view: ViewName;
    readonly rows: readonly Row[];
  }

  const firstOf = (id: string) => (report: Report) => tableOf(report, id)?.rows[0]?.ranges;

  const PAGES: readonly Rows[] = [
    {
      run: RUN,
      view: "summary",
      rows: [
        { what: "finding", at: ".gd-first", ranges: ({ findings }) => findings[0]?.ranges },
        {
          what: "step",
          at: ".gd-stepbars .gd-stepbar",
          ranges: ({ devices }) => devices[0]?.step_accounts.map(stepRange).slice(0, 1),
        },
      ],
    },
    {
      run: RUN,
      view: "host",
      rows: [
        {
          what: "launch hotspot",
          at: "section:has(h2:text('Launches')) tr.gd-linked",
          ranges: ({ launch_hotspots: spots }) => spots[0]?.ranges,
        },
        {
          what: "host activity",
          at: "section:has(h2:text('host')) tr.gd-linked",
          ranges: firstOf("host"),
        },
      ],
    },
    {
      run: RUN,
      view: "operators",
      rows: [
        {
          what: "kernel family",
          at: "section:has(h2:text('kernel family')) tr.gd-linked",
          ranges: firstOf("kernel_families"),
        },
      ],
    },
    {
      run: "host_sync",
      view: "host",
      rows: [
        {
          what: "wait",
          at: "section:has(h2:text('Synchronizations')) tr.gd-linked",
          ranges: firstOf("synchronizations"),
        },
      ],
    },
  ];

  it.each(PAGES)("of the $view of $run shows where it is on the timeline", async ({ run, view, rows }) => {
    const report = await session.reportOf(run);
    const frame = await session.open(run, view);
    for (const { what, at, ranges } of rows) {
      const places = ranges(report) ?? [];
      const row = frame.locator(at).first();
      await row.getByRole("button", { name: "Show on the timeline" }).click();
      await untilShown(places[0], what);
      const label = places.length > 1 ? `1 of ${places.length}` : "Shown";
      await frame.locator(".gd-shown", { hasText: label }).waitFor();
      await session.page.goBack();
      await row.getByRole("button", { name: "Show on the timeline" }).waitFor();
    }
  });

  it("can be clicked anywhere", async () => {
    const spot = (await session.reportOf(RUN)).launch_hotspots[0];
    const frame = await session.open(RUN, "host");
    const table = frame.getByRole("region", { name: "Launches" });
    await table.getByRole("cell", { name: spot?.key ?? "", exact: true }).click();
    await untilShown(spot?.ranges[0]);
  });

  it("scrolls to the lanes of its GPU", async () => {
    await session.reportOf("many");
    const frame = await session.open("many", "operators");
    const lanes = frame.locator(".gd-lanes");
    const scrolled = () => lanes.evaluate((element) => element.scrollTop);
    const families = frame.getByRole("region", { name: "kernel family" });
    await families.getByRole("row", { name: "GPU 9" }).click();
    await lanes.waitFor();
    await expect.poll(scrolled).toBeGreaterThan(0);
    await goTo(frame, "Operators");
    await families.getByRole("row", { name: "GPU 0" }).click();
    await lanes.waitFor();
    await expect.poll(scrolled).toBe(0);
  });

  it("steps through its places with the keyboard, and restores them from a link", async () => {
    const report = await session.reportOf(RUN);
    const ranges = report.findings[0]?.ranges ?? [];
    expect(ranges.length).toBeGreaterThan(2);
    const frame = await session.open(RUN);
    const button = frame.locator(".gd-first").getByRole("button", { name: "Show on the timeline" });
    await button.focus();
    await session.page.keyboard.press("Enter");
    await untilShown(ranges[0]);
    const next = frame
      .getByRole("group", { name: "Shown on the timeline" })
      .getByRole("button", { name: "Next place", exact: true });
    await next.focus();
    await session.page.keyboard.press("Enter");
    await untilShown(ranges[1]);
    // The button keeps the focus.
    await session.page.keyboard.press("Enter");
    const hash = await untilShown(ranges[2]);
    await session.page.reload();
    const again = await tabFrame(session.page);
    await again.locator(".gd-shown", { hasText: `3 of ${ranges.length}` }).waitFor();
    await again.getByRole("button", { name: "Previous place" }).first().click();
    await untilShown(ranges[1]);
    expect(new URL(session.page.url()).hash).not.toBe(hash);
    await again.getByRole("button", { name: "Clear the marks" }).click();
    await again.locator(".gd-shown").waitFor({ state: "detached" });
  });
});
