import { Button } from "@mantine/core";
import { useState, type ReactNode } from "react";
import { count } from "../../base/format";

interface Props<T> {
  readonly items: readonly T[];
  readonly first: number;
  readonly children: (shown: readonly T[]) => ReactNode;
}

/** Rows to add per click. Thousands of rows at once would make the page unresponsive. */
const MORE = 100;

/** The first items of a list of any length, and a button to show more. */
export function More<T>({ items, first, children }: Props<T>) {
  const [shown, setShown] = useState(first);
  const left = items.length - shown;
  return (
    <>
      {children(items.slice(0, shown))}
      {left > 0 && (
        <Button size="compact-xs" variant="subtle" className="gd-more" onClick={() => setShown(shown + MORE)}>
          Show {count(Math.min(left, MORE))} more{left > MORE ? ` of ${count(left)}` : ""}
        </Button>
      )}
    </>
  );
}
