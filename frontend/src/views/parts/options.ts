// Options of a list that is too long to show whole.

import type { OptionsFilter } from "@mantine/core";
import { count } from "../../base/format";
import { matches } from "../../state/choose";

/** Show at most this many options. Users search a longer list. */
export const OPTIONS_SHOWN = 100;

/** Return the first options that match the search, and a line that counts the others. */
export const searched: OptionsFilter = ({ options, search, limit }) => {
  const all = options.filter((option) => "value" in option && matches(option.label, search));
  const left = all.length - limit;
  if (left <= 0) return all;
  return [
    ...all.slice(0, limit),
    { value: "\0", label: `${count(left)} more: type part of the name`, disabled: true },
  ];
};
