import { Button, CloseButton } from "@mantine/core";
import { hasEvents } from "../../state/kinds";
import { usePage } from "../../state/store";
import { isEmbedded } from "../../wire/client";
import type { TraceEntry } from "../../wire/report";

interface Props {
  readonly traces: readonly TraceEntry[];
  readonly entry: TraceEntry;
}

/** Pins the recording on the page as the base of comparisons. With another one pinned, BaseBar is about it. */
export function Base({ traces, entry }: Props) {
  const base = usePage((page) => page.base);
  const tab = usePage((page) => page.tab);
  const pinBase = usePage((page) => page.pinBase);
  if (!hasEvents(entry.kind) || traces.length < 2 || isEmbedded()) return null;
  const pinned = traces.find(({ id }) => id === base);
  if (!pinned || pinned.id === entry.id) {
    return (
      <Button
        size="compact-xs"
        variant={pinned ? "light" : "default"}
        aria-pressed={pinned !== undefined}
        title="Compare other recordings with this one"
        onClick={() => pinBase(pinned ? null : entry.id)}
      >
        {pinned ? "Pinned as base" : "Pin as base"}
      </Button>
    );
  }
  if (tab !== "compare") return null;
  return (
    <span className="gd-base">
      <span title={pinned.run}>Base: {pinned.run}</span>
      <CloseButton
        size="xs"
        aria-label="Unpin the base"
        title="Unpin the base"
        onClick={() => pinBase(null)}
      />
    </span>
  );
}
