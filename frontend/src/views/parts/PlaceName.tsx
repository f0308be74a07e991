import { Place_LineKind, type Place } from "../../wire/report";

const PARTS_SHOWN = 2;

/** The end of a path: the directories above rarely matter. */
function shortened(path: string): string {
  const parts = path.split("/");
  return parts.length > PARTS_SHOWN ? `…/${parts.slice(-PARTS_SHOWN).join("/")}` : path;
}

/** A place in the code: the function first, then its file. */
export function PlaceName({ place }: { place: Place }) {
  const { file, line, function: name, line_kind, operator } = place;
  const located = (path: string) =>
    line > 0
      ? line_kind === Place_LineKind.DEFINITION
        ? `${path}, defined at line ${line}`
        : `${path}:${line}`
      : path;
  const at = located(shortened(file));
  const title = name || operator;
  return (
    <span className="gd-place-name" title={[title, located(file)].filter(Boolean).join(" · ")}>
      {title && <b className="gd-mono">{title}</b>}
      {at && <span className="gd-muted">{at}</span>}
    </span>
  );
}
