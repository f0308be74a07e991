import { useCallback, useMemo, useState } from "react";
import { NO_CHOICES, type LaneChoices } from "../../canvas/rows";

export interface LaneControls {
  readonly choices: LaneChoices;
  readonly toggle: (what: keyof LaneChoices, key: string) => void;
  /** Hide all lanes but one. */
  readonly only: (key: string, all: readonly string[]) => void;
  readonly showAll: () => void;
  /** Make sure that a lane is shown with all of its depths. */
  readonly reveal: (key: string) => void;
}

function toggled(keys: ReadonlySet<string>, key: string): ReadonlySet<string> {
  return keys.has(key) ? without(keys, key) : new Set([...keys, key]);
}

function without(keys: ReadonlySet<string>, key: string): ReadonlySet<string> {
  return keys.has(key) ? new Set([...keys].filter((other) => other !== key)) : keys;
}

/** Which lanes are folded, pinned and hidden. */
export function useLaneChoices(): LaneControls {
  const [choices, setChoices] = useState<LaneChoices>(NO_CHOICES);
  const toggle = useCallback((what: keyof LaneChoices, key: string) => {
    setChoices((now) => ({ ...now, [what]: toggled(now[what], key) }));
  }, []);
  const only = useCallback((key: string, all: readonly string[]) => {
    setChoices((now) => ({ ...now, hidden: new Set(all.filter((other) => other !== key)) }));
  }, []);
  const showAll = useCallback(() => {
    setChoices((now) => ({ ...now, hidden: new Set() }));
  }, []);
  const reveal = useCallback((key: string) => {
    setChoices((now) =>
      now.hidden.has(key) || now.folded.has(key)
        ? { ...now, hidden: without(now.hidden, key), folded: without(now.folded, key) }
        : now,
    );
  }, []);
  return useMemo(
    () => ({ choices, toggle, only, showAll, reveal }),
    [choices, toggle, only, showAll, reveal],
  );
}
