import { sentence } from "../../base/format";
import type { Problem as ProblemMessage } from "../../wire/report";

interface Props {
  readonly problem: ProblemMessage;
  readonly title?: string;
}

/** What went wrong, where, and what to do. */
export function Problem({ problem, title }: Props) {
  return (
    <div className="gd-problem" role="alert">
      {title && <h2>{title}</h2>}
      <b>{sentence(problem.what)}</b>
      {problem.where && <code>{problem.where}</code>}
      {problem.remedy && <p>{sentence(problem.remedy)}</p>}
    </div>
  );
}
