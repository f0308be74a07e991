import { Button } from "@mantine/core";
import { useState, type ReactNode } from "react";
import { count } from "../../base/format";

interface Props<T> {
  readonly items: readonly T[];
  readonly first: number;
  readonly children: (shown: readonly T[]) => ReactNode;
}

/** Each press shows this many more: a page with thousands of rows at once answers no click. */
const MORE = 100;

/** The first few of a list that may be very long, and a way to the others. */
export function More<T>({ items, first, children }: Props<T>) {
  const [shown, setShown] = useState(first);
  const left = items.length - shown;
  return (
    <>
      {children(items.slice(0, shown))}
      {left > 0 && (
        <Button
          size="compact-xs"
          variant="subtle"
          className="gd-more"
          onClick={() => {
            setShown(shown + MORE);
          }}
        >
          Show {count(Math.min(left, MORE))} more{left > MORE ? ` of ${count(left)}` : ""}
        </Button>
      )}
    </>
  );
}
