import { percent, time, words } from "../../base/format";
import { usePage } from "../../state/store";
import { ShowOnTimeline } from "../parts/ShowOnTimeline";
import type { Finding, Plan as PlanMessage, PlannedFix, Report } from "../../wire/report";

interface Props {
  readonly plan: PlanMessage;
  readonly findings: Report["findings"];
  readonly keys: readonly string[];
}

/** The fixes in their best order, with the length of the step window after each. */
export function Plan({ plan, findings, keys }: Props) {
  // A single fix needs no order. Its finding shows what it saves.
  if (plan.fixes.length < 2) return null;
  return (
    <div className="gd-plan">
      <span className="gd-plan-title">Fix in this order</span>
      <ol>
        <li>
          <span className="gd-muted">As recorded</span>
          <b>{time(plan.window_us)}</b>
        </li>
        {plan.fixes.map((fix) => (
          <PlanStep key={fix.finding} fix={fix} finding={findings[fix.finding]} openAs={keys[fix.finding]} />
        ))}
      </ol>
      <span className="gd-muted gd-plan-sum">
        All fixes together save at most {time(plan.saving_us)}, {percent(plan.saving_us, plan.window_us)} of
        the step window. From a replay whose error is {percent(plan.error_share)} of the step window.
      </span>
    </div>
  );
}

interface StepProps {
  readonly fix: PlannedFix;
  readonly finding: Finding | undefined;
  readonly openAs: string | undefined;
}

function PlanStep({ fix, finding, openAs }: StepProps) {
  const openFinding = usePage((page) => page.openFinding);
  return (
    <li>
      <button
        type="button"
        className="gd-link"
        title={finding?.title}
        onClick={() => {
          if (openAs) openFinding(openAs);
        }}
      >
        {words(fix.name)}
      </button>
      <b>{time(fix.window_us)}</b>
      <span className="gd-muted">saves at most {time(fix.saving_us)}</span>
      {finding && <ShowOnTimeline of={finding} />}
    </li>
  );
}
