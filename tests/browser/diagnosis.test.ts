// The Diagnosis tab in a real TensorBoard, as a user meets it.

import { rmSync } from "node:fs";
import type { Frame, Locator } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from "vitest";
import { sentence, words } from "../../frontend/src/base/format";
import { aired, AROUND_US } from "../../frontend/src/base/viewport";
import type {
  Report,
  ReportState,
  StepAccount,
  TimeRange,
  Timeline,
  TraceEntry,
  TraceList,
} from "../../frontend/src/wire/report";
import { openPage, openTab, startBrowser, tabFrame, type Browser, type Watched } from "./browser";
import {
  makeFolder,
  simulate,
  startTensorBoard,
  write,
  writeSnapshot,
  type TensorBoard,
} from "./tensorboard";
import { hostile, LONG, MARKUP } from "./traces";

const RUN = "input_pipeline";

/** For an analysis on a machine that has other things to do. */
const PATIENCE = { timeout: 40_000, interval: 200 };

let logdir: string;
let tensorboard: TensorBoard;
let browser: Browser;
let watched: Watched;

beforeAll(async () => {
  logdir = makeFolder();
  simulate(logdir, RUN, "healthy", "launch_bound", "host_sync", "queued");
  write(logdir, "bad/words.1.pt.trace.json", "this is no trace");
  write(logdir, "bad/other.1.pt.trace.json", '{"hello": "world"}');
  writeSnapshot(logdir, "snapshot");
  write(logdir, "hostile/w.1.pt.trace.json", hostile());
  [tensorboard, browser] = await Promise.all([startTensorBoard(logdir), startBrowser()]);
});

afterAll(async () => {
  await Promise.all([tensorboard.stop(), browser.close()]);
  rmSync(logdir, { recursive: true, force: true });
});

beforeEach(async () => {
  watched = await openPage(browser.context);
});

afterEach(async () => {
  const { page, wrongs } = watched;
  await page.close();
  expect(wrongs).toEqual([]);
});

async function entryOf(run: string): Promise<TraceEntry> {
  return vi.waitFor(async () => {
    const { traces } = (await tensorboard.ask("traces")) as TraceList;
    const found = traces.find((entry) => entry.run === run);
    if (!found) throw new Error(`${run} is not in the list of traces`);
    return found;
  }, PATIENCE);
}

/** Waits for the analysis, too: a test that only looks at the page does not wait for it there. */
async function reportOf(run: string): Promise<Report> {
  const { id } = await entryOf(run);
  const answer = await vi.waitFor(async () => {
    const now = (await tensorboard.ask(`report?id=${id}`)) as ReportState;
    if (now.state === "queued" || now.state === "running")
      throw new Error(`${run} is still ${now.state}: ${now.stage}`);
    return now;
  }, PATIENCE);
  if (!answer.report)
    throw new Error(`${run} is ${answer.state}: ${answer.error?.what ?? "no reason given"}`);
  return answer.report;
}

async function open(run: string): Promise<Frame> {
  const { id } = await entryOf(run);
  return openTab(watched.page, tensorboard.url, { trace: id });
}

/** The memory view has buttons of the same names. */
function timelineOf(frame: Frame): Locator {
  return frame.getByRole("region", { name: "Timeline" });
}

/** Once the lanes are drawn, the toolbar says how much time they show. */
function shown(frame: Frame) {
  return timelineOf(frame).locator(".gd-toolbar .gd-number");
}

async function openTimeline(run: string): Promise<Frame> {
  const frame = await open(run);
  await frame.locator(".gd-label").first().waitFor();
  await frame.locator(".gd-lanes canvas").scrollIntoViewIfNeeded();
  // The scroll is told to the page with the next frame.
  await frame.evaluate(() => new Promise((told) => requestAnimationFrame(() => requestAnimationFrame(told))));
  return frame;
}

/** The address keeps up with what is seen. */
async function untilHash(matches: (hash: string) => boolean): Promise<string> {
  for (;;) {
    const { hash } = new URL(watched.page.url());
    if (matches(hash)) return hash;
    await watched.page.evaluate(() => new Promise(requestAnimationFrame));
  }
}

function stepRange({ start_us, duration_us }: StepAccount): TimeRange {
  return { start_us, end_us: start_us + duration_us, device: 0 };
}

/** Whether some of it is to be seen without scrolling. */
function onScreen(element: Locator): Promise<boolean> {
  return element.evaluate((found) => {
    const { top, bottom } = found.getBoundingClientRect();
    return bottom > 0 && top < window.innerHeight;
  });
}

function widens(frame: Frame): Promise<boolean> {
  return frame.evaluate(() => document.documentElement.scrollWidth > window.innerWidth);
}

function milliseconds(text: string | null): number {
  return Math.round(Number.parseFloat((text ?? "").replaceAll(",", "")) * 100);
}

it("shows progress, then the verdict, the first time that a trace is opened", async () => {
  const frame = await open("launch_bound");
  await frame.locator(".gd-analysing").waitFor();
  await frame.locator("h1", { hasText: "Kernel launches" }).waitFor();
  expect(await frame.locator(".gd-analysing").count()).toBe(0);
});

it("stops an analysis on demand, and takes it up again", async () => {
  const frame = await open("queued");
  await frame.getByRole("button", { name: "Cancel" }).click();
  await frame.getByText("was cancelled").waitFor();
  await frame.getByRole("button", { name: "Analyse" }).click();
  await frame.getByRole("region", { name: "Verdict" }).waitFor();
});

it("gives the verdict of the report: limiter, sentence, busy share, steps", async () => {
  const report = await reportOf(RUN);
  const frame = await open(RUN);
  const verdict = frame.getByRole("region", { name: "Verdict" });
  await verdict.locator("h1", { hasText: "Input" }).waitFor();
  const text = await verdict.innerText();
  expect(text).toContain(report.verdict?.sentence);
  expect(text).toContain(`${(100 * (report.verdict?.busy_share ?? 0)).toFixed(1)}\u202f%`);
  expect(text).toMatch(new RegExp(`Steps\\s+${report.steps.length}\\b`));
  expect(text).toContain("Simulated");
});

it("shows causes that add up, as printed, to the step window", async () => {
  const report = await reportOf(RUN);
  const frame = await open(RUN);
  const cells = frame.locator(".gd-legend tr[data-part] td:nth-child(2)");
  await cells.first().waitFor();
  const parts = (await cells.allInnerTexts()).map(milliseconds);
  const total = milliseconds(await frame.locator(".gd-legend [data-part=total]").innerText());
  expect(parts.length).toBeGreaterThan(2);
  expect(parts.reduce((sum, part) => sum + part, 0)).toBe(total);
  expect(total).toBe(Math.round((report.devices[0]?.window_us ?? 0) / 10));
  expect(await frame.locator(".gd-stepbars .gd-stepbar").count()).toBe(
    report.devices[0]?.step_accounts.length,
  );
});

it("opens a finding, and copies its fix", async () => {
  const report = await reportOf(RUN);
  const finding = report.findings[0];
  const frame = await open(RUN);
  await frame.locator(".gd-finding-head", { hasText: finding?.title ?? "" }).click();
  await frame.locator(".gd-evidence").waitFor();
  expect(await frame.locator(".gd-evidence tr").count()).toBe(finding?.evidence.length);
  await frame.getByRole("button", { name: "Copy fix" }).click();
  await frame.getByRole("button", { name: "Copy fix" }).filter({ hasText: "Copied" }).waitFor();
  const copied = await watched.page.evaluate(() => navigator.clipboard.readText());
  expect(copied).toBe(finding?.fix?.code.replace(/\n+$/, ""));
});

it("lists what could not be checked, and what was checked and is fine", async () => {
  const report = await reportOf("healthy");
  const frame = await open("healthy");
  await frame.getByText("Checked, nothing found").click();
  const lists = frame.locator(".gd-others ul");
  await lists.last().locator("li").first().waitFor();
  const text = (await lists.allInnerTexts()).join("\n");
  for (const { name } of [...report.unchecked, ...report.clear]) expect(text).toContain(words(name));
  for (const { reason } of report.unchecked) expect(text).toContain(sentence(reason));
});

it("orders the launches by any of their figures, and says so", async () => {
  const spots = (await reportOf(RUN)).launch_hotspots;
  const kind = spots[0]?.kind;
  const most = (figure: "dispatch_us" | "idle_us", sign: number) =>
    spots.filter((spot) => spot.kind === kind).sort((a, b) => sign * (b[figure] - a[figure]))[0]?.key;
  const frame = await open(RUN);
  const table = frame.getByRole("region", { name: "Launches" }).getByRole("table").first();
  const first = table.locator("tbody td").first();
  await table.locator('th[aria-sort="descending"]', { hasText: "Idle caused" }).waitFor();
  expect(await first.innerText()).toBe(most("idle_us", 1));
  const title = table.getByRole("button", { name: "Dispatch" });
  await title.click();
  await table.locator('th[aria-sort="descending"]', { hasText: "Dispatch" }).waitFor();
  expect(await first.innerText()).toBe(most("dispatch_us", 1));
  await title.press("Enter");
  await table.locator('th[aria-sort="ascending"]', { hasText: "Dispatch" }).waitFor();
  expect(await first.innerText()).toBe(most("dispatch_us", -1));
});

describe("the timeline", () => {
  it("zooms with the wheel at the pointer, and pans by dragging", async () => {
    const frame = await openTimeline(RUN);
    const before = await shown(frame).innerText();
    const box = await frame.locator(".gd-lanes canvas").boundingBox();
    if (!box) throw new Error("the timeline is not on the screen");
    const { mouse } = watched.page;
    await mouse.move(box.x + box.width / 2, box.y + 90, { steps: 3 });
    await mouse.wheel(0, -400);
    await expect.poll(() => shown(frame).innerText()).not.toBe(before);
    const zoomed = await untilHash((hash) => hash.includes("t0="));
    const start = (hash: string) => Number(/t0=([\d.]+)/.exec(hash)?.[1]);
    await mouse.down();
    await mouse.move(box.x + box.width / 2 + 200, box.y + 90, { steps: 4 });
    await mouse.up();
    await untilHash((hash) => start(hash) < start(zoomed));
    await timelineOf(frame).getByRole("button", { name: "Fit" }).click();
    await untilHash((hash) => !hash.includes("t0="));
    expect(await shown(frame).innerText()).toBe(before);
  });

  it("selects a range, and zooms to it", async () => {
    const frame = await openTimeline(RUN);
    const before = await shown(frame).innerText();
    const box = await frame.locator(".gd-lanes canvas").boundingBox();
    if (!box) throw new Error("the timeline is not on the screen");
    const { mouse, keyboard } = watched.page;
    await keyboard.down("Shift");
    await mouse.move(box.x + 100, box.y + 90);
    await mouse.down();
    await mouse.move(box.x + 300, box.y + 90, { steps: 4 });
    await mouse.up();
    await keyboard.up("Shift");
    await timelineOf(frame).getByRole("button", { name: "Zoom to it" }).click();
    await expect.poll(() => shown(frame).innerText()).not.toBe(before);
  });

  it("tells what lies under the pointer, and the chain of a gap that is clicked", async () => {
    const { id } = await entryOf(RUN);
    const frame = await openTimeline(RUN);
    const timeline = (await tensorboard.ask(`timeline?id=${id}&width=1000`)) as Timeline;
    const lane = timeline.lanes.find(({ kind }) => kind === "gaps");
    const lengths = lane?.box_duration_us ?? [];
    const at = lengths.indexOf(Math.max(...lengths));
    const middle = (lane?.box_start_us[at] ?? 0) + (lengths[at] ?? 0) / 2;
    const share = (middle - timeline.trace_start_us) / (timeline.trace_end_us - timeline.trace_start_us);
    const box = await frame.locator(".gd-lanes canvas").boundingBox();
    if (!box) throw new Error("the timeline is not on the screen");
    const spot = [box.x + share * box.width, box.y + 50] as const;
    await watched.page.mouse.move(...spot);
    await frame.getByRole("tooltip").filter({ hasText: "Data loading" }).waitFor();
    await watched.page.mouse.click(...spot);
    const panel = frame.getByRole("complementary", {
      name: "The selected gap",
    });
    await panel.getByText("Launched by").waitFor();
    const text = await panel.innerText();
    expect(text).toContain("Meanwhile, on the host");
    expect(text).toContain("Data loading");
    expect(text).toContain("After, on the GPU");
  });

  it("paints how much is queued, and tells it under the pointer", async () => {
    const { id } = await entryOf(RUN);
    const frame = await openTimeline(RUN);
    const timeline = (await tensorboard.ask(`timeline?id=${id}&width=1000`)) as Timeline;
    const queue = timeline.lanes.find(({ kind }) => kind === "queue");
    const times = queue?.queue?.time_us ?? [];
    const depths = queue?.queue?.low ?? [];
    const whole_us = timeline.trace_end_us - timeline.trace_start_us;
    /** Where along the lanes the longest stretch of this depth has its middle, 0 to 1. */
    const share = (wanted: (depth: number) => boolean) => {
      const stretches = times.flatMap((start, at) =>
        wanted(depths[at] ?? 0) ? [{ start, end: times[at + 1] ?? timeline.trace_end_us }] : [],
      );
      const longest = stretches.sort((a, b) => b.end - b.start - (a.end - a.start))[0];
      if (!longest) throw new Error("the queue is never that deep");
      return ((longest.start + longest.end) / 2 - timeline.trace_start_us) / whole_us;
    };
    const full = share((depth) => depth > (queue?.queue_most ?? 0) / 2);
    const empty = share((depth) => depth === 0);
    const label = frame.locator('.gd-label[data-kind="queue"]').first();
    const { top, height } = await label.evaluate((element) => {
      const style = getComputedStyle(element);
      return { top: Number.parseFloat(style.top), height: Number.parseFloat(style.height) };
    });
    const canvas = frame.locator(".gd-lanes canvas");
    const colour = (x: number, y: number) =>
      canvas.evaluate(
        (element: HTMLCanvasElement, at) => {
          const ratio = element.width / element.clientWidth;
          const pixel = element.getContext("2d")?.getImageData(at.x * element.width, at.y * ratio, 1, 1);
          return [...(pixel?.data ?? [])].join();
        },
        { x, y },
      );
    const middle = top + 0.7 * height;
    await expect.poll(() => colour(empty, middle)).toBe("255,255,255,255");
    expect(await colour(full, middle)).not.toBe("255,255,255,255");
    const box = await canvas.boundingBox();
    if (!box) throw new Error("the timeline is not on the screen");
    await watched.page.mouse.move(box.x + full * box.width, box.y + middle);
    await frame
      .getByRole("tooltip")
      .filter({ hasText: /[1-9]\d* launch(es)? queued/ })
      .waitFor();
    await watched.page.mouse.move(box.x + empty * box.width, box.y + middle);
    await frame.getByRole("tooltip").filter({ hasText: "0 launches queued" }).waitFor();
  });

  it("goes from gap to gap with the keyboard, longest first", async () => {
    const frame = await openTimeline(RUN);
    await frame.locator(".gd-lanes").focus();
    const lengths: number[] = [];
    for (const place of ["Gap 1 of", "Gap 2 of"]) {
      await watched.page.keyboard.press("n");
      await timelineOf(frame).locator(".gd-toolbar", { hasText: place }).waitFor();
      const title = await frame.locator(".gd-gap h3").innerText();
      lengths.push(Number.parseFloat(title.replace(/^Gap of /, "")));
    }
    expect(lengths[0]).toBeGreaterThanOrEqual(lengths[1] ?? Infinity);
    await watched.page.keyboard.press("Escape");
    await frame.locator(".gd-gap").waitFor({ state: "detached" });
  });
});

describe("a row", () => {
  /** What the address says that the timeline shows, once that is the range with air around it. */
  async function untilShown(range: TimeRange | undefined): Promise<string> {
    if (!range) throw new Error("the report names no place for this row");
    const { start_us, end_us } = aired(range, AROUND_US);
    return untilHash(
      (hash) => hash.includes(`t0=${start_us.toFixed(3)}&`) && hash.includes(`t1=${end_us.toFixed(3)}`),
    );
  }

  interface Row {
    readonly what: string;
    readonly run: string;
    /** The first row of its list. */
    readonly at: string;
    readonly ranges: (report: Report) => readonly TimeRange[] | undefined;
  }

  const ROWS: readonly Row[] = [
    { what: "finding", run: RUN, at: ".gd-finding", ranges: ({ findings }) => findings[0]?.ranges },
    {
      what: "step",
      run: RUN,
      at: ".gd-stepbars .gd-stepbar",
      ranges: ({ devices }) => devices[0]?.step_accounts.map(stepRange).slice(0, 1),
    },
    {
      what: "launch hotspot",
      run: RUN,
      at: "tr.gd-linked",
      ranges: ({ launch_hotspots: spots }) => spots[0]?.ranges,
    },
    {
      what: "wait",
      run: "host_sync",
      at: ".gd-waits tr.gd-linked",
      ranges: ({ sync_sites: sites }) => sites[0]?.ranges,
    },
    {
      what: "kernel family",
      run: RUN,
      at: "section:has(h2:text('kernel family')) tr.gd-linked",
      ranges: ({ kernel_families: families }) => families[0]?.ranges,
    },
    {
      what: "host activity",
      run: RUN,
      at: "section:has(h2:text('host')) tr.gd-linked",
      ranges: ({ host }) => host[0]?.ranges,
    },
  ];

  it.each(ROWS)("of a $what shows where it is on the timeline", async ({ run, at, ranges }) => {
    const places = ranges(await reportOf(run)) ?? [];
    const frame = await openTimeline(run);
    const row = frame.locator(at).first();
    await row.getByRole("button", { name: "Show on the timeline" }).click();
    await untilShown(places[0]);
    const says = places.length > 1 ? `1 of ${places.length}` : "Shown";
    await frame.locator(".gd-shown", { hasText: says }).waitFor();
    expect(await row.innerText()).toContain(says);
    await expect.poll(() => onScreen(frame.locator("#gd-timeline"))).toBe(true);
  });

  it("can be clicked anywhere", async () => {
    const spot = (await reportOf(RUN)).launch_hotspots[0];
    const frame = await openTimeline(RUN);
    const table = frame.getByRole("region", { name: "Launches" });
    await table.getByRole("cell", { name: spot?.key ?? "", exact: true }).click();
    await untilShown(spot?.ranges[0]);
  });

  it("goes on to its other places by the keyboard, and a link brings them back", async () => {
    const report = await reportOf(RUN);
    const ranges = report.findings[0]?.ranges ?? [];
    expect(ranges.length).toBeGreaterThan(2);
    const frame = await openTimeline(RUN);
    const button = frame.locator(".gd-finding").first().getByRole("button", { name: "Show on the timeline" });
    await button.focus();
    await watched.page.keyboard.press("Enter");
    await untilShown(ranges[0]);
    // The button keeps the focus: it is the same one, whatever it says now.
    await watched.page.keyboard.press("Enter");
    await untilShown(ranges[1]);
    await frame
      .getByRole("group", { name: "Shown on the timeline" })
      .getByRole("button", { name: "Next place", exact: true })
      .click();
    const hash = await untilShown(ranges[2]);
    await watched.page.reload();
    const again = await tabFrame(watched.page);
    await again.locator(".gd-shown", { hasText: `3 of ${ranges.length}` }).waitFor();
    await again.getByRole("button", { name: "Previous place" }).first().click();
    await untilShown(ranges[1]);
    expect(new URL(watched.page.url()).hash).not.toBe(hash);
    await again.getByRole("button", { name: "Clear the marks" }).click();
    await again.locator(".gd-shown").waitFor({ state: "detached" });
  });
});

it("follows TensorBoard's theme", async () => {
  const frame = await open(RUN);
  await frame.locator("h1").waitFor();
  const background = () => frame.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await background();
  await watched.page.locator("app-header-dark-mode-toggle button").click();
  await watched.page.getByRole("menuitem", { name: "Dark" }).click();
  await expect.poll(background).not.toBe(light);
});

it("restores what a link keeps: trace, finding, range", async () => {
  const { id } = await entryOf("host_sync");
  await reportOf("host_sync");
  const frame = await openTab(watched.page, tensorboard.url, {
    trace: id,
    t0: "5000.000",
    t1: "9000.000",
  });
  const head = frame.locator(".gd-finding-head").first();
  await head.click();
  const title = await head.locator("b").first().innerText();
  const hash = await untilHash((now) => now.includes("p.gpudiag.finding="));
  await watched.page.reload();
  const again = await tabFrame(watched.page);
  await again.locator(".gd-finding[data-opened]", { hasText: title }).waitFor();
  await again.locator(".gd-label").first().waitFor();
  expect(await shown(again).innerText()).toContain("4\u202fms");
  expect(new URL(watched.page.url()).hash).toBe(hash);
});

it("shows a memory snapshot as that: its memory, and nothing that is about time", async () => {
  await reportOf("snapshot");
  const frame = await open("snapshot");
  await frame.locator("h1", { hasText: "CUDA memory snapshot" }).waitFor();
  await frame.getByRole("region", { name: "Memory" }).waitFor();
  expect(await frame.locator(".gd-chooser-file").innerText()).toContain("CUDA memory snapshot");
  for (const name of ["Timeline", "Launches", "Time per step by cause", "GPU time by kernel family"])
    expect(await frame.getByRole("region", { name }).count()).toBe(0);
  const run = frame.getByRole("combobox", { name: "Run" });
  await run.fill("snapshot");
  await frame.locator(".gd-option", { hasText: "CUDA memory snapshot" }).waitFor();
});

it("says what is wrong with a file, and the others stay usable", async () => {
  const frame = await open(RUN);
  const run = frame.getByRole("combobox", { name: "Run" });
  await run.fill("bad");
  await frame.getByRole("option", { name: "bad" }).click();
  const problem = frame.getByRole("alert");
  await problem.waitFor();
  expect(await problem.innerText()).toContain("cannot be diagnosed");
  expect(await problem.innerText()).toContain(".pt.trace.json");
  await run.fill("healthy");
  await frame.getByRole("option", { name: "healthy" }).click();
  await frame.getByRole("region", { name: "Verdict" }).locator("h1", { hasText: "GPU computing" }).waitFor();
  await run.fill("bad");
  await frame.locator('.gd-option-note[data-state="failed"], .gd-option-note[data-state="partly"]').waitFor();
});

it("shows names as text, whatever they are and however long", async () => {
  const frame = await openTimeline("hostile");
  await frame.locator(".gd-lanes").focus();
  await watched.page.keyboard.press("n");
  const panel = frame.locator(".gd-gap");
  await panel.getByText("After, on the GPU").waitFor();
  expect(await panel.locator(".gd-chain-name", { hasText: MARKUP.slice(0, 20) }).count()).toBeGreaterThan(0);
  expect(await frame.getByRole("region", { name: "Verdict" }).innerText()).toContain(MARKUP);
  // A name in a row is as harmless once it stands beside the timeline.
  await frame.getByRole("region", { name: "kernel family" }).locator("tr.gd-linked").first().click();
  await frame.locator(".gd-shown").waitFor();
  expect(await widens(frame), `a name of ${LONG.length} characters widens the page`).toBe(false);
});

it("scrolls a wide table inside itself, never the page", async () => {
  await reportOf(RUN);
  await watched.page.setViewportSize({ width: 860, height: 900 });
  const frame = await openTimeline(RUN);
  const table = frame.getByRole("region", { name: "Launches" }).locator(".gd-wide").first();
  expect(await table.evaluate((element) => element.scrollWidth > element.clientWidth)).toBe(true);
  expect(await widens(frame)).toBe(false);
});

it("also stands alone, without TensorBoard around it", async () => {
  const { id } = await entryOf(RUN);
  await watched.page.goto(
    `${tensorboard.url}data/plugin_entry.html?name=gpudiag#gpudiag&p.gpudiag.trace=${id}`,
  );
  await watched.page.locator("h1", { hasText: "Input" }).waitFor();
  await watched.page.locator(".gd-finding-head").first().click();
  await untilHash((hash) => hash.includes("p.gpudiag.finding="));
});
