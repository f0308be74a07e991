import { Button } from "@mantine/core";
import { onlyMemory } from "../../state/kinds";
import { usePage } from "../../state/store";
import { isEmbedded } from "../../wire/client";
import type { TraceEntry } from "../../wire/report";

/** Makes the recording on the page the base of comparisons, or compares it with the base. */
export function PinBase({ entry }: { entry: TraceEntry }) {
  const base = usePage((page) => page.base);
  const tab = usePage((page) => page.tab);
  const pinBase = usePage((page) => page.pinBase);
  const openTab = usePage((page) => page.openTab);
  if (onlyMemory(entry.kind) || isEmbedded()) return null;
  const pinned = base === entry.id;
  return (
    <span className="gd-buttons">
      <Button
        size="compact-xs"
        variant={pinned ? "light" : "default"}
        aria-pressed={pinned}
        title="Compare other recordings with this one"
        onClick={() => {
          pinBase(pinned ? null : entry.id);
        }}
      >
        {pinned ? "Base of comparisons" : "Pin as base"}
      </Button>
      {base !== null && !pinned && tab !== "compare" && (
        <Button
          size="compact-xs"
          variant="default"
          onClick={() => {
            openTab("compare");
          }}
        >
          Compare with the base
        </Button>
      )}
    </span>
  );
}
