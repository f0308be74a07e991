import { useMemo, useState } from "react";
import { useElementSize } from "@mantine/hooks";
import { clamp, type Viewport } from "../../base/viewport";
import { gapsOf, type Gap } from "../../canvas/slice";
import { rowsOf } from "../../canvas/rows";
import { usePage } from "../../state/store";
import type { Report, TraceEntry } from "../../wire/report";
import { Section } from "../parts/Section";
import { Problem } from "../status/Problem";
import { GapPanel } from "./GapPanel";
import { TIMELINE_ID } from "./id";
import { Lanes } from "./Lanes";
import { Toolbar } from "./Toolbar";
import { useSlices } from "./useSlices";

interface Props {
  readonly entry: TraceEntry;
  readonly report: Report;
}

/** Nothing is shorter than this, not even an empty trace: a view has a length. */
const SHORTEST_TRACE_US = 1;

export function Timeline({ entry, report }: Props) {
  const end_us = Math.max(report.trace?.duration_us ?? 0, SHORTEST_TRACE_US);
  const bounds = useMemo<Viewport>(() => ({ start_us: 0, end_us }), [end_us]);
  const wanted = usePage((page) => page.view);
  const openedGap = usePage((page) => page.gap);
  const view = useMemo(() => (wanted ? clamp(wanted, bounds) : bounds), [wanted, bounds]);
  const { ref, width } = useElementSize<HTMLDivElement>();
  const slices = useSlices(entry, view, bounds, Math.round(width));
  const [folded, setFolded] = useState<ReadonlySet<string>>(new Set());
  const rows = useMemo(
    () => (slices.overview ? rowsOf(slices.overview, slices.depths, folded) : null),
    [slices.overview, slices.depths, folded],
  );
  const gaps = useMemo<readonly Gap[]>(
    () => (slices.overview ? gapsOf(slices.overview) : []),
    [slices.overview],
  );
  const fold = (key: string) => {
    setFolded((now) =>
      now.has(key) ? new Set([...now].filter((other) => other !== key)) : new Set([...now, key]),
    );
  };
  return (
    <Section
      title="Timeline"
      className="gd-timeline"
      aside={<Toolbar view={view} bounds={bounds} gaps={gaps} loading={slices.loading} />}
    >
      <div id={TIMELINE_ID} className="gd-timeline-body" data-panel={openedGap !== null || undefined}>
        <Lanes
          slice={slices.best}
          rows={rows}
          view={view}
          bounds={bounds}
          gaps={gaps}
          measure={ref}
          width={Math.round(width)}
          onFold={fold}
        />
        {openedGap && (
          <GapPanel
            key={`${openedGap.device}/${openedGap.gap}`}
            entry={entry}
            gap={openedGap}
            bounds={bounds}
          />
        )}
      </div>
      {slices.problem && <Problem problem={slices.problem} />}
    </Section>
  );
}
