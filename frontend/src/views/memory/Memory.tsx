import { SegmentedControl } from "@mantine/core";
import { memoryLabel } from "../../state/memory";
import { costsMemory } from "../../state/findings";
import { usePage } from "../../state/store";
import type { Report, TraceEntry } from "../../wire/report";
import { Section } from "../parts/Section";
import { MemoryOfDevice } from "./MemoryOfDevice";
import { NotRecorded } from "./NotRecorded";

/** Memory over time, at its peak, and what stays allocated. */
export function Memory({ entry, report }: { entry: TraceEntry; report: Report }) {
  const chosen = usePage((page) => page.memoryOf);
  const choose = usePage((page) => page.showMemoryOf);
  // By default, the device of the worst finding about memory.
  const device = chosen ?? report.findings.find(costsMemory)?.memory_device;
  const memory = report.memory.find((one) => one.device === device) ?? report.memory[0];
  if (!memory) return <NotRecorded report={report} />;
  return (
    <Section
      title="Memory"
      about="caching allocator"
      className="gd-memory"
      aside={
        report.memory.length > 1 ? (
          <SegmentedControl
            size="xs"
            aria-label="Device"
            data={report.memory.map((one) => ({ value: String(one.device), label: memoryLabel(one) }))}
            value={String(memory.device)}
            onChange={(value) => choose(Number(value))}
          />
        ) : (
          <span className="gd-muted">{memoryLabel(memory)}</span>
        )
      }
    >
      <MemoryOfDevice key={memory.device} entry={entry} memory={memory} />
    </Section>
  );
}
