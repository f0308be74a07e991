import { bytes } from "../../base/format";
import { useAgainst } from "../../state/base";
import { deltaOf } from "../../state/delta";
import { memoryLabel } from "../../state/memory";
import type { DeviceMemory, TraceEntry } from "../../wire/report";
import { DeltaText } from "../base/DeltaText";

const WHAT: Readonly<Record<string, string>> = {
  peak: "Peak, allocated",
  reserved: "Peak, reserved",
  floor: "Floor of a step",
};

/** Peak and floor of a device against the base. */
export function AgainstBase({ entry, memory }: { entry: TraceEntry; memory: DeviceMemory }) {
  const against = useAgainst(entry);
  if (!against?.comparison) return null;
  const found = against.comparison.memory.filter(({ device }) => device === memoryLabel(memory));
  if (found.length === 0) {
    return <p className="gd-muted">The base has no memory events of this device to compare with.</p>;
  }
  return (
    <dl className="gd-facts" aria-label="Memory against the base">
      {found.map(({ what, base_bytes, candidate_bytes }) => (
        <div key={what}>
          <dt>{WHAT[what] ?? what}</dt>
          <dd>
            {bytes(candidate_bytes)}{" "}
            <DeltaText delta={deltaOf(candidate_bytes, base_bytes, bytes)} base={bytes(base_bytes)} />
          </dd>
        </div>
      ))}
    </dl>
  );
}
