import type { ReactNode } from "react";
import type { RowPlaces } from "../../state/rowPlaces";
import { More } from "./More";
import { NumberTitle } from "./NumberTitle";
import { LinkedRow, ShowTitle } from "./ShowOnTimeline";

export interface ShortColumn<T> {
  /** A figure with a title that is explained: its id in COLUMNS. */
  readonly figure?: string;
  /** Any other title. */
  readonly title?: string;
  /** A tooltip of the title. */
  readonly about?: string;
  /** "gd-number" for figures; "gd-name" for names that wrap. */
  readonly className?: string;
  /** The cell names its row. */
  readonly heads?: boolean;
  /** A tooltip of the cell. */
  readonly tip?: (row: T) => string;
  readonly cell: (row: T) => ReactNode;
}

interface Props<T> {
  readonly className: string;
  readonly label?: string;
  readonly columns: readonly ShortColumn<T>[];
  readonly rows: readonly T[];
  /** How many rows to show before a click on "Show more"; all of them if it is not given. */
  readonly first?: number;
  /** A tooltip of the row. */
  readonly rowTip?: (row: T) => string;
  readonly isMarked?: (row: T) => boolean;
  /** Rows lead to their places on the timeline. */
  readonly linked?: boolean;
  /** Replaces the action of a click on a linked row. */
  readonly onPress?: (found: RowPlaces) => void;
  /** A description of the box in which a wide table scrolls sideways. */
  readonly box?: string;
  readonly foot?: ReactNode;
}

/** A table of the report that is shown in its order. */
export function ShortTable<T extends object>({ first, ...props }: Props<T>) {
  if (first === undefined) return <Whole {...props} />;
  return (
    <More items={props.rows} first={first}>
      {(shown) => <Whole {...props} rows={shown} />}
    </More>
  );
}

function Whole<T extends object>({ className, label, columns, rows, box, foot, ...row }: Props<T>) {
  const table = (
    <table className={className} aria-label={label}>
      <thead>
        <tr>
          {columns.map(({ figure, title, about, className: kind }) =>
            figure ? (
              <NumberTitle key={figure} column={figure} />
            ) : (
              <th
                key={title}
                scope="col"
                className={kind?.startsWith("gd-name") ? undefined : kind}
                title={about}
              >
                {title}
              </th>
            ),
          )}
          {row.linked && <ShowTitle />}
        </tr>
      </thead>
      <tbody>
        {rows.map((of, at) => (
          <Row key={at} of={of} columns={columns} {...row} />
        ))}
      </tbody>
      {foot && <tfoot>{foot}</tfoot>}
    </table>
  );
  if (box === undefined) return table;
  return (
    <div className="gd-wide-plain" role="group" aria-label={box} tabIndex={0}>
      {table}
    </div>
  );
}

type RowProps<T> = Pick<Props<T>, "columns" | "rowTip" | "isMarked" | "linked" | "onPress"> & {
  readonly of: T;
};

function Row<T extends object>({ of, columns, rowTip, isMarked, linked, onPress }: RowProps<T>) {
  const cells = columns.map(({ figure, title, className, heads, tip, cell }) =>
    heads ? (
      <th key={title} scope="row">
        {cell(of)}
      </th>
    ) : (
      <td key={figure ?? title} className={figure ? "gd-number" : className} title={tip?.(of)}>
        {cell(of)}
      </td>
    ),
  );
  if (linked) {
    return (
      <LinkedRow of={of} {...(onPress && { onPress })}>
        {cells}
      </LinkedRow>
    );
  }
  return (
    <tr title={rowTip?.(of)} data-shown={isMarked?.(of) ? true : undefined}>
      {cells}
    </tr>
  );
}
