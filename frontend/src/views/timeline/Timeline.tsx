import { useMemo, useState } from "react";
import { useElementSize } from "@mantine/hooks";
import { gapsOf, type Gap } from "../../canvas/slice";
import { NO_CHOICES, rowsOf, type LaneChoices } from "../../canvas/rows";
import { usePage } from "../../state/store";
import type { TraceEntry } from "../../wire/report";
import { Section } from "../parts/Section";
import { Problem } from "../status/Problem";
import { GapPanel } from "./GapPanel";
import { Kinds } from "./Kinds";
import { Lanes } from "./Lanes";
import { Toolbar } from "./Toolbar";
import { useSlices } from "./useSlices";

/** The activity of the GPU and the host over time. */
export function Timeline({ entry }: { entry: TraceEntry }) {
  const wanted = usePage((page) => page.view);
  const openedGap = usePage((page) => page.gap);
  const { ref, width } = useElementSize<HTMLDivElement>();
  const slices = useSlices(entry, wanted, Math.round(width));
  const { view } = slices;
  const bounds = slices.bounds ?? view;
  const [choices, setChoices] = useState<LaneChoices>(NO_CHOICES);
  const rows = useMemo(
    () => (slices.overview ? rowsOf(slices.overview, slices.depths, choices) : null),
    [slices.overview, slices.depths, choices],
  );
  const gaps = useMemo<readonly Gap[]>(
    () => (slices.overview ? gapsOf(slices.overview) : []),
    [slices.overview],
  );
  const toggle = (what: keyof LaneChoices, key: string) => {
    setChoices((now) => ({ ...now, [what]: toggled(now[what], key) }));
  };
  return (
    <Section
      title="Timeline"
      className="gd-timeline"
      aside={<Toolbar view={view} bounds={bounds} gaps={gaps} loading={slices.loading} />}
    >
      <div className="gd-timeline-body" data-panel={openedGap !== null || undefined}>
        <Lanes
          slice={slices.best}
          rows={rows}
          view={view}
          bounds={bounds}
          gaps={gaps}
          tall={openedGap !== null}
          measure={ref}
          width={Math.round(width)}
          onToggle={toggle}
        />
        {openedGap && <GapPanel key={`${openedGap.device}/${openedGap.gap}`} entry={entry} gap={openedGap} />}
      </div>
      {slices.overview && <Kinds slice={slices.overview} />}
      {slices.problem && <Problem problem={slices.problem} />}
    </Section>
  );
}

function toggled(keys: ReadonlySet<string>, key: string): ReadonlySet<string> {
  return keys.has(key) ? new Set([...keys].filter((other) => other !== key)) : new Set([...keys, key]);
}
