// The list of traces, which the server sends in parts: all of it first, then what has changed.

import type { TraceEntry, TraceList } from "./report";

/** Apply the server's answer to the list that the page has. The traces are in no order: see `sorted`. */
export function merged(known: TraceList | undefined, answer: TraceList): TraceList {
  if (!known || answer.whole) return answer;
  const traces = new Map(known.traces.map((entry) => [entry.id, entry]));
  for (const id of answer.removed) traces.delete(id);
  for (const entry of answer.traces) traces.set(entry.id, entry);
  return { ...answer, traces: [...traces.values()] };
}

/** Sort the traces by run, worker and span, as the server does. */
export function sorted(list: TraceList): TraceList {
  return { ...list, traces: list.traces.toSorted(byName) };
}

function byName(a: TraceEntry, b: TraceEntry): number {
  return naturally(a.run, b.run) || naturally(a.worker, b.worker) || byNumber(a.span, b.span);
}

/** Compare names, and the numbers in them as numbers: rank2 comes before rank10. */
export function naturally(a: string, b: string): number {
  if (a === b) return 0;
  const [left, right] = [a.split(/([0-9]+)/), b.split(/([0-9]+)/)];
  for (let i = 0; i < Math.min(left.length, right.length); i++) {
    // Every second part is a number.
    const [x, y] = [left[i] ?? "", right[i] ?? ""];
    const order = i % 2 === 1 ? byNumber(x, y) : byText(x, y);
    if (order !== 0) return order;
  }
  return left.length - right.length;
}

/** Compare digits of any length. */
function byNumber(a: string, b: string): number {
  const [x, y] = [a.replace(/^0+/, ""), b.replace(/^0+/, "")];
  return x.length - y.length || byText(x, y);
}

function byText(a: string, b: string): number {
  if (a === b) return 0;
  return a < b ? -1 : 1;
}
