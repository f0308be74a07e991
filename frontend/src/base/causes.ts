// Work parts and idle causes as the page shows them: words, order and backgrounds.

import { words } from "./format";
import { colored } from "./terms";
import { CAUSES, STRIPES, WORK_PARTS, type Colored, type Scheme } from "./vocabulary";

const ALL: Readonly<Record<string, Colored>> = { ...WORK_PARTS, ...CAUSES };
const ORDER = Object.keys(ALL);

/** What the GPU does when it is not idle. */
export const WORK: readonly string[] = Object.keys(WORK_PARTS);

/** A work part or an idle cause. */
export function cause(id: string): Colored {
  return colored(ALL, id);
}

/** The label of a part of a step. Reports about several traces also have parts that no single trace has. */
export function partLabel(id: string): string {
  if (id === "other") return "Not attributed";
  return Object.hasOwn(ALL, id) ? cause(id).word : words(id);
}

/** The place of a cause in every legend. Unknown ones come last. */
export function rank(name: string): number {
  const at = ORDER.indexOf(name);
  return at === -1 ? ORDER.length : at;
}

/** A CSS background for a cause. */
export function paint(name: string, scheme: Scheme): string {
  const { color, hatched } = cause(name);
  if (!hatched) return color[scheme];
  return `repeating-linear-gradient(135deg, ${STRIPES[scheme]} 0 2px, transparent 2px 5px), ${color[scheme]}`;
}
