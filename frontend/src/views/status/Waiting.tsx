import { Loader } from "@mantine/core";
import type { ReactNode } from "react";

/** Shown in place of what is not there yet: `children` says what the page waits for. */
export function Waiting({ children }: { children: ReactNode }) {
  return (
    <div className="gd-waiting" role="status">
      <Loader size="sm" /> {children}
    </div>
  );
}
