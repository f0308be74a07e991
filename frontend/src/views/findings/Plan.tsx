import { percent, time, words } from "../../base/format";
import { usePage } from "../../state/store";
import type { Plan as PlanMessage, Report } from "../../wire/report";

interface Props {
  readonly plan: PlanMessage;
  readonly findings: Report["findings"];
  readonly keys: readonly string[];
}

/** The order in which to make the fixes, and how long the step window is after each. */
export function Plan({ plan, findings, keys }: Props) {
  const openFinding = usePage((page) => page.openFinding);
  // One fix has no order; what it gives back stands in its finding.
  if (plan.fixes.length < 2) return null;
  return (
    <div className="gd-plan">
      <span className="gd-plan-title">Fix in this order</span>
      <ol>
        <li>
          <span className="gd-muted">as recorded</span>
          <b>{time(plan.window_us)}</b>
        </li>
        {plan.fixes.map((fix) => (
          <li key={fix.finding}>
            <button
              type="button"
              className="gd-link"
              title={findings[fix.finding]?.title}
              onClick={() => {
                const key = keys[fix.finding];
                if (key) openFinding(key);
              }}
            >
              {words(fix.name)}
            </button>
            <b>{time(fix.window_us)}</b>
            <span className="gd-muted">at most −{time(fix.saving_us)}</span>
          </li>
        ))}
      </ol>
      <span className="gd-muted gd-plan-sum">
        Together at most {time(plan.saving_us)}, {percent(plan.saving_us, plan.window_us)} of the window,
        nothing counted twice. Replayed; unchanged, the replay is off by {percent(plan.error_share)}.
      </span>
    </div>
  );
}
