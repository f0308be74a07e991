// The window around the page: TensorBoard's window if the page runs in its frame, else the page's own.

import type { Scheme } from "../base/vocabulary";

type Stop = () => void;

/** TensorBoard's window, or null if the page runs standalone or in a frame of another origin. */
function outerWindow(): Window | null {
  if (window.parent === window) return null;
  // For another origin frameElement is null; it does not throw.
  return window.frameElement === null ? null : window.parent;
}

function linkWindow(): Window {
  return outerWindow() ?? window;
}

/** Report TensorBoard's theme, or the system's preference if the page runs standalone. */
export function watchScheme(notify: (scheme: Scheme) => void): Stop {
  const outer = outerWindow();
  if (outer) {
    const body = outer.document.body;
    const check = () => notify(body.classList.contains("dark-mode") ? "dark" : "light");
    const observer = new MutationObserver(check);
    observer.observe(body, { attributes: true, attributeFilter: ["class"] });
    check();
    return () => observer.disconnect();
  }
  const preference = window.matchMedia("(prefers-color-scheme: dark)");
  const check = () => notify(preference.matches ? "dark" : "light");
  preference.addEventListener("change", check);
  check();
  return () => preference.removeEventListener("change", check);
}

/** A hidden frame has no height and gets no event when it is shown, so poll. Polling is cheap. */
const CHECK_EVERY_MS = 400;

/** Report whether the page is visible. TensorBoard hides it while another of its tabs is active. */
export function watchVisible(notify: (visible: boolean) => void): Stop {
  const check = () => notify(window.innerHeight > 0 && document.visibilityState === "visible");
  const timer = window.setInterval(check, CHECK_EVERY_MS);
  window.addEventListener("resize", check);
  document.addEventListener("visibilitychange", check);
  check();
  return () => {
    window.clearInterval(timer);
    window.removeEventListener("resize", check);
    document.removeEventListener("visibilitychange", check);
  };
}

/** The URL that opens this view: TensorBoard's, if the page runs in it. */
export function currentUrl(): string {
  return linkWindow().location.href;
}

export function currentHash(): string {
  return linkWindow().location.hash;
}

/** Change the URL without adding a history entry and without notifying TensorBoard. */
export function replaceHash(hash: string): void {
  const around = linkWindow();
  const { pathname, search } = around.location;
  around.history.replaceState(around.history.state, "", `${pathname}${search}${hash}`);
}

/** Add a history entry with this hash, so that Back returns to the current one. */
export function pushHash(hash: string): void {
  const around = linkWindow();
  const { pathname, search } = around.location;
  around.history.pushState(around.history.state, "", `${pathname}${search}${hash}`);
}

/** Report when the user edits the URL or navigates back or forward. */
export function watchHash(notify: (hash: string) => void): Stop {
  const around = linkWindow();
  const check = () => notify(around.location.hash);
  around.addEventListener("hashchange", check);
  around.addEventListener("popstate", check);
  return () => {
    around.removeEventListener("hashchange", check);
    around.removeEventListener("popstate", check);
  };
}

interface Message {
  readonly type: string;
  readonly id: number;
}

function isMessage(value: unknown): value is Message {
  return typeof value === "object" && value !== null && "type" in value && "id" in value;
}

/** Report when TensorBoard reloads its data, by its button or automatically. */
export function watchReload(notify: () => void): Stop {
  if (!outerWindow()) return () => undefined;
  const { port1, port2 } = new MessageChannel();
  port1.onmessage = (event: MessageEvent<unknown>) => {
    const message: unknown = typeof event.data === "string" ? JSON.parse(event.data) : null;
    if (!isMessage(message)) return;
    if (message.type === "experimental.DataReloaded") notify();
    port1.postMessage(JSON.stringify({ ...message, payload: null, error: null, isReply: true }));
  };
  window.parent.postMessage("experimental.bootstrap", "*", [port2]);
  return () => port1.close();
}
