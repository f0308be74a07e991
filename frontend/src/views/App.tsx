import { createTheme, MantineProvider } from "@mantine/core";
import { usePage } from "../state/store";
import { Page } from "./Page";

const theme = createTheme({
  fontFamily: '"Inter Variable", system-ui, -apple-system, "Segoe UI", Roboto, sans-serif',
  fontFamilyMonospace:
    'ui-monospace, "SF Mono", "Cascadia Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace',
  fontSizes: { xs: "11.5px", sm: "12.5px", md: "13px" },
  defaultRadius: 5,
  cursorType: "pointer",
});

export function App() {
  const scheme = usePage((page) => page.scheme);
  return (
    <MantineProvider theme={theme} forceColorScheme={scheme}>
      <Page />
    </MantineProvider>
  );
}
