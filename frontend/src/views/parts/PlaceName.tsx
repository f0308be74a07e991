import { Cut } from "./Cut";
import { Place_LineKind, type Place } from "../../wire/report";

/** A place in the code: the function first, then its file. */
export function PlaceName({ place }: { place: Place }) {
  const { file, line, function: name, line_kind, operator } = place;
  const located = (path: string) =>
    line > 0
      ? line_kind === Place_LineKind.DEFINITION
        ? `${path}, defined at line ${line}`
        : `${path}:${line}`
      : path;
  const at = located(file);
  const title = name || operator;
  return (
    <span className="gd-place-name" title={[title, located(file)].filter(Boolean).join(" · ")}>
      {title && <b className="gd-mono">{title}</b>}
      {at && <Cut text={at} className="gd-muted" isPath />}
    </span>
  );
}
