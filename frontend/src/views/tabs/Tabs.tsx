import type { ViewName } from "../../base/hash";
import { usePage } from "../../state/store";

const TITLES: Readonly<Record<ViewName, string>> = {
  runs: "Runs",
  summary: "Summary",
  timeline: "Timeline",
  operators: "Operators",
  host: "Host",
  memory: "Memory",
  job: "Ranks",
  history: "History",
  compare: "Compare",
  recording: "Recording",
};

interface Props {
  /** The views that the log directory has something for. */
  readonly views: readonly ViewName[];
  readonly open: ViewName;
}

/** The views of the page. */
export function Tabs({ views, open }: Props) {
  const openTab = usePage((page) => page.openTab);
  return (
    <nav className="gd-tabs" aria-label="Views">
      {views.map((view) => (
        <button
          key={view}
          type="button"
          aria-current={view === open ? "page" : undefined}
          onClick={() => {
            openTab(view);
          }}
        >
          {TITLES[view]}
        </button>
      ))}
    </nav>
  );
}
