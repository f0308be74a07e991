// Events on the timeline: found by name, explained, linked, and summed over a range.

import type { Frame } from "playwright-core";
import { describe, expect, it } from "vitest";
import type { EventDetails, Matches, RangeStatistics } from "../../frontend/src/wire/report";
import { tabFrame } from "./browser";
import { Session, timelineOf } from "./session";

const RUN = "host_sync";

const session = new Session();

async function matchesOf(text: string, kind: string): Promise<Matches> {
  const { id } = await session.entryOf(RUN);
  return (await session.tensorboard.get(`find?id=${id}&text=${text}&kind=${kind}`)) as Matches;
}

/** A number as the page writes it. */
function figure(value: number): string {
  return value.toLocaleString("en-US");
}

async function search(frame: Frame, text: string): Promise<void> {
  await frame.locator(".gd-lanes").focus();
  await session.page.keyboard.press("/");
  await session.page.keyboard.type(text);
}

describe("search", () => {
  it("counts matches, lists them, and opens them one after another", async () => {
    const frame = await session.openTimeline(RUN);
    const { total, events } = await matchesOf("cudaLaunch", "any");
    await search(frame, "cudaLaunch");
    const state = frame.getByRole("search").getByRole("status");
    await expect.poll(() => state.innerText()).toBe(`${figure(total)} found`);
    await session.page.keyboard.press("Enter");
    await session.page.keyboard.press("Enter");
    await expect.poll(() => state.innerText()).toBe(`2 of ${figure(total)}`);
    await session.untilHash((hash) => hash.includes(`event=${events[1]?.number ?? ""}`));
    await session.page.keyboard.press("Shift+Enter");
    await expect.poll(() => state.innerText()).toBe(`1 of ${figure(total)}`);
    await frame.getByRole("button", { name: "Back to the matches" }).click();
    const list = frame.getByRole("complementary", { name: "Matches" }).getByRole("listitem");
    await expect.poll(() => list.count()).toBe(Math.min(total, 100));
  });

  it("takes regular expressions, and says when one is broken", async () => {
    const frame = await session.openTimeline(RUN);
    await search(frame, "^cuda(Launch|Memcpy");
    await frame.getByRole("button", { name: "Regular expression" }).click();
    await frame.getByRole("search").getByText("Not a valid regular expression: missing )").waitFor();
    await frame.getByRole("textbox", { name: "Find events by name" }).press("End");
    await session.page.keyboard.type(")");
    await frame.getByText(/^[\d,]+ found$/).waitFor();
  });
});

describe("an event", () => {
  it("is explained, with links to its launch and back, and restored from a link", async () => {
    const { id } = await session.entryOf(RUN);
    const kernel = (await matchesOf("", "kernel")).events[3];
    const details = (await session.tensorboard.get(
      `event?id=${id}&event=${kernel?.number ?? 0}`,
    )) as EventDetails;
    const launch = details.links.find(({ kind }) => kind === "launch")?.event;
    const frame = await session.openTimeline(RUN);
    await search(frame, kernel?.name ?? "");
    await session.page.keyboard.press("Enter");
    const panel = frame.getByRole("complementary", { name: "Selected event" });
    await panel.getByText("Launched by").waitFor();
    await panel
      .getByRole("button", { name: launch?.name ?? "", exact: true })
      .first()
      .click();
    await panel.getByText("Launches", { exact: true }).waitFor();
    const hash = await session.untilHash((now) => now.includes(`event=${launch?.number ?? "?"}`));
    await session.page.reload();
    const again = await tabFrame(session.page);
    await again
      .getByRole("complementary", { name: "Selected event" })
      .getByText("Launches", { exact: true })
      .waitFor();
    expect(new URL(session.page.url()).hash).toBe(hash);
  });

  it("leads to its neighbors with the arrow keys, and closes with Escape", async () => {
    const [first, second] = (await matchesOf("ProfilerStep", "range")).events;
    const frame = await session.openTimeline(RUN);
    await search(frame, "ProfilerStep");
    await session.page.keyboard.press("Enter");
    await session.untilHash((hash) => hash.includes(`event=${first?.number ?? ""}`));
    await frame.locator(".gd-lanes").focus();
    await session.page.keyboard.press("ArrowRight");
    await session.untilHash((hash) => hash.includes(`event=${second?.number ?? ""}`));
    await session.page.keyboard.press("ArrowLeft");
    await session.untilHash((hash) => hash.includes(`event=${first?.number ?? ""}`));
    await session.page.keyboard.press("Escape");
    await session.untilHash((hash) => !hash.includes("event="));
  });
});

describe("a range", () => {
  it("has statistics that the m key asks for", async () => {
    const { id } = await session.entryOf(RUN);
    const whole = (await session.tensorboard.get(`range?id=${id}`)) as RangeStatistics;
    const frame = await session.openTimeline(RUN);
    await frame.locator(".gd-lanes").focus();
    await session.page.keyboard.press("m");
    const panel = frame.getByRole("complementary", { name: "Selected range" });
    await panel.getByText("Computing").waitFor();
    await panel.getByText("Operators", { exact: true }).click();
    const name = whole.operators[0]?.name ?? "";
    const row = panel.getByRole("row", { name });
    await row.first().waitFor();
    await expect.poll(() => row.first().innerText()).toContain(String(whole.operators[0]?.count));
  });
});

describe("lanes", () => {
  it("are hidden, shown again, and pinned", async () => {
    const frame = await session.openTimeline(RUN);
    const labels = frame.locator(".gd-label");
    const before = await labels.count();
    const choose = async (lane: string, item: string) => {
      await frame.getByRole("button", { name: `Options for ${lane}`, exact: true }).click();
      await frame.getByRole("menuitem", { name: item, exact: true }).click();
    };
    await choose("GPU 0 idle", "Hide");
    await expect.poll(() => labels.count()).toBe(before - 1);
    await timelineOf(frame).getByRole("button", { name: "Show 1 hidden lane" }).click();
    await expect.poll(() => labels.count()).toBe(before);
    await choose("GPU 0 stream 7", "Pin to the top");
    await expect.poll(() => labels.first().innerText()).toContain("GPU 0 stream 7");
  });

  it("do not make the page scroll", async () => {
    const frame = await session.openTimeline(RUN);
    const { scrollHeight, innerHeight } = await frame.evaluate(() => ({
      scrollHeight: document.documentElement.scrollHeight,
      innerHeight: window.innerHeight,
    }));
    expect(scrollHeight).toBeLessThanOrEqual(innerHeight);
  });
});
