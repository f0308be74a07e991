// The window around the page: TensorBoard's window if the page runs in its frame, else the page's own.

import type { Scheme } from "../base/causes";

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
export function watchScheme(tell: (scheme: Scheme) => void): Stop {
  const outer = outerWindow();
  if (outer) {
    const body = outer.document.body;
    const look = () => {
      tell(body.classList.contains("dark-mode") ? "dark" : "light");
    };
    const observer = new MutationObserver(look);
    observer.observe(body, { attributes: true, attributeFilter: ["class"] });
    look();
    return () => {
      observer.disconnect();
    };
  }
  const preference = window.matchMedia("(prefers-color-scheme: dark)");
  const look = () => {
    tell(preference.matches ? "dark" : "light");
  };
  preference.addEventListener("change", look);
  look();
  return () => {
    preference.removeEventListener("change", look);
  };
}

/** A hidden frame has no height and gets no event when it is shown, so poll. Polling is cheap. */
const LOOK_EVERY_MS = 400;

/** Report whether the page is visible. TensorBoard hides it while another of its tabs is active. */
export function watchVisible(tell: (visible: boolean) => void): Stop {
  const look = () => {
    tell(window.innerHeight > 0 && document.visibilityState === "visible");
  };
  const timer = window.setInterval(look, LOOK_EVERY_MS);
  window.addEventListener("resize", look);
  document.addEventListener("visibilitychange", look);
  look();
  return () => {
    window.clearInterval(timer);
    window.removeEventListener("resize", look);
    document.removeEventListener("visibilitychange", look);
  };
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

/** Report when the user edits the URL or navigates back or forward. */
export function watchHash(tell: (hash: string) => void): Stop {
  const around = linkWindow();
  const look = () => {
    tell(around.location.hash);
  };
  around.addEventListener("hashchange", look);
  around.addEventListener("popstate", look);
  return () => {
    around.removeEventListener("hashchange", look);
    around.removeEventListener("popstate", look);
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
export function watchReload(tell: () => void): Stop {
  if (!outerWindow()) return () => undefined;
  const { port1, port2 } = new MessageChannel();
  port1.onmessage = (event: MessageEvent<unknown>) => {
    const message: unknown = typeof event.data === "string" ? JSON.parse(event.data) : null;
    if (!isMessage(message)) return;
    if (message.type === "experimental.DataReloaded") tell();
    port1.postMessage(JSON.stringify({ ...message, payload: null, error: null, isReply: true }));
  };
  window.parent.postMessage("experimental.bootstrap", "*", [port2]);
  return () => {
    port1.close();
  };
}
