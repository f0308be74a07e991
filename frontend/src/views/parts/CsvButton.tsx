import { saveFile } from "../../base/save";

interface Props {
  /** What the file contains, for its name and for screen readers. */
  readonly label: string;
  readonly text: () => string;
}

/** A button that saves a table as a file. */
export function CsvButton({ label, text }: Props) {
  return (
    <button
      type="button"
      className="gd-link gd-csv"
      aria-label={`Save as CSV: ${label}`}
      title="Save all rows of this table as a CSV file"
      onClick={() => save(label, text())}
    >
      CSV
    </button>
  );
}

function save(label: string, text: string): void {
  // Spreadsheets read UTF-8 only with this mark.
  const blob = new Blob([`\uFEFF${text}`], { type: "text/csv;charset=utf-8" });
  saveFile(`${label.toLowerCase().replace(/[^a-z0-9]+/g, "-")}.csv`, blob);
}
