import { sentence } from "../../base/format";
import { valueText, type Curves } from "../../state/history";
import { usePage } from "../../state/store";
import { Section } from "../parts/Section";
import { CurveChart } from "./CurveChart";

interface Props {
  readonly curves: Curves;
  /** Of each point on the axis. */
  readonly labels: readonly string[];
  /** Points with a number; NaN for one that is not shown. */
  readonly marks: readonly number[];
  /** The point under the pointer. */
  readonly at: number | null;
  /** What that point is. */
  readonly name: string;
  /** Shown while there is none. */
  readonly hint: string;
  /** Describes the chart to screen readers, after its title. */
  readonly help: string;
  readonly onPoint: (at: number | null) => void;
  readonly onOpen: (at: number) => void;
}

/** A chart with its legend, and the values of the point under the pointer. */
export function CurveSection({ curves, labels, marks, at, name, hint, help, onPoint, onOpen }: Props) {
  const scheme = usePage((page) => page.scheme);
  const drawn = { curves, scheme, labels, changes: marks, at };
  return (
    <Section title={curves.title} aside={<span className="gd-muted">{curves.about}</span>}>
      <CurveChart drawn={drawn} help={help} onPoint={onPoint} onOpen={onOpen} />
      <Legend curves={curves} />
      <p className="gd-curve-text" role="status">
        {at === null ? hint : `${name}: ${readings(curves, at)}`}{" "}
        {sentence(
          (curves.base ?? [])
            .map(({ name: of, value }) => `${of}: ${valueText(curves.unit, value)}`)
            .join(", "),
        )}
      </p>
    </Section>
  );
}

/** The values of one point: "median 12.3 ms, upper quartile 13 ms". Stacked ones are read in the table. */
function readings({ lines, unit }: Curves, at: number): string {
  const stacked = lines.some(({ filled }) => filled);
  const said = lines.flatMap(({ name, values }, index) => {
    const value = values[at] ?? 0;
    const below = stacked ? (lines[index + 1]?.values[at] ?? 0) : 0;
    return value > below ? [`${stacked ? name.toLowerCase() : name} ${valueText(unit, value - below)}`] : [];
  });
  return said.join(", ") || "not known";
}

function Legend({ curves: { lines } }: { curves: Curves }) {
  const scheme = usePage((page) => page.scheme);
  const shown = lines.filter(({ edge }) => !edge);
  if (shown.length < 2) return null;
  const stacked = shown.some(({ filled }) => filled);
  return (
    <ul className="gd-curve-legend" aria-label="Legend">
      {(stacked ? shown.toReversed() : shown).map(({ name, color, paint }) => (
        <li key={name}>
          <span className="gd-swatch" style={{ background: (paint ?? color)(scheme) }} aria-hidden="true" />
          {name}
        </li>
      ))}
    </ul>
  );
}
