// Six questions, each walked from the bare Diagnosis tab of a TensorBoard to its answer. What a test does is what is
// counted: a walk of more than a few clicks is a defect of the page.

import type { Frame, Locator } from "playwright-core";
import { expect, it } from "vitest";
import type { Matches } from "../../frontend/src/wire/report";
import { openTab } from "./browser";
import { Session, shownTime, widens } from "./session";
import { settle, simulate, simulateJob, writeLarge } from "./tensorboard";

const SLOW_RANK = 2;

/** With more, the test takes longer and finds no more: the page asks for slices of any trace. */
const LARGE_MIB = 24;

const RUNS = ["input_pipeline", "leak_kept_graph", "launch_bound", "launch_bound_fixed"];

const session = new Session({
  fill: (logdir) => {
    simulate(logdir, ...RUNS);
    simulateJob(logdir, "job", 4, SLOW_RANK);
    writeLarge(logdir, "large", LARGE_MIB);
    settle(logdir);
  },
  analyzed: [...RUNS, "job", "large"],
});

/** Counts what the user does with the pointer. */
class Walk {
  readonly #began_ms = performance.now();
  #clicks = 0;

  private constructor(readonly frame: Frame) {}

  /** Open the tab as TensorBoard's menu does, without a link to anything. */
  static async begin(): Promise<Walk> {
    const frame = await openTab(session.page, session.tensorboard.url);
    await frame.getByRole("heading", { name: "Runs" }).waitFor();
    return new Walk(frame);
  }

  async click(target: Locator): Promise<void> {
    await target.click();
    this.#clicks++;
  }

  async drag(from: Locator, to: Locator): Promise<void> {
    await from.dragTo(to);
    this.#clicks++;
  }

  run(name: string): Locator {
    const table = this.frame.getByRole("table", { name: "Runs" });
    return table.getByRole("button", { name: new RegExp(`^${name}( |$)`) });
  }

  /** The walk has arrived. */
  end(most: number): string {
    expect(this.#clicks).toBeLessThanOrEqual(most);
    return `${this.#clicks} clicks, ${((performance.now() - this.#began_ms) / 1000).toFixed(1)} s`;
  }
}

it("a slow line: what it is, how to mend it, and when it ran", async ({ annotate }) => {
  const walk = await Walk.begin();
  await walk.click(walk.run("input_pipeline"));
  const first = walk.frame.locator(".gd-first");
  await first.getByRole("heading", { name: /^Fix first: Data loading keeps the GPU idle/ }).waitFor();
  await walk.frame.getByText(/^look first in augment \(train\.py/).waitFor();
  await first.getByText("num_workers").first().waitFor();
  await walk.click(first.getByRole("button", { name: /^Show on the timeline/ }));
  await shownTime(walk.frame).waitFor();
  await annotate(walk.end(2));
  await session.page.setViewportSize({ width: 390, height: 844 });
  await expect.poll(() => widens(walk.frame)).toBe(false);
});

it("a leak: the line that keeps memory, and the curve", async ({ annotate }) => {
  const walk = await Walk.begin();
  await walk.click(walk.run("leak_kept_graph"));
  await walk.frame.getByRole("heading", { name: "Memory leak on GPU 0: 24.0 MiB per step" }).waitFor();
  const first = walk.frame.locator(".gd-first");
  await first
    .getByRole("heading", { name: "Fix first: GPU 0 memory grows: retained autograd graph" })
    .waitFor();
  await walk.frame.getByText(/^look first in evaluate \(train\.py/).waitFor();
  await walk.click(first.getByRole("button", { name: "Show the memory" }));
  await walk.frame.getByRole("heading", { name: "Growing allocations" }).waitFor();
  await annotate(walk.end(2));
});

it("the worst of many runs: which one, why, and where to look", async ({ annotate }) => {
  const walk = await Walk.begin();
  const worst = walk.frame.getByText(
    /^Worst of \d+ analyzed runs: leak_kept_graph\. Memory; look first in evaluate/,
  );
  await worst.waitFor();
  await walk.click(worst.getByRole("button", { name: "leak_kept_graph" }));
  await walk.frame.getByRole("region", { name: "Verdict" }).waitFor();
  await annotate(walk.end(1));
});

it("a slow rank: which one, and what it does there", async ({ annotate }) => {
  const walk = await Walk.begin();
  await walk.click(walk.run("job"));
  const verdict = walk.frame.getByRole("region", { name: "Verdict" });
  await verdict.getByText(new RegExp(`^Rank ${SLOW_RANK} comes late because of `)).waitFor();
  const finding = walk.frame.getByRole("region", { name: "Findings about the job" }).locator(".gd-finding");
  await walk.click(finding.locator(".gd-finding-head"));
  await finding
    .getByText(/Python/)
    .first()
    .waitFor();
  await annotate(walk.end(2));
});

it("before and after: is it faster, and where", async ({ annotate }) => {
  const walk = await Walk.begin();
  await walk.drag(walk.run("launch_bound_fixed"), walk.run("launch_bound"));
  await walk.frame.locator("h1", { hasText: /^Faster by/ }).waitFor();
  await walk.frame.getByRole("region", { name: "Where the difference is" }).waitFor();
  await annotate(walk.end(1));
});

it("one kernel of a large trace: what launched it", async ({ annotate }) => {
  const { id } = await session.entryOf("large");
  const { events } = (await session.tensorboard.get(`find?id=${id}&text=&kind=kernel`)) as Matches;
  const walk = await Walk.begin();
  await walk.click(walk.run("large"));
  await walk.frame.getByRole("region", { name: "Verdict" }).waitFor();
  await walk.click(walk.frame.getByRole("button", { name: "Timeline", exact: true }));
  await walk.frame.locator(".gd-label").first().waitFor();
  await session.page.keyboard.press("/");
  await session.page.keyboard.type(events.at(-1)?.name ?? "");
  await walk.frame.getByText(/found$/).waitFor();
  await session.page.keyboard.press("Enter");
  const panel = walk.frame.getByRole("complementary", { name: "Selected event" });
  await panel.getByText("Launched by").waitFor();
  await annotate(walk.end(2));
});
