// TensorBoard imports this module into its frame and calls render() once.

import { QueryClientProvider } from "@tanstack/react-query";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { createQueryClient } from "./state/queries";
import { connect } from "./state/connect";
import styles from "./styles/index.css?inline";
import { App } from "./views/App";

export function render(): void {
  // TensorBoard's page links no style sheet of ours.
  const sheet = document.createElement("style");
  sheet.textContent = styles;
  document.head.append(sheet);
  document.documentElement.lang = "en";
  document.title = "Diagnosis";
  const root = document.createElement("div");
  document.body.append(root);
  const client = createQueryClient();
  connect(client);
  createRoot(root).render(
    <StrictMode>
      <QueryClientProvider client={client}>
        <App />
      </QueryClientProvider>
    </StrictMode>,
  );
}
