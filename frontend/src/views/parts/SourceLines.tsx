import type { SourceLine } from "../../wire/report";

/** The line that probably ran, or those to choose from: a trace names only the function. */
export function SourceLines({ lines }: { lines: readonly SourceLine[] }) {
  if (lines.length === 0) return null;
  return (
    <span className="gd-source">
      <span className="gd-muted">{lines.length === 1 ? "probably" : "one of"}</span>
      {lines.map(({ line, text }) => (
        <span key={line}>
          <span className="gd-muted">line {line}:</span> <code>{text}</code>
        </span>
      ))}
    </span>
  );
}
