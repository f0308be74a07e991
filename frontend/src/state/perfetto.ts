// Hands a trace to Perfetto's page in another tab of this browser: https://perfetto.dev/docs/visualization/deep-linking

export const PERFETTO = "https://ui.perfetto.dev";

/** The page does not say when it has loaded: ask until it answers. */
const ASK_EVERY_MS = 100;
const GIVE_UP_MS = 20_000;

export type Handed = "handed" | "blocked" | "silent";

/**
 * Open Perfetto and send it the trace. Call it in response to a click, or the browser blocks the new tab. "blocked": it
 * was; "silent": the page did not answer, because there is no network or the tab was closed.
 */
export function openInPerfetto(buffer: ArrayBuffer, title: string, fileName: string): Promise<Handed> {
  const tab = window.open(PERFETTO);
  if (!tab) return Promise.resolve("blocked");
  return new Promise((resolve) => {
    const end = (outcome: Handed) => {
      window.clearInterval(asking);
      window.clearTimeout(waiting);
      window.removeEventListener("message", answered);
      resolve(outcome);
    };
    const answered = (event: MessageEvent<unknown>) => {
      if (event.origin !== PERFETTO || event.source !== tab || event.data !== "PONG") return;
      tab.postMessage({ perfetto: { buffer, title, fileName } }, PERFETTO);
      end("handed");
    };
    window.addEventListener("message", answered);
    const asking = window.setInterval(() => {
      if (tab.closed) end("silent");
      else tab.postMessage("PING", PERFETTO);
    }, ASK_EVERY_MS);
    const waiting = window.setTimeout(() => end("silent"), GIVE_UP_MS);
  });
}
