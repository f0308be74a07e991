// For each test file. All files share a page.

import { cleanup, configure } from "@testing-library/react";
import { afterEach, beforeEach, vi } from "vitest";
import { usePage } from "./src/state/store";

// The first view that is shown has to be loaded, which takes seconds on a busy machine.
configure({ asyncUtilTimeout: 60_000 });

beforeEach(() => {
  usePage.setState(usePage.getInitialState());
});

afterEach(() => {
  cleanup();
  vi.useRealTimers();
  vi.unstubAllGlobals();
});
