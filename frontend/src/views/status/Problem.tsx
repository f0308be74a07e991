import type { Problem as ProblemMessage } from "../../wire/report";

/** What went wrong, where, and what to do. */
export function Problem({ problem }: { problem: ProblemMessage }) {
  return (
    <div className="gd-problem" role="alert">
      <b>{problem.what}</b>
      {problem.where && <code>{problem.where}</code>}
      {problem.remedy && <p>{problem.remedy}</p>}
    </div>
  );
}
