import { beforeEach, expect, it, vi } from "vitest";
import { watchScheme, watchVisible } from "./frame";

beforeEach(() => {
  vi.useFakeTimers();
});

function height(px: number) {
  vi.stubGlobal("innerHeight", px);
  vi.advanceTimersByTime(1000);
}

it("notices that the frame is hidden and shown again, although there is no event for it", () => {
  const states: boolean[] = [];
  height(900);
  const stop = watchVisible((visible) => {
    if (states.at(-1) !== visible) states.push(visible);
  });
  height(0);
  height(900);
  stop();
  height(0);
  expect(states).toEqual([true, false, true]);
});

it("follows the system's theme if the page runs standalone", () => {
  const states: string[] = [];
  const listeners: (() => void)[] = [];
  const preference = {
    matches: true,
    addEventListener: (_: string, listener: () => void) => listeners.push(listener),
    removeEventListener: () => undefined,
  };
  vi.stubGlobal("matchMedia", () => preference);
  watchScheme((scheme) => states.push(scheme));
  preference.matches = false;
  for (const listener of listeners) listener();
  expect(states).toEqual(["dark", "light"]);
});
