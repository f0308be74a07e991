import js from "@eslint/js";
import hooks from "eslint-plugin-react-hooks";
import sonarjs from "eslint-plugin-sonarjs";
import { defineConfig } from "eslint/config";
import tseslint from "typescript-eslint";

export default defineConfig(
  { ignores: ["node_modules", "src/wire/report.ts", "**/eslint.config.mjs"] },
  js.configs.recommended,
  tseslint.configs.strictTypeChecked,
  tseslint.configs.stylisticTypeChecked,
  {
    languageOptions: {
      parserOptions: {
        project: "tsconfig.json",
        tsconfigRootDir: import.meta.dirname,
      },
    },
    // Without the plugin's rules that need the React compiler: compiling every file takes longer than all other rules.
    plugins: { "react-hooks": hooks, sonarjs },
    rules: {
      "react-hooks/rules-of-hooks": "error",
      "react-hooks/exhaustive-deps": "error",
      "sonarjs/cognitive-complexity": ["error", 15],
      "@typescript-eslint/restrict-template-expressions": ["error", { allowNumber: true }],
      // A trace comes from someone else: its names are text, never markup.
      "no-restricted-syntax": [
        "error",
        {
          selector: "JSXAttribute[name.name='dangerouslySetInnerHTML']",
          message: "Names are text, never markup.",
        },
        {
          selector: "AssignmentExpression[left.property.name='innerHTML']",
          message: "Names are text, never markup.",
        },
      ],
    },
  },
  { files: ["**/*.js"], extends: [tseslint.configs.disableTypeChecked] },
);
