import type { ReactNode } from "react";
import { usePage } from "../../state/store";

interface Props {
  readonly rule: string;
  readonly children?: ReactNode;
}

/** Opens the page of a rule. */
export function ExplainButton({ rule, children = `${rule} · Explain` }: Props) {
  const explain = usePage((page) => page.explain);
  return (
    <button
      type="button"
      className="gd-link gd-explain"
      title={`What ${rule} checks, and how to fix it`}
      aria-haspopup="dialog"
      onClick={() => explain(rule)}
    >
      {children}
    </button>
  );
}
