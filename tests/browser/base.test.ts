// A pinned base: the figures of every view show their difference from it.

import type { Frame } from "playwright-core";
import { expect, it } from "vitest";
import { openAlone, tabFrame } from "./browser";
import { goTo, Session, widens } from "./session";

const session = new Session("several");

function bar(frame: Frame) {
  return frame.getByRole("region", { name: "Base", exact: true });
}

it("pins a base and shows differences from it, which a link restores, until it is unpinned", async () => {
  const [base, candidate] = [await session.entryOf("input_pipeline"), await session.entryOf("healthy")];
  await session.reportOf("healthy");
  let frame = await session.open("input_pipeline");
  await frame.getByRole("button", { name: "Pin as base" }).click();
  await session.untilHash((hash) => hash.includes(`base=${base.id}`));
  expect(await bar(frame).count()).toBe(0);

  // As a colleague opens the link.
  const link = { view: "summary", trace: candidate.id, base: base.id };
  await openAlone(session.page, session.tensorboard.url, link);
  await bar(frame)
    .getByText(/faster/i)
    .waitFor();
  await frame.getByText("Gone since the base: 1 finding").waitFor();
  const input = frame.locator('.gd-legend tr[data-part="input"] .gd-delta');
  await expect.poll(() => input.innerText()).toMatch(/^-.*\sms/);
  expect(await input.getAttribute("data-tone")).toBe("better");
  await frame.getByText(/ points\s*more/).waitFor();
  await session.page.reload();
  frame = await tabFrame(session.page);
  await bar(frame)
    .getByText(/faster/i)
    .waitFor();

  await goTo(frame, "Operators");
  const rows = frame.getByRole("table", { name: "Rows: operator by operator" });
  await rows.getByRole("columnheader", { name: "± GPU per step" }).waitFor();
  await expect.poll(() => rows.locator(".gd-delta").count()).toBeGreaterThan(3);
  await expect.poll(() => widens(frame)).toBe(false);

  await goTo(frame, "Timeline");
  const idle = frame.getByRole("region", { name: "Idle time per step against the base" });
  await expect.poll(() => idle.innerText()).toMatch(/Data loading\s.*-/s);

  await goTo(frame, "Memory");
  await frame.getByText("Allocated at the peak").waitFor();

  await goTo(frame, "Recording");
  await frame.getByRole("columnheader", { name: "In the base" }).waitFor();

  await goTo(frame, "Runs");
  const run = frame.getByRole("table", { name: "Runs" }).locator("tbody tr", { hasText: "healthy" });
  await expect.poll(() => run.locator(".gd-delta").innerText()).toMatch(/^-[\d.]+\sms\s+[\d.]+% less/);

  await bar(frame).getByRole("button", { name: "Unpin the base" }).click();
  await expect.poll(() => frame.locator(".gd-delta").count()).toBe(0);
  await session.untilHash((hash) => !hash.includes("base="));
});

it("says that the base of a link is gone, and unpins it", async () => {
  const { id } = await session.entryOf("healthy");
  const frame = await openAlone(session.page, session.tensorboard.url, {
    view: "summary",
    trace: id,
    base: "0123456789abcdef0123",
  });
  await frame.getByText(/The pinned base is no longer in the log directory/).waitFor();
  await frame.getByRole("button", { name: "Unpin the base" }).click();
  await session.untilHash((hash) => hash.includes(`trace=${id}`) && !hash.includes("base="));
});
