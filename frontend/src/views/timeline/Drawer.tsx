import type { UseQueryResult } from "@tanstack/react-query";
import type { Slice } from "../../canvas/slice";
import { usePage } from "../../state/store";
import type { EventDetails, TraceEntry } from "../../wire/report";
import { EventPanel } from "./EventPanel";
import { GapPanel } from "./GapPanel";
import { RangePanel } from "./RangePanel";
import { Results } from "./Results";
import type { Search } from "./useSearch";

interface Props {
  readonly entry: TraceEntry;
  readonly search: Search;
  readonly event: UseQueryResult<EventDetails>;
  readonly reveal: (lane: string) => void;
  readonly overview: Slice | null;
}

/** What was chosen last: a gap, an event, the matches of a search, or a range. */
export function Drawer({ entry, search, event, reveal, overview }: Props) {
  const gap = usePage((page) => page.gap);
  const opened = usePage((page) => page.event);
  const selection = usePage((page) => page.selection);
  if (gap) return <GapPanel key={`${gap.device}/${gap.gap}`} entry={entry} gap={gap} />;
  if (opened !== null) {
    return <EventPanel event={event} search={search} reveal={reveal} overview={overview} />;
  }
  if (search.open) return <Results search={search} />;
  if (selection) return <RangePanel entry={entry} range={selection} search={search} />;
  return null;
}
