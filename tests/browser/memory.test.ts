// The memory view: the chart, ranges, growing allocations, memory at the peak.

import type { Frame, Locator } from "playwright-core";
import { expect, it } from "vitest";
import type { DeviceMemory, MemorySlice } from "../../frontend/src/wire/report";
import { darken, violations } from "./axe";
import { tabFrame } from "./browser";
import { goTo, Session, timelineOf } from "./session";
import { MARKUP } from "./traces";

const LEAK = "leak";
const MIB = 2 ** 20;

const session = new Session();

async function memoryOf(run: string): Promise<DeviceMemory> {
  const memory = (await session.reportOf(run)).memory[0];
  if (!memory) throw new Error(`${run} has no memory`);
  return memory;
}

async function sliceOf(run: string, start_us: number, end_us: number): Promise<MemorySlice> {
  const { id } = await session.entryOf(run);
  const route = `memory?id=${id}&device=0&start_us=${start_us}&end_us=${end_us}&width=1`;
  return (await session.tensorboard.get(route)) as MemorySlice;
}

interface Opened {
  readonly frame: Frame;
  readonly memory: Locator;
  readonly chart: { readonly x: number; readonly y: number; readonly width: number };
}

/** Open a run and wait until its memory chart is drawn and in sight. */
async function openMemory(run: string): Promise<Opened> {
  const frame = await session.open(run, "memory");
  const memory = frame.getByRole("region", { name: "Memory", exact: true });
  const stage = memory.locator(".gd-memory-stage");
  await memory.locator(".uplot canvas").waitFor();
  await memory.getByText("Loading the memory curve").waitFor({ state: "detached" });
  await memory.scrollIntoViewIfNeeded();
  await frame.evaluate(
    () => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))),
  );
  const box = await stage.boundingBox();
  if (!box) throw new Error("the chart is not on the screen");
  return { frame, memory, chart: { x: box.x, y: box.y + box.height / 2, width: box.width } };
}

async function drag({ chart }: Opened, from: number, to: number): Promise<void> {
  const { mouse } = session.page;
  await mouse.move(chart.x + from * chart.width, chart.y);
  await mouse.down();
  // In one move: the title of a range between two moves would be read as the last one's.
  await mouse.move(chart.x + to * chart.width, chart.y);
  await mouse.up();
}

/** Format a size as the page does. */
function printed(size: number): string {
  const unit = size >= MIB ? { name: "MiB", size: MIB } : { name: "KiB", size: 1024 };
  return (size / unit.size).toPrecision(3).replace(/\.?0+$/, "");
}

it("describes the peak and the rising floor in words, by kind and owner, and by what grows", async () => {
  const memory = await memoryOf(LEAK);
  const opened = await openMemory(LEAK);
  const words = await opened.memory.locator(".gd-memory-words").innerText();
  expect(words).toContain(`${printed(memory.peak_allocated_bytes)}\u00a0MiB allocated`);
  expect(words).toContain(
    `The floor rises by ${printed(memory.floor_slope_bytes_per_step)}\u00a0MiB per step`,
  );
  expect(words).toContain("memory is full after");
  const painted = await opened.memory.locator(".uplot canvas").evaluate((element) => {
    const canvas = element as HTMLCanvasElement;
    const data = canvas.getContext("2d")?.getImageData(0, 0, canvas.width, canvas.height).data ?? [];
    return new Set(data).size;
  });
  expect(painted).toBeGreaterThan(50);

  // The kinds at the peak add up, and the keyboard leads to each tile.
  const kinds = memory.peak_kinds.reduce((sum, { bytes }) => sum + bytes, 0);
  expect(kinds).toBe(memory.peak_allocated_bytes);
  const tiles = opened.memory.getByRole("list", { name: "Owners of memory at the peak" });
  const tile = tiles.locator("[data-legible]").first();
  await tile.focus();
  const label = (await tile.getAttribute("aria-label")) ?? "no label";
  await expect.poll(() => opened.memory.locator(".gd-memory-pointed").innerText()).toContain(label);

  // Growing allocations are marked on the chart at a click.
  const row = opened.memory.locator(".gd-memory-growing tbody tr").first();
  const text = await row.innerText();
  expect(text).toContain(memory.sites[0]?.operator);
  const place = memory.sites[0]?.place;
  expect(text).toContain(`${place?.function} (${place?.file}, defined at line ${place?.line})`);
  expect(text).toContain(`+${printed(memory.sites[0]?.bytes_per_step ?? 0)}`);
  await row.locator("td").first().click();
  await expect.poll(() => row.getAttribute("data-shown")).toBe("true");
  await session.untilHash((hash) => hash.includes("p.gpudiag.row=memory.0"));
  await row.locator("td").first().click();
  await expect.poll(() => row.getAttribute("data-shown")).toBe(null);
});

it("shows what a selected range allocates, and selects the same range on the timeline", async () => {
  const opened = await openMemory(LEAK);
  await drag(opened, 0.3, 0.7);
  const range = opened.memory.getByRole("region", { name: "Allocations in the range" });
  await range.getByRole("term").filter({ hasText: "Live after range" }).waitFor();
  const title = await range.getByRole("heading").innerText();
  await session.untilHash((hash) => hash.includes("p.gpudiag.s0=") && hash.includes("p.gpudiag.s1="));
  await session.page.reload();
  const frame = await tabFrame(session.page);
  await goTo(frame, "Timeline");
  await frame.getByRole("complementary", { name: "Selected range" }).waitFor();
  await goTo(frame, "Memory");
  const memory = frame.getByRole("region", { name: "Memory", exact: true });
  const again = memory.getByRole("region", { name: "Allocations in the range" });
  await again.getByRole("heading", { name: title }).waitFor();
  await memory.getByRole("button", { name: "Clear" }).click();
  await again.getByText("Whole recording").waitFor();
});

it("shows what a step leaves allocated, by mouse and by keyboard", async () => {
  const opened = await openMemory(LEAK);
  const range = opened.memory.getByRole("region", { name: "Allocations in the range" });
  await opened.memory.getByRole("group", { name: /^Memory of GPU 0/ }).focus();
  await session.page.keyboard.press("n");
  await session.page.keyboard.press("n");
  await opened.memory.getByText(/^Step 2 of/).waitFor();
  const { trace_start_us, trace_end_us } = await sliceOf(LEAK, 0, 1);
  const { steps } = await sliceOf(LEAK, trace_start_us, trace_end_us);
  const step = steps[1];
  if (!step) throw new Error("there is no second step");
  const slice = await sliceOf(LEAK, step.start_us, step.end_us);
  await range
    .getByText(`${printed(slice.kept_bytes)}\u00a0MiB`)
    .first()
    .waitFor();
  await expect.poll(() => range.locator("tbody tr").first().innerText()).toContain(slice.sites[0]?.operator);

  const third = steps[2];
  if (!third) throw new Error("there is no third step");
  const middle = (third.start_us + third.end_us) / 2;
  const share = (middle - trace_start_us) / (trace_end_us - trace_start_us);
  await session.page.mouse.click(opened.chart.x + share * opened.chart.width, opened.chart.y);
  await opened.memory.getByText(/^Step 3 of/).waitFor();
  await session.page.keyboard.press("Escape");
  await range.getByText("Whole recording").waitFor();
});

it("zooms with the wheel, together with the timeline and the URL", async () => {
  const opened = await openMemory(LEAK);
  await session.page.mouse.move(opened.chart.x + 0.5 * opened.chart.width, opened.chart.y);
  await session.page.mouse.move(opened.chart.x + 0.5 * opened.chart.width + 1, opened.chart.y);
  await session.page.mouse.wheel(0, -400);
  const hash = await session.untilHash((now) => now.includes("t0="));
  await goTo(opened.frame, "Timeline");
  await timelineOf(opened.frame).getByRole("button", { name: "Fit" }).click();
  await goTo(opened.frame, "Memory");
  const range = (now: string) => /t0=[^&]*&p.gpudiag.t1=[^&]*/.exec(now)?.[0];
  await session.untilHash((now) => now.includes("view=memory") && range(now) === undefined);
  expect(range(hash)).toBeTruthy();
});

it("shows what an owner allocates up to the peak, at a click of its tile", async () => {
  const memory = await memoryOf(LEAK);
  const owner = memory.peak_owners.find(({ operator }) => operator !== "");
  if (!owner) throw new Error("the peak has no owner with a name");
  const opened = await openMemory(LEAK);
  const range = opened.memory.getByRole("region", { name: "Allocations in the range" });
  const tile = opened.memory.locator(".gd-treemap button", { hasText: owner.operator }).first();
  await tile.press("Enter");
  await range.getByText("From the start to the peak").waitFor();
  const row = range.locator("tr[data-shown]").first();
  await row.waitFor();
  await expect.poll(() => row.innerText()).toContain(owner.operator);
  await expect.poll(() => range.locator("tbody tr").first().getAttribute("data-shown")).toBe("true");
  await expect.poll(() => tile.getAttribute("aria-pressed")).toBe("true");
  await tile.press("Enter");
  await range.getByText("Whole recording").waitFor();
});

it("shows names as text, and each device separately", async () => {
  const { frame, memory } = await openMemory("hostile_memory");
  await memory.getByText(MARKUP).first().waitFor();
  await memory.getByRole("radiogroup", { name: "Device" }).getByText("CPU", { exact: true }).click();
  await memory.getByText("3\u00a0KiB allocated").waitFor();
  const wide = await frame.evaluate(() => document.documentElement.scrollWidth > window.innerWidth);
  expect(wide).toBe(false);
});

it("explains how to record memory if it was not recorded, in a folded note", async () => {
  const frame = await session.open("without", "memory");
  const note = frame.locator("details", { hasText: "was not recorded. How to record it" });
  await note.waitFor();
  const code = note.locator("pre", { hasText: "profile_memory=True" });
  await expect.poll(() => code.isVisible()).toBe(false);
  await note.locator("summary").click();
  await code.waitFor();
});

it("maps the segments of a snapshot at a moment, with the stack of an allocation", async () => {
  await session.reportOf("snapshot");
  const frame = await session.open("snapshot", "memory");
  const map = frame.getByRole("region", { name: "Map of segments" });
  await map.getByText("1 segment, 256\u00a0MiB in total").waitFor();
  await map.getByRole("group", { name: /^Segments, largest first/ }).press("ArrowDown");
  await map
    .getByTitle(/^train\.py/)
    .first()
    .waitFor();
  const said = map.locator("p").first();
  const before = await said.innerText();
  const stage = frame.locator(".gd-memory-stage");
  await stage.scrollIntoViewIfNeeded();
  await stage.click({ position: { x: 3, y: 100 } });
  await expect.poll(() => said.innerText()).not.toBe(before);
  await map.getByText("Table of these segments").click();
  await map.getByRole("table", { name: "Segments" }).getByText("0x7f0000000000").waitFor();
  expect(await violations(frame)).toEqual([]);
  await darken(session.page, frame);
  expect(await violations(frame, "color-contrast")).toEqual([]);
});

it("draws allocations as bands, with the line of the one under the pointer", async () => {
  await session.reportOf("snapshot");
  const frame = await session.open("snapshot", "memory");
  const blocks = frame.getByRole("region", { name: "Blocks over time" });
  const picture = blocks.getByRole("img");
  await picture.scrollIntoViewIfNeeded();
  await blocks.getByRole("list", { name: "Kinds of the blocks" }).waitFor();
  const box = await picture.boundingBox();
  if (!box) throw new Error("the bands are not on the screen");
  await session.page.mouse.move(box.x + box.width / 2, box.y + box.height - 4);
  await expect.poll(() => blocks.locator(".gd-bands-line").innerText()).toContain("train.py");
});
