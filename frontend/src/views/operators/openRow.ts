/** A row that is open. */
export interface OpenRow {
  readonly kind: string;
  readonly group: string;
  readonly key: number;
  readonly name: string;
}
