import { Button, CloseButton, TextInput } from "@mantine/core";
import { useMemo } from "react";
import { count, plural } from "../../base/format";
import { useRuns } from "../../state/queries";
import { filteredRuns, useRunsTable } from "../../state/runs";
import { usePage } from "../../state/store";
import { DataTable } from "../parts/DataTable";
import { Notice } from "../parts/Notice";
import { Section } from "../parts/Section";
import { Searching } from "../status/Searching";
import { COLUMNS } from "./columns";
import { useAnalyses } from "./useAnalyses";

/** Two lines of text. */
const ROW_PX = 46;

/** All runs of the log directory, those with the largest possible saving first. */
export default function Runs() {
  const { data, error } = useRuns();
  const { search, order, top } = useRunsTable();
  const openTab = usePage((page) => page.openTab);
  const analyses = useAnalyses(data?.rows ?? []);
  const rows = useMemo(() => filteredRuns(data?.rows ?? [], search), [data, search]);
  if (!data) {
    return error ? (
      <Notice tone="error">Could not load the runs: {error.message}.</Notice>
    ) : (
      <Searching failed={false} />
    );
  }
  const all = plural(data.rows.length, "run");
  const summary = search.trim() === "" ? all : `${count(rows.length)} of ${all}`;
  return (
    <Section
      title="Runs"
      className="gd-runs"
      aside={
        <div className="gd-controls">
          <span className="gd-muted" role="status">
            {summary}
          </span>
          {(analyses.on || analyses.left > 0) && (
            <Button
              size="compact-xs"
              variant="default"
              title="Analyzes the newest recording of each run, one after the other, while this view is open"
              onClick={analyses.toggle}
            >
              {analyses.on ? `Stop, ${count(analyses.left)} left` : `Analyze ${count(analyses.left)} new`}
            </Button>
          )}
          <TextInput
            size="xs"
            w={260}
            aria-label="Filter runs"
            placeholder="Filter by name, limiter, finding…"
            value={search}
            onChange={(event) => {
              useRunsTable.setState({ search: event.currentTarget.value, top: 0 });
            }}
            rightSection={
              search !== "" && (
                <CloseButton
                  size="xs"
                  aria-label="Clear the filter"
                  onClick={() => {
                    useRunsTable.setState({ search: "" });
                  }}
                />
              )
            }
          />
        </div>
      }
    >
      {rows.length === 0 ? (
        <p className="gd-nothing">No run matches the filter.</p>
      ) : (
        <DataTable
          label="Runs"
          columns={COLUMNS}
          rows={rows}
          rowKey={({ id }) => id}
          order={order}
          onOrder={(next) => {
            useRunsTable.setState({ order: next });
          }}
          rowHeight={ROW_PX}
          maxHeight="calc(100vh - 118px)"
          minWidth={1200}
          scroll={{
            top,
            onScroll: (now) => {
              useRunsTable.setState({ top: now });
            },
          }}
          onOpen={(row) => {
            openTab(row.kind === "job" ? "job" : "summary", row.trace_id);
          }}
        />
      )}
    </Section>
  );
}
