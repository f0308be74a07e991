// For each test file. All files share a page.

import { cleanup, configure } from "@testing-library/react";
import { afterEach } from "vitest";

// The first view that is shown has to be loaded, which takes seconds on a busy machine.
configure({ asyncUtilTimeout: 10_000 });

afterEach(cleanup);
