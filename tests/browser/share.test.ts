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

async function openMore(frame: Awaited<ReturnType<typeof openShare>>, name: RegExp) {
  await frame.getByRole("menuitem", { name: "More…" }).click();
  await frame.getByRole("menuitem", { name }).click();
}

test("the annotated trace is downloaded", async () => {
  const frame = await openShare();
  const [download] = await Promise.all([
    session.page.waitForEvent("download"),
    openMore(frame, /^Annotated trace/),
  ]);
  expect(download.suggestedFilename()).toMatch(/\.gpudiag\.json\.gz$/);
  const content = gunzipSync(readFileSync(await download.path())).toString();
  const { traceEvents } = JSON.parse(content) as { traceEvents: { cat?: string }[] };
  expect(traceEvents.some(({ cat }) => cat === "gpudiag_idle")).toBe(true);
});

test.each([
  ["input_pipeline", "timeline"],
  ["leak_kept_graph", "memory"],
] as const)("a picture of %s, %s, is saved as it is seen", async (run, view) => {
  await session.reportOf(run);
  const frame = await session.open(run, view);
  await frame.locator("canvas").first().waitFor();
  const size = await frame.locator(".gd-main").boundingBox();
  const saved: Buffer[] = [];
  for (const format of ["PNG", "SVG"]) {
    await frame.getByRole("button", { name: "Share" }).click();
    const [download] = await Promise.all([
      session.page.waitForEvent("download"),
      format === "PNG"
        ? frame.getByRole("menuitem", { name: /^Picture .PNG/ }).click()
        : openMore(frame, /^Picture .SVG/),
    ]);
    expect(download.suggestedFilename()).toMatch(new RegExp(`^${run}.*${view}.${format.toLowerCase()}$`));
    saved.push(readFileSync(await download.path()));
  }
  const [png, svg] = saved as [Buffer, Buffer];
  expect(png.subarray(1, 4).toString()).toBe("PNG");
  expect(Math.abs(png.readUInt32BE(16) - 2 * (size?.width ?? 0))).toBeLessThan(3);
  // The same picture is not one color: it has what is drawn on the canvas, and texts.
  const colors = await session.page.evaluate(
    async (url) => {
      const image = new Image();
      image.src = url;
      await image.decode();
      const canvas = new OffscreenCanvas(image.width, image.height);
      const context = canvas.getContext("2d");
      context?.drawImage(image, 0, 0);
      return new Set(
        new Uint32Array(context?.getImageData(0, 0, image.width, image.height).data.buffer ?? []),
      ).size;
    },
    `data:image/png;base64,${png.toString("base64")}`,
  );
  expect(colors).toBeGreaterThan(20);
  expect(svg.toString()).toContain("data:image/png");
});

test("all tables are downloaded as one archive", async () => {
  const frame = await openShare();
  const [download] = await Promise.all([
    session.page.waitForEvent("download"),
    openMore(frame, /^All tables/),
  ]);
  expect(download.suggestedFilename()).toMatch(/\.gpudiag\.zip$/);
  expect(readFileSync(await download.path()).toString("latin1")).toContain("findings.csv");
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
