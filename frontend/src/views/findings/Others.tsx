import { sentence, words } from "../../base/format";
import type { Clear, Unchecked } from "../../wire/report";

/** What this trace cannot show, why, and how to record one that can. */
export function UncheckedList({ items }: { items: readonly Unchecked[] }) {
  if (items.length === 0) return null;
  return (
    <details className="gd-others" open>
      <summary>
        Could not check <span className="gd-muted">{items.length}</span>
      </summary>
      <ul>
        {items.map((item, at) => (
          <li key={at}>
            <span className="gd-rule">{item.rule}</span>
            <b>{words(item.name)}</b>
            <span>
              {sentence(item.reason)} <span className="gd-muted">{sentence(item.how_to_record)}</span>
            </span>
          </li>
        ))}
      </ul>
    </details>
  );
}

/** The rules that looked and found nothing. */
export function CheckedList({ items }: { items: readonly Clear[] }) {
  if (items.length === 0) return null;
  return (
    <details className="gd-others">
      <summary>
        Checked, nothing found <span className="gd-muted">{items.length}</span>
      </summary>
      <ul>
        {items.map((item, at) => (
          <li key={at}>
            <span className="gd-rule">{item.rule}</span>
            <b>{words(item.name)}</b>
            <span>{sentence(item.reason)}</span>
          </li>
        ))}
      </ul>
    </details>
  );
}
