import { CloseButton, Loader } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useEffect, useRef } from "react";
import { usePage } from "../../state/store";
import { fetchRule } from "../../wire/client";
import { Problem } from "../status/Problem";
import { Markdown } from "./Markdown";

/** The page of the rule that the user asked about, at the side of the window. */
export function RulePanel() {
  const rule = usePage((page) => page.explained);
  return rule === null ? null : <OpenPanel key={rule} rule={rule} />;
}

function useRulePage(rule: string) {
  return useQuery({
    queryKey: ["rule", rule],
    queryFn: async ({ signal }) => {
      const [{ markdown }, { parse }] = await Promise.all([fetchRule(rule, signal), import("./parse")]);
      return parse(markdown);
    },
  });
}

function OpenPanel({ rule }: { rule: string }) {
  const explain = usePage((page) => page.explain);
  const { data, error } = useRulePage(rule);
  const dialog = useRef<HTMLDialogElement>(null);

  // A modal dialog keeps the focus inside, closes with Escape, and returns the focus to the button that opened it.
  useEffect(() => {
    if (dialog.current?.open === false) dialog.current.showModal();
  }, []);
  const close = () => dialog.current?.close();
  return (
    <dialog
      ref={dialog}
      className="gd-rule-panel"
      aria-label={`Rule ${rule}`}
      onClose={() => explain(null)}
      onClick={(event) => {
        // The content covers the dialog, so that only the backdrop is the dialog itself.
        if (event.target === event.currentTarget) close();
      }}
    >
      <div className="gd-rule-page">
        <CloseButton className="gd-rule-close" aria-label="Close" onClick={close} />
        {data && <Markdown root={data} />}
        {error && <Problem problem={{ what: error.message, where: rule, remedy: "" }} />}
        {!data && !error && <Loader size="sm" role="status" aria-label="Loading" />}
      </div>
    </dialog>
  );
}
