import { useState, type ReactNode } from "react";

/** The figures of a chart as a table, for screen readers and to read them one by one. Rendered while it is open. */
export function AsTable({ children }: { children: ReactNode }) {
  const [opened, setOpened] = useState(false);
  return (
    <details className="gd-others" onToggle={(event) => setOpened(event.currentTarget.open)}>
      <summary>As a table</summary>
      {opened && children}
    </details>
  );
}
