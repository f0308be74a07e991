import { useEffect, type KeyboardEvent, type RefObject } from "react";

const FOCUSABLE = "button, a[href], input, select";

/** Rows that a page of the keyboard has. */
const PAGE = 10;

const ROWS: Readonly<Record<string, number>> = { ArrowUp: -1, ArrowDown: 1, PageUp: -PAGE, PageDown: PAGE };

/** What can have the focus in a row. */
function inRow(row: Element): HTMLElement[] {
  return [...row.querySelectorAll<HTMLElement>(FOCUSABLE)];
}

/** The element to go to with this key, or null if the key does something else here. */
export function goalOf(key: string, from: HTMLElement, table: Element): HTMLElement | null {
  const row = from.closest("tr");
  if (!row) return null;
  if (key === "ArrowLeft" || key === "ArrowRight") {
    const around = inRow(row);
    return around[around.indexOf(from) + (key === "ArrowLeft" ? -1 : 1)] ?? null;
  }
  const by = ROWS[key];
  if (by === undefined) return null;
  const rows = [...table.querySelectorAll("tr")].filter((other) => other === row || inRow(other).length > 0);
  const at = rows.indexOf(row) + by;
  // The first row is the header: a page up stops below it.
  const next = rows[Math.max(key === "PageUp" ? 1 : 0, Math.min(at, rows.length - 1))];
  if (!next || next === row) return null;
  const column = [...row.children].indexOf(from.closest("td, th") ?? from);
  const cell = next.children[column];
  return (cell && inRow(cell)[0]) ?? inRow(next)[0] ?? null;
}

/**
 * One stop of Tab for a whole table: arrow keys move among its rows and what is in them. Returns the handler for keys;
 * the element that had the focus last, or the first one below the header, is the stop.
 */
export function useRoving(box: RefObject<HTMLElement | null>) {
  useEffect(() => {
    const table = box.current;
    if (!table) return;
    const settle = () => {
      const all = inRow(table);
      const now =
        all.find((element) => element === document.activeElement) ??
        all.find((element) => element.dataset.stop === "true") ??
        table.querySelector<HTMLElement>(`tbody :is(${FOCUSABLE})`) ??
        all[0];
      for (const element of all) {
        element.tabIndex = element === now ? 0 : -1;
        if (element === now) element.dataset.stop = "true";
        else delete element.dataset.stop;
      }
    };
    settle();
    table.addEventListener("focusin", settle);
    // Rows come and go while the table scrolls, is sorted or filtered.
    const observer = new MutationObserver(settle);
    observer.observe(table, { childList: true, subtree: true });
    return () => {
      table.removeEventListener("focusin", settle);
      observer.disconnect();
    };
  }, [box]);
  return (event: KeyboardEvent<HTMLElement>) => {
    const from = (event.target as Element).closest<HTMLElement>(FOCUSABLE);
    if (!from || event.altKey || event.ctrlKey || event.metaKey) return;
    const goal = goalOf(event.key, from, event.currentTarget);
    if (!goal) return;
    event.preventDefault();
    goal.focus();
  };
}
