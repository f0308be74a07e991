import { Button, Progress } from "@mantine/core";
import { percent } from "../../base/format";

interface Props {
  readonly title: string;
  readonly detail: string;
  /** 0 to 1. */
  readonly share: number;
  readonly onCancel?: () => void;
}

/** How far an analysis is. */
export function ProgressCard({ title, detail, share, onCancel }: Props) {
  return (
    <div className="gd-analyzing" role="status">
      <div>
        <b>{title}</b>
        <span className="gd-muted">{detail}</span>
        <span className="gd-analyzing-share">{share > 0 ? percent(share) : ""}</span>
        {onCancel && (
          <Button size="compact-xs" variant="default" onClick={onCancel}>
            Cancel
          </Button>
        )}
      </div>
      <Progress value={100 * share} size="sm" animated={share > 0} aria-label="Analysis progress" />
    </div>
  );
}
