import { bytes } from "../../base/format";
import { word } from "../../base/terms";
import { MEMORY_FIGURES } from "../../base/vocabulary";
import { useAgainst } from "../../state/base";
import { deltaOf } from "../../state/delta";
import { memoryLabel } from "../../state/memory";
import type { DeviceMemory, TraceEntry } from "../../wire/report";
import { DeltaText } from "../base/DeltaText";

/** Peak and floor of a device against the base. */
export function AgainstBase({ entry, memory }: { entry: TraceEntry; memory: DeviceMemory }) {
  const against = useAgainst(entry);
  if (!against?.comparison) return null;
  const found = against.comparison.memory.filter(({ device }) => device === memoryLabel(memory));
  if (found.length === 0) {
    return <p className="gd-muted">The base has no memory events for this device.</p>;
  }
  return (
    <dl className="gd-facts" aria-label="Memory against the base">
      {found.map(({ what, base_bytes, candidate_bytes }) => (
        <div key={what}>
          <dt>{word(MEMORY_FIGURES, what)}</dt>
          <dd>
            {bytes(candidate_bytes)}{" "}
            <DeltaText delta={deltaOf(candidate_bytes, base_bytes, bytes)} base={bytes(base_bytes)} />
          </dd>
        </div>
      ))}
    </dl>
  );
}
