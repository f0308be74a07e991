import { term, word } from "../../base/terms";
import { COLUMNS } from "../../base/vocabulary";

/** The header of a column with numbers, explained in a tooltip. */
export function NumberTitle({ column }: { column: string }) {
  return (
    <th scope="col" className="gd-number" title={term(COLUMNS, column)?.explanation}>
      {word(COLUMNS, column)}
    </th>
  );
}
