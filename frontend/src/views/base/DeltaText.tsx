import type { Delta } from "../../state/delta";

interface Props {
  readonly delta: Delta | null;
  /** The base's figure, shown on hover. */
  readonly base?: string;
  /** In two lines, for a narrow column. */
  readonly stacked?: boolean;
}

/** A difference from the base: its sign, its color and its words say the same. */
export function DeltaText({ delta, base, stacked = false }: Props) {
  if (!delta) return null;
  return (
    <span
      className="gd-delta"
      data-tone={delta.tone}
      data-stacked={stacked ? true : undefined}
      title={base && `Base: ${base}`}
    >
      <span>{delta.text}</span> <small>{delta.words}</small>
    </span>
  );
}
