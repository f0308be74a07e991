// What tests of the page's parts need.

import { MantineProvider } from "@mantine/core";
import { QueryClientProvider } from "@tanstack/react-query";
import { render, type RenderResult } from "@testing-library/react";
import type { ReactNode } from "react";
import { vi } from "vitest";
import { createQueryClient } from "../state/queries";

/** Render a part of the page. */
export function renderPart(part: ReactNode, client = createQueryClient()): RenderResult {
  return render(
    <MantineProvider env="test">
      <QueryClientProvider client={client}>{part}</QueryClientProvider>
    </MantineProvider>,
  );
}

/** Answer each request of the page with this. */
export function answerWith(answer: object): void {
  vi.stubGlobal("fetch", () => Promise.resolve(Response.json(answer)));
}
