import { useElementSize } from "@mantine/hooks";
import { useState } from "react";
import { count, figures, percent, plural, time } from "../../base/format";
import type { Order } from "../../base/sorting";
import { FAMILIES } from "../../base/vocabulary";
import { useRoofline } from "../../state/calls";
import type {
  KernelRow_Family,
  RooflinePeak,
  RooflinePlot,
  RooflinePoint,
  TraceEntry,
} from "../../wire/report";
import { DataTable, type Column } from "../parts/DataTable";
import { figure } from "../parts/figure";
import { Section } from "../parts/Section";
import { shapesText } from "./names";
import { at, decades, placedPoints, ridge, type Placed, type Scale } from "./rooflineScale";

const HEIGHT_PX = 280;
const LEFT_PX = 58;
const RIGHT_PX = 16;
const TOP_PX = 26;
const BOTTOM_PX = 40;

/** Room for the name of a peak: those of neighbors are next to each other. */
const LABEL_PX = 210;

const LARGEST_PX = 15;
const SMALLEST_PX = 3.5;

interface Props {
  readonly entry: TraceEntry;
  readonly wanted: boolean;
  /** What records input shapes. */
  readonly how: string;
}

/** Operators against the peaks of the GPU, where input shapes were recorded. */
export function Roofline({ entry, wanted, how }: Props) {
  const { data } = useRoofline(entry, wanted);
  if (data?.state !== "ready") return null;
  if (data.points.length === 0) {
    return (
      <Section title="Roofline" about="roofline">
        <p className="gd-nothing">
          No operator has the input shapes that its FLOPs follow from. Record with <code>{how}</code>.
        </p>
      </Section>
    );
  }
  return <Plotted plot={data} />;
}

function Plotted({ plot }: { plot: RooflinePlot }) {
  const { ref, width } = useElementSize();
  const placed = placedPoints(plot.points);
  const without = plot.points.length - placed.length;
  return (
    <Section title="Roofline" about="roofline" aside={<span className="gd-muted">{aboutPeaks(plot)}</span>}>
      <div className="gd-roofline">
        <div ref={ref} />
        {placed.length > 0 && width > 0 && <Picture plot={plot} placed={placed} width={width} />}
      </div>
      <Legend placed={placed} />
      {without > 0 && (
        <p className="gd-rest">
          {plural(without, "memory-bound operator")} without matmuls {without === 1 ? "is" : "are"} only in
          the table.
        </p>
      )}
      <Points plot={plot} />
    </Section>
  );
}

function aboutPeaks(plot: RooflinePlot): string {
  if (plot.bandwidth <= 0) return "The peak rates of this GPU are unknown.";
  const whose = plot.assumed ? `assumed: ${plot.assumed}` : plot.device_name;
  return `GPU ${plot.device}, ${whose}; the area of a point is its GPU time`;
}

interface PictureProps {
  readonly plot: RooflinePlot;
  readonly placed: readonly Placed[];
  readonly width: number;
}

function Picture({ plot, placed, width }: PictureProps) {
  const ridges = plot.peaks.map(({ teraflops }) => ridge(plot, teraflops));
  const across = decades([...placed.map(({ intensity }) => intensity), ...ridges]);
  const up = decades([
    ...placed.map(({ teraflops }) => teraflops),
    ...plot.peaks.map((peak) => peak.teraflops),
  ]);
  const x = (value: number) => LEFT_PX + at(across, value) * (width - LEFT_PX - RIGHT_PX);
  const y = (value: number) => HEIGHT_PX - BOTTOM_PX - at(up, value) * (HEIGHT_PX - TOP_PX - BOTTOM_PX);
  const most = Math.max(...placed.map(({ point }) => point.us));
  const label = `Roofline of ${plural(placed.length, "operator")}: TFLOP/s by FLOP per byte. The table below has the figures.`;
  return (
    <svg width={width} height={HEIGHT_PX} role="img" aria-label={label}>
      <Grid {...{ across, up, x, y, width }} />
      <clipPath id="gd-roofline-clip">
        <rect
          x={LEFT_PX}
          y={TOP_PX}
          width={width - LEFT_PX - RIGHT_PX}
          height={HEIGHT_PX - TOP_PX - BOTTOM_PX}
        />
      </clipPath>
      <g clipPath="url(#gd-roofline-clip)">
        {distinct(plot.peaks).map((peak, index) => {
          const corner = ridge(plot, peak.teraflops);
          const far = 10 ** across.high;
          const from = corner > 0 ? corner : 10 ** across.low;
          return (
            <g key={peak.name}>
              <line
                className="gd-roof"
                x1={x(from)}
                x2={x(far)}
                y1={y(peak.teraflops)}
                y2={y(peak.teraflops)}
              />
              <text
                className="gd-roof-name"
                x={width - RIGHT_PX - 4 - (index % 3) * LABEL_PX}
                y={y(peak.teraflops) - 4}
                textAnchor="end"
              >
                {peak.name}: {count(peak.teraflops)} TFLOP/s
              </text>
            </g>
          );
        })}
        {plot.bandwidth > 0 && <Slope {...{ plot, across, x, y }} />}
        {[...placed]
          .sort((a, b) => b.point.us - a.point.us)
          .map((item, index) => (
            <Mark
              key={index}
              item={item}
              x={x(item.intensity)}
              y={y(item.teraflops)}
              radius={Math.max(SMALLEST_PX, LARGEST_PX * Math.sqrt(item.point.us / most))}
            />
          ))}
      </g>
    </svg>
  );
}

/** Peaks of one height share a line. */
function distinct(peaks: readonly RooflinePeak[]): readonly RooflinePeak[] {
  const heights = [...new Set(peaks.map(({ teraflops }) => teraflops))];
  return heights.map((teraflops) => ({
    teraflops,
    name: peaks
      .filter((peak) => peak.teraflops === teraflops)
      .map(({ name }) => name)
      .join(", "),
  }));
}

interface Axes {
  readonly across: Scale;
  readonly x: (value: number) => number;
  readonly y: (value: number) => number;
}

/** The slope that memory sets, up to the highest peak. */
function Slope({ plot, across, x, y }: Axes & { plot: RooflinePlot }) {
  const highest = Math.max(0, ...plot.peaks.map(({ teraflops }) => teraflops));
  const from = 10 ** across.low;
  const to = highest > 0 ? ridge(plot, highest) : 10 ** across.high;
  return (
    <line
      className="gd-roof"
      x1={x(from)}
      x2={x(to)}
      y1={y(from * plot.bandwidth)}
      y2={y(to * plot.bandwidth)}
    />
  );
}

function Grid({ across, up, x, y, width }: Axes & { up: Scale; width: number }) {
  const bottom = HEIGHT_PX - BOTTOM_PX;
  return (
    <g className="gd-roofline-grid">
      {powers(across).map((value) => (
        <g key={value}>
          <line x1={x(value)} x2={x(value)} y1={TOP_PX} y2={bottom} />
          <text x={x(value)} y={bottom + 15} textAnchor="middle">
            {power(value)}
          </text>
        </g>
      ))}
      {powers(up).map((value) => (
        <g key={value}>
          <line x1={LEFT_PX} x2={width - RIGHT_PX} y1={y(value)} y2={y(value)} />
          <text x={LEFT_PX - 6} y={y(value) + 4} textAnchor="end">
            {power(value)}
          </text>
        </g>
      ))}
      <text x={width - RIGHT_PX} y={HEIGHT_PX - 6} textAnchor="end">
        FLOP per byte
      </text>
      <text x={4} y={10}>
        TFLOP/s
      </text>
    </g>
  );
}

function powers({ low, high }: Scale): number[] {
  return Array.from({ length: high - low + 1 }, (_, step) => Number(`1e${low + step}`));
}

function power(value: number): string {
  return value >= 1 ? count(value) : String(value);
}

/** Families are told apart by shape as well as by color. */
const SHAPES = ["gemm", "convolution", "attention"] as const;

type Shaped = (typeof SHAPES)[number] | "other";

function shapeOf(family: KernelRow_Family): Shaped {
  return SHAPES.find((name) => name === family) ?? "other";
}

interface MarkProps {
  readonly item: Placed;
  readonly x: number;
  readonly y: number;
  readonly radius: number;
}

function Mark({ item: { point, intensity, teraflops }, x, y, radius }: MarkProps) {
  const figuresOf = `${figures(teraflops)} TFLOP/s at ${figures(intensity)} FLOP per byte`;
  const reached = point.reached > 0 ? `, ${percent(point.reached)} of the roofline` : "";
  return (
    <g className={`gd-mark gd-mark-${shapeOf(point.family)}`} transform={`translate(${x} ${y})`}>
      <Shape family={shapeOf(point.family)} radius={radius} />
      <title>{`${point.operator} ${shapesText(point.shapes)}\n${figuresOf}${reached}\n${time(point.us)}, ${plural(point.calls, "call")}`}</title>
    </g>
  );
}

function Shape({ family, radius }: { family: Shaped; radius: number }) {
  switch (family) {
    case "gemm":
      return <circle r={radius} />;
    case "convolution":
      return <rect x={-radius * 0.88} y={-radius * 0.88} width={radius * 1.76} height={radius * 1.76} />;
    case "attention":
      return <path d={`M0 ${-1.2 * radius}L${1.1 * radius} ${0.8 * radius}H${-1.1 * radius}Z`} />;
    case "other":
      return <path d={`M0 ${-1.25 * radius}L${1.25 * radius} 0L0 ${1.25 * radius}L${-1.25 * radius} 0Z`} />;
  }
}

function Legend({ placed }: { placed: readonly Placed[] }) {
  const shown = [...new Set(placed.map(({ point }) => shapeOf(point.family)))].sort();
  if (shown.length === 0) return null;
  return (
    <ul className="gd-roofline-legend">
      {shown.map((family) => (
        <li key={family}>
          <svg width={14} height={14} aria-hidden="true">
            <g className={`gd-mark gd-mark-${family}`} transform="translate(7 7)">
              <Shape family={family} radius={5} />
            </g>
          </svg>
          {FAMILIES[family].word}
        </li>
      ))}
    </ul>
  );
}

function Points({ plot }: { plot: RooflinePlot }) {
  const [order, setOrder] = useState<Order>({ by: "us", descending: true });
  return (
    <>
      <DataTable
        label="Operators of the roofline"
        columns={COLUMNS}
        rows={plot.points}
        rowKey={({ operator, shapes, number }) => `${operator}/${shapes}/${number}`}
        order={order}
        onOrder={setOrder}
        maxHeight="270px"
        minWidth={820}
        rowHeight={40}
      />
      {plot.more_points > 0 && (
        <p className="gd-rest">And {count(plot.more_points)} more that take less time.</p>
      )}
    </>
  );
}

const COLUMNS: readonly Column<RooflinePoint>[] = [
  {
    id: "operator",
    title: "Operator",
    value: ({ operator }) => operator,
    cell: ({ operator, shapes }) => (
      <span className="gd-two" title={`${operator}\n${shapes}`}>
        <b>{operator}</b>
        <span>{shapesText(shapes)}</span>
      </span>
    ),
  },
  { id: "shapes", title: "Input shapes", saved: true, value: ({ shapes }) => shapes, cell: () => null },
  { id: "number", title: "Format", width: 110, value: ({ number }) => number, cell: ({ number }) => number },
  {
    id: "family",
    title: "Family",
    width: 110,
    value: ({ family }) => FAMILIES[family].word,
    cell: ({ family }) => FAMILIES[family].word,
  },
  figure("calls", "Calls", 70, ({ calls }) => calls, count),
  figure("us", "GPU time", 92, ({ us }) => us, time),
  figure(
    "intensity",
    "FLOP per byte",
    104,
    ({ operations, bytes }) => (operations > 0 ? operations / bytes : NaN),
    figures,
  ),
  figure(
    "teraflops",
    "TFLOP/s",
    80,
    ({ operations, us }) => (operations > 0 ? operations / us / 1e6 : NaN),
    figures,
  ),
  figure("gigabytes", "GB/s", 80, ({ bytes, us }) => bytes / us / 1e3, count),
  figure("reached", "Of the roofline", 108, ({ reached }) => reached || NaN, percent),
];
