import { paint, partLabel } from "../../base/causes";
import { percent, time } from "../../base/format";
import { usePage } from "../../state/store";
import type { Part } from "../../state/account";

interface Props {
  readonly parts: readonly Part[];
  /** The time that percentages refer to. */
  readonly whole_us: number;
  /** The time at full width, so that several bars can share a scale. */
  readonly scale_us?: number;
  readonly label: string;
}

/** Time by cause as a stacked bar. */
export function Bar({ parts, whole_us, scale_us = whole_us, label }: Props) {
  const scheme = usePage((page) => page.scheme);
  const text = parts.map((part) => `${partLabel(part.name)} ${time(part.us)}`).join(", ");
  return (
    <div className="gd-bar" role="img" aria-label={`${label}: ${text}`}>
      {parts.map((part) => (
        <span
          key={part.name}
          style={{ width: `${(100 * part.us) / scale_us}%`, background: paint(part.name, scheme) }}
          title={`${partLabel(part.name)}: ${time(part.us)}, ${percent(part.us, whole_us)}`}
        />
      ))}
    </div>
  );
}
