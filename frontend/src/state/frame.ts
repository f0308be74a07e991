// The window around the page: TensorBoard's, when the page stands in its frame, or the page's own.

import type { Scheme } from "../base/causes";

type Stop = () => void;

/** TensorBoard's window; null when the page stands alone or the window around it is of another origin. */
function outerWindow(): Window | null {
  if (window.parent === window) return null;
  // Null, not an exception, where the origins differ.
  return window.frameElement === null ? null : window.parent;
}

function linkWindow(): Window {
  return outerWindow() ?? window;
}

/** TensorBoard's own light or dark; the system's wish where the page stands alone. */
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
  const wish = window.matchMedia("(prefers-color-scheme: dark)");
  const look = () => {
    tell(wish.matches ? "dark" : "light");
  };
  wish.addEventListener("change", look);
  look();
  return () => {
    wish.removeEventListener("change", look);
  };
}

/** A hidden frame has no height, and is told nothing when it gets one: look now and then, which costs nothing. */
const LOOK_EVERY_MS = 400;

/** Is the page to be seen, or is another tab of TensorBoard in front? */
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

/** Changes the address without a new entry in the history, and without telling TensorBoard. */
export function replaceHash(hash: string): void {
  const around = linkWindow();
  const { pathname, search } = around.location;
  around.history.replaceState(around.history.state, "", `${pathname}${search}${hash}`);
}

/** Someone edited the address, or went back or forward. */
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

/** TensorBoard's reload button, or its automatic reload. */
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
