import { plural, sentence, words } from "../../base/format";
import { groupedByReason, type UncheckedGroup } from "../../state/findings";
import type { Clear, Report, Unchecked } from "../../wire/report";
import { CodeBlock } from "../parts/CodeBlock";
import { ExplainButton } from "../rule/ExplainButton";

interface UncheckedProps {
  readonly items: readonly Unchecked[];
  readonly opened?: boolean;
  readonly title?: string;
}

/** The rules that could not check, why, and what to record instead. */
export function UncheckedList({ items, opened, title = "Cannot tell from this trace" }: UncheckedProps) {
  if (items.length === 0) return null;
  return (
    <details className="gd-others" open={opened}>
      <summary>
        {title}{" "}
        <span className="gd-muted">
          {items.length}
          <span className="gd-others-names">: {items.map(({ name }) => words(name)).join(", ")}</span>
        </span>
      </summary>
      <UncheckedItems items={items} />
    </details>
  );
}

/** One line on what the recording lacks; inside, a recipe that records all of it, and the rules that need it. */
export function BetterRecording({ report: { better_recording: advice, unchecked } }: { report: Report }) {
  if (!advice) return null;
  return (
    <details className="gd-others">
      <summary>
        {advice.code ? "A better recording" : "About the recording"}{" "}
        <span className="gd-muted">{advice.sentence}</span>
      </summary>
      {advice.code && (
        <div className="gd-better">
          <CodeBlock code={advice.code} label="recording block" />
        </div>
      )}
      <UncheckedItems items={unchecked.filter(({ defect }) => !defect)} />
    </details>
  );
}

function UncheckedItems({ items }: { items: readonly Unchecked[] }) {
  return (
    <ul>
      {groupedByReason(items).map((group, at) => (
        <UncheckedItem key={at} group={group} />
      ))}
    </ul>
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
