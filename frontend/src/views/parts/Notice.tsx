import type { ReactNode } from "react";

interface Props {
  readonly tone: "info" | "warning" | "error";
  readonly children: ReactNode;
  readonly action?: ReactNode;
}

/** A message about the page itself. */
export function Notice({ tone, children, action }: Props) {
  return (
    <div className="gd-notice" data-tone={tone} role={tone === "error" ? "alert" : "status"}>
      <span>{children}</span>
      {action}
    </div>
  );
}
