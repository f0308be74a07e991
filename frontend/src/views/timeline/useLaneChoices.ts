import { useMemo, useState } from "react";
import { NO_CHOICES, type LaneChoices } from "../../canvas/rows";
import { only, revealed, toggled } from "./laneChoices";

export interface LaneControls {
  readonly choices: LaneChoices;
  readonly toggle: (what: keyof LaneChoices, key: string) => void;
  readonly only: (key: string, all: readonly string[]) => void;
  readonly showAll: () => void;
  readonly reveal: (key: string) => void;
}

export function useLaneChoices(): LaneControls {
  const [choices, setChoices] = useState<LaneChoices>(NO_CHOICES);
  const changes = useMemo(
    () => ({
      toggle: (what: keyof LaneChoices, key: string) => setChoices((now) => toggled(now, what, key)),
      only: (key: string, all: readonly string[]) => setChoices((now) => only(now, key, all)),
      showAll: () => setChoices((now) => ({ ...now, hidden: new Set() })),
      reveal: (key: string) => setChoices((now) => revealed(now, key)),
    }),
    [],
  );
  return useMemo(() => ({ choices, ...changes }), [choices, changes]);
}
