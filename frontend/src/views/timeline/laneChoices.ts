// Which lanes are folded, pinned and hidden.

import type { LaneChoices } from "../../canvas/rows";

function without(keys: ReadonlySet<string>, key: string): ReadonlySet<string> {
  return new Set([...keys].filter((other) => other !== key));
}

export function toggled(choices: LaneChoices, what: keyof LaneChoices, key: string): LaneChoices {
  const keys = choices[what];
  return { ...choices, [what]: keys.has(key) ? without(keys, key) : new Set([...keys, key]) };
}

/** Hide all lanes but one. */
export function only(choices: LaneChoices, key: string, all: readonly string[]): LaneChoices {
  return { ...choices, hidden: new Set(all.filter((other) => other !== key)) };
}

/** Make sure that a lane is shown with all of its depths. Returns `choices` itself if it is. */
export function revealed(choices: LaneChoices, key: string): LaneChoices {
  const { hidden, folded } = choices;
  if (!hidden.has(key) && !folded.has(key)) return choices;
  return { ...choices, hidden: without(hidden, key), folded: without(folded, key) };
}
