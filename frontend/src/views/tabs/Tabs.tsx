import type { KeyboardEvent } from "react";
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

const STEPS: Readonly<Record<string, number>> = { ArrowLeft: -1, ArrowRight: 1 };

/** Arrow keys move the focus among the views. */
function onKeyDown(event: KeyboardEvent<HTMLElement>) {
  const step = STEPS[event.key];
  const buttons = [...event.currentTarget.querySelectorAll("button")];
  const at = buttons.findIndex((button) => button === document.activeElement);
  if (step === undefined || at < 0) return;
  event.preventDefault();
  buttons[(at + step + buttons.length) % buttons.length]?.focus();
}

/** The views of the page: one stop of Tab, at the open one. */
export function Tabs({ views, open }: Props) {
  const openTab = usePage((page) => page.openTab);
  return (
    <nav className="gd-tabs" aria-label="Views" onKeyDown={onKeyDown}>
      {views.map((view) => (
        <button
          key={view}
          type="button"
          aria-current={view === open ? "page" : undefined}
          tabIndex={view === open ? 0 : -1}
          onClick={() => openTab(view)}
        >
          {TITLES[view]}
        </button>
      ))}
    </nav>
  );
}
