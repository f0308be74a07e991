export { default } from "../../frontend/eslint.config.js";
