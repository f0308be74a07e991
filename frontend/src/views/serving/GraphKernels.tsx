import { codePlace, count, time } from "../../base/format";
import type { CapturedGraphs, GraphNode } from "../../wire/report";
import { shapesText } from "../operators/names";
import { Section } from "../parts/Section";
import { ShortTable, type ShortColumn } from "../parts/ShortTable";

const FIRST = 10;

const COLUMNS: readonly ShortColumn<GraphNode>[] = [
  {
    title: "Operator",
    className: "gd-name",
    tip: ({ place }) => (place ? codePlace(place) : ""),
    cell: ({ operator, shapes }) => (
      <span className="gd-two">
        <b>{operator}</b>
        <span>{shapesText(shapes)}</span>
      </span>
    ),
  },
  { title: "Module", className: "gd-name gd-mono", cell: ({ module }) => module },
  {
    title: "Kernel",
    className: "gd-name gd-mono",
    tip: ({ kernel }) => kernel,
    cell: ({ kernel }) => kernel,
  },
  { figure: "kernels", cell: ({ kernels }) => count(kernels) },
  { figure: "kernel_time", cell: ({ us }) => time(us) },
];

/** Kernels in CUDA and HIP graphs, by the operators that were captured. */
export function GraphKernels({ graphs }: { graphs: CapturedGraphs | undefined }) {
  if (!graphs) return null;
  return (
    <Section title="Kernels in graphs">
      <p className="gd-nothing">{graphs.sentence}</p>
      {graphs.matched > 0 && (
        <ShortTable
          className="gd-table gd-launches"
          label="Kernels in graphs"
          columns={COLUMNS}
          rows={graphs.nodes}
          first={FIRST}
          box="Kernels in graphs"
        />
      )}
    </Section>
  );
}
