import { Button, CopyButton } from "@mantine/core";

/** Code with a button to copy it. */
export function CodeBlock({ code, label }: { code: string; label: string }) {
  const text = code.replace(/\n+$/, "");
  return (
    <div className="gd-code">
      <CopyButton value={text} timeout={1500}>
        {({ copied, copy }) => (
          <Button
            className="gd-code-copy"
            size="compact-xs"
            variant="default"
            onClick={copy}
            aria-label={`Copy ${label}`}
          >
            {copied ? "Copied" : "Copy"}
          </Button>
        )}
      </CopyButton>
      <pre tabIndex={0} aria-label={label}>
        <code>{text}</code>
      </pre>
    </div>
  );
}
