// The Share menu: files, the clipboard, and Perfetto, of which a stand-in answers here.

import { readFileSync } from "node:fs";
import { gunzipSync } from "node:zlib";
import { expect, test } from "vitest";
import { Session } from "./session";

const session = new Session();

const PERFETTO = `<script>
  addEventListener("message", ({ data, source, origin }) => {
    if (data === "PING") source.postMessage("PONG", origin);
    else window.received = [data.perfetto.fileName, new Uint8Array(data.perfetto.buffer.slice(0, 2)).join()];
  });
</script>`;

async function openShare() {
  await session.reportOf("input_pipeline");
  const frame = await session.open("input_pipeline");
  await frame.getByRole("button", { name: "Share" }).click();
  return frame;
}

test("the annotated trace is downloaded", async () => {
  const frame = await openShare();
  const [download] = await Promise.all([
    session.page.waitForEvent("download"),
    frame.getByRole("menuitem", { name: /^Annotated trace/ }).click(),
  ]);
  expect(download.suggestedFilename()).toMatch(/\.gpudiag\.json\.gz$/);
  const content = gunzipSync(readFileSync(await download.path())).toString();
  const { traceEvents } = JSON.parse(content) as { traceEvents: { cat?: string }[] };
  expect(traceEvents.some(({ cat }) => cat === "gpudiag_idle")).toBe(true);
});

test("the report is copied as Markdown", async () => {
  const frame = await openShare();
  await frame.getByRole("menuitem", { name: "Copy as Markdown" }).click();
  await frame.getByText("Markdown copied").waitFor();
  const text = await session.page.evaluate(() => navigator.clipboard.readText());
  expect(text).toContain("Data loading keeps the GPU idle");
});

test("Perfetto gets the trace in another tab, after a click", async () => {
  const context = session.page.context();
  await context.route("https://ui.perfetto.dev/**", (route) =>
    route.fulfill({ contentType: "text/html", body: PERFETTO }),
  );
  const frame = await openShare();
  await frame.getByRole("menuitem", { name: /^Open in Perfetto/ }).click();
  await frame.getByRole("dialog").getByText("does not upload it").waitFor();
  const [tab] = await Promise.all([
    context.waitForEvent("page"),
    frame.getByRole("button", { name: "Open Perfetto" }).click(),
  ]);
  await frame.getByText("The trace is open in Perfetto").waitFor();
  const received = await tab.waitForFunction(() => (window as { received?: string[] }).received);
  const [name, magic] = (await received.jsonValue()) ?? [];
  expect(name).toMatch(/\.gpudiag\.json\.gz$/);
  expect(magic).toBe("31,139");
  await tab.close();
  await context.unrouteAll();
});
