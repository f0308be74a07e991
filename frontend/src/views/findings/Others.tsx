import { plural, sentence, words } from "../../base/format";
import { groupedByReason, type UncheckedGroup } from "../../state/findings";
import type { Clear, Unchecked } from "../../wire/report";
import { ExplainButton } from "../rule/ExplainButton";

/** The rules that cannot tell from this trace, why, and what to record instead. */
export function UncheckedList({ items, opened }: { items: readonly Unchecked[]; opened?: boolean }) {
  if (items.length === 0) return null;
  return (
    <details className="gd-others" open={opened}>
      <summary>
        Cannot tell from this trace{" "}
        <span className="gd-muted">
          {items.length}
          <span className="gd-others-names">: {items.map(({ name }) => words(name)).join(", ")}</span>
        </span>
      </summary>
      <ul>
        {groupedByReason(items).map((group, at) => (
          <UncheckedItem key={at} group={group} />
        ))}
      </ul>
    </details>
  );
}

function UncheckedItem({ group: { reason, how_to_record: how, rules } }: { group: UncheckedGroup }) {
  const only = rules.length === 1 ? rules[0] : undefined;
  return (
    <li data-several={!only || undefined}>
      {only ? (
        <ExplainButton rule={only.rule} />
      ) : (
        <span className="gd-rule">{plural(rules.length, "rule")}</span>
      )}
      {only && <b>{words(only.name)}</b>}
      <span>
        {sentence(reason)} <span className="gd-muted">{sentence(how)}</span>
        {!only && (
          <span className="gd-rules">
            {rules.map(({ rule, name }, at) => (
              <ExplainButton key={at} rule={rule}>
                {rule} {words(name)}
              </ExplainButton>
            ))}
          </span>
        )}
      </span>
    </li>
  );
}

/** The rules that found no problem. */
export function CheckedList({ items }: { items: readonly Clear[] }) {
  if (items.length === 0) return null;
  return (
    <details className="gd-others">
      <summary>
        Checked, no problem found <span className="gd-muted">{items.length}</span>
      </summary>
      <ul>
        {items.map((item, at) => (
          <li key={at}>
            <ExplainButton rule={item.rule} />
            <b>{words(item.name)}</b>
            <span>{sentence(item.reason)}</span>
          </li>
        ))}
      </ul>
    </details>
  );
}
