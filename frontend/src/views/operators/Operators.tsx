import { SegmentedControl } from "@mantine/core";
import { useState } from "react";
import { time } from "../../base/format";
import { tableOf } from "../../base/tables";
import { usePage } from "../../state/store";
import { onlyMemory } from "../../state/kinds";
import { isEmbedded } from "../../wire/client";
import type { ReportProps } from "../parts/reportProps";
import { ReportTable, TableRows } from "../parts/ReportTable";
import { Section } from "../parts/Section";
import { CallTables } from "./CallTables";
import { FlameSection } from "./FlameSection";
import { optionsOf } from "../recording/parts";
import type { OpenRow } from "./openRow";
import { Roofline } from "./Roofline";

/** Time by operator and kernel, how near to the GPU's peaks they are, and the call tree. */
export default function Operators({ entry, report }: ReportProps) {
  const nodes = tableOf(report, "graph_kernels");
  return (
    <>
      {!onlyMemory(report.trace?.kind) && <Calls entry={entry} report={report} />}
      {report.captured_graphs && (
        <Section title="Kernels in graphs">
          <p className="gd-nothing">{report.captured_graphs.sentence}</p>
          {nodes && <TableRows table={nodes} />}
        </Section>
      )}
      <ReportTable report={report} id="modules" />
      <ReportTable report={report} id="kernel_families" about="kernel family" />
      <ReportTable report={report} id="collectives" />
    </>
  );
}

/** Kinds of tables by the category of a node of the call tree. */
const KIND_OF: Readonly<Record<number, string>> = {
  1: "operator",
  2: "range",
  3: "python",
  4: "call",
  5: "call",
};

function Calls({ entry, report }: ReportProps) {
  const hasGpu = report.devices.length > 0;
  const selection = usePage((page) => page.selection);
  const within = usePage((page) => page.within);
  const setWithin = usePage((page) => page.setWithin);
  const [kind, setKind] = useState("operator");
  const [open, setOpen] = useState<OpenRow | null>(null);
  const [name, setName] = useState<string | null>(null);
  const [root, setRoot] = useState<number | null>(null);
  const span = within ? selection : null;
  const marked = open?.name ?? name;
  return (
    <>
      {selection && !isEmbedded() && (
        <div className="gd-controls">
          <SegmentedControl
            size="xs"
            aria-label="Which part of the recording"
            data={[
              { value: "all", label: "Whole recording" },
              { value: "range", label: `Selected ${time(selection.end_us - selection.start_us)}` },
            ]}
            value={within ? "range" : "all"}
            onChange={(value) => setWithin(value === "range")}
          />
        </div>
      )}
      <CallTables
        {...{ entry, report, span, hasGpu, kind, open, marked }}
        onKind={(next) => {
          setKind(next);
          setOpen(null);
        }}
        onOpen={(row) => {
          setOpen(row);
          setName(row?.name ?? null);
        }}
        onRoot={setRoot}
      />
      <Roofline entry={entry} wanted={hasGpu} how={optionsOf(report).shapes} />
      <FlameSection
        {...{ entry, span, hasGpu, marked, root }}
        onRoot={setRoot}
        onName={(picked, category) => {
          setName(picked);
          setOpen(null);
          setKind((now) => KIND_OF[category] ?? now);
        }}
      />
    </>
  );
}
