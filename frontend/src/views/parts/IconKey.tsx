import { ActionIcon, Tooltip } from "@mantine/core";

interface Props {
  readonly label: string;
  readonly symbol: string;
  readonly disabled?: boolean;
  readonly onPress: () => void;
}

/** A button with a symbol. Its label is a tooltip, and what screen readers say. */
export function IconKey({ label, symbol, disabled = false, onPress }: Props) {
  return (
    <Tooltip label={label}>
      <ActionIcon size="sm" variant="default" aria-label={label} disabled={disabled} onClick={onPress}>
        {symbol}
      </ActionIcon>
    </Tooltip>
  );
}
