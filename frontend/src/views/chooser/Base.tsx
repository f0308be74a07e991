import { Button, CloseButton } from "@mantine/core";
import { onlyMemory } from "../../state/kinds";
import { usePage } from "../../state/store";
import { isEmbedded } from "../../wire/client";
import type { TraceEntry } from "../../wire/report";

interface Props {
  readonly traces: readonly TraceEntry[];
  readonly entry: TraceEntry;
}

/** The recording that others are compared with: pins the one on the page, or compares it. */
export function Base({ traces, entry }: Props) {
  const base = usePage((page) => page.base);
  const tab = usePage((page) => page.tab);
  const pinBase = usePage((page) => page.pinBase);
  const openTab = usePage((page) => page.openTab);
  if (onlyMemory(entry.kind) || traces.length < 2 || isEmbedded()) return null;
  const pinned = traces.find(({ id }) => id === base);
  if (!pinned || pinned.id === entry.id) {
    return (
      <Button
        size="compact-xs"
        variant={pinned ? "light" : "default"}
        aria-pressed={pinned !== undefined}
        title="Compare other recordings with this one"
        onClick={() => {
          pinBase(pinned ? null : entry.id);
        }}
      >
        {pinned ? "Base of comparisons" : "Pin as base"}
      </Button>
    );
  }
  return (
    <span className="gd-base">
      {tab === "compare" ? (
        <span title={pinned.run}>Base: {pinned.run}</span>
      ) : (
        <Button
          size="compact-xs"
          variant="light"
          title={`Compare this recording with ${pinned.run}`}
          onClick={() => {
            openTab("compare");
          }}
        >
          Compare with {pinned.run}
        </Button>
      )}
      <CloseButton
        size="xs"
        aria-label="Unpin the base"
        title="Unpin the base"
        onClick={() => {
          pinBase(null);
        }}
      />
    </span>
  );
}
