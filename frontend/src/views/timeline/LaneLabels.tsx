import { ActionIcon, Menu } from "@mantine/core";
import { memo } from "react";
import { plural } from "../../base/format";
import { topOf, type LaneChoices, type Row, type Rows } from "../../canvas/rows";
import { HEAD_PX } from "../../canvas/scene";
import type { LaneControls } from "./useLaneChoices";

interface Props {
  readonly rows: Rows;
  readonly lanes: LaneControls;
  /** How far the lanes are scrolled; pinned labels stay. */
  readonly scroll: number;
}

/** The names of the lanes, each with a menu. Zooming does not render them again. */
export const LaneLabels = memo(function LaneLabels({ rows, lanes, scroll }: Props) {
  const keys = rows.rows.map(({ key }) => key);
  return (
    <div className="gd-labels">
      <div className="gd-labels-head" style={{ height: HEAD_PX }}>
        <span>Steps</span>
      </div>
      {rows.rows.map((row) => (
        <Label
          key={row.key}
          row={row}
          lanes={lanes}
          top={topOf(row, 0) + (row.pinned ? scroll : 0)}
          all={keys}
        />
      ))}
    </div>
  );
});

interface LabelProps {
  readonly row: Row;
  readonly lanes: LaneControls;
  readonly top: number;
  readonly all: readonly string[];
}

function Label({ row, lanes, top, all }: LabelProps) {
  const { toggle } = lanes;
  const style = { top: HEAD_PX + top, height: row.space };
  const queues = row.kind === "queues";
  const foldable = queues || (row.kind === "thread" && row.depths > 1);
  return (
    <div className="gd-label" data-kind={row.kind} data-pinned={row.pinned || undefined} style={style}>
      {foldable ? (
        <button
          type="button"
          title={row.title}
          aria-expanded={!row.folded}
          onClick={() => toggle(queues ? "withQueues" : "folded", row.key)}
        >
          {row.title}
        </button>
      ) : (
        <span title={row.title}>{row.title}</span>
      )}
      {!queues && <LaneMenu row={row} lanes={lanes} all={all} foldable={foldable} />}
      {row.outer > 0 && !row.folded && (
        <button
          type="button"
          className="gd-outer"
          aria-expanded={row.first === 0}
          title="Frames that span the whole trace"
          onClick={() => toggle("withOuter", row.key)}
        >
          {plural(row.outer, "outer frame")}
        </button>
      )}
    </div>
  );
}

interface MenuProps extends Omit<LabelProps, "top"> {
  readonly foldable: boolean;
}

function LaneMenu({ row, lanes, all, foldable }: MenuProps) {
  const { choices, toggle, only } = lanes;
  const item = (text: string, what: keyof LaneChoices) => (
    <Menu.Item onClick={() => toggle(what, row.key)}>{text}</Menu.Item>
  );
  return (
    <Menu
      position="right-start"
      shadow="md"
      withInitialFocusPlaceholder={false}
      portalProps={{ target: ".gd-tl" }}
    >
      <Menu.Target>
        <ActionIcon
          className="gd-lane-menu"
          size={16}
          variant="subtle"
          color="gray"
          aria-label={`Options for ${row.title}`}
        >
          ⋮
        </ActionIcon>
      </Menu.Target>
      <Menu.Dropdown>
        {item(choices.pinned.has(row.key) ? "Unpin" : "Pin to the top", "pinned")}
        {foldable && item(row.folded ? "Unfold" : "Fold", "folded")}
        {item("Hide", "hidden")}
        <Menu.Item onClick={() => only(row.key, all)}>Hide all others</Menu.Item>
      </Menu.Dropdown>
    </Menu>
  );
}
