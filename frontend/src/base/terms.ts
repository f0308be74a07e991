// Looking up ids in the generated vocabulary.

import { PALETTE, type Colored, type Term } from "./vocabulary";

/** The term of an id, if the page knows it. */
export function term<T extends Term>(among: Readonly<Record<string, T>>, id: string): T | undefined {
  return Object.hasOwn(among, id) ? among[id] : undefined;
}

/** The label of an id. An id that the page does not know is shown as it is. */
export function word(among: Readonly<Record<string, Term>>, id: string): string {
  return term(among, id)?.word ?? id;
}

/** The term of an id that is drawn. An id that the page does not know is gray and hatched. */
export function colored(among: Readonly<Record<string, Colored>>, id: string): Colored {
  const unknown = { word: id || "Other", noun: id, explanation: "Unknown to this version of the page." };
  return term(among, id) ?? { ...unknown, color: PALETTE.other, hatched: true };
}
