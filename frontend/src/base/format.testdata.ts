// What tests of shown text need.

/** Text with ordinary spaces, for tests that are not about spacing. */
export function plain(text: string | null | undefined): string {
  return (text ?? "").replaceAll("\u00a0", " ");
}
