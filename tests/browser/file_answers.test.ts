// What an HTML file answers about the events in it, and what the server answers.

import { execFileSync } from "node:child_process";
import { existsSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { isDeepStrictEqual } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { embeddedSource, type Content } from "../../frontend/src/wire/embedded";
import type { EventDetails, Matches, RangeStatistics, Timeline } from "../../frontend/src/wire/report";
import { makeFolder, PROJECT, PYTHON, simulate } from "./tensorboard";

const SCENARIOS = ["input_pipeline", "host_sync", "exposed_communication", "exposed_copies"];

/** Real traces, which are not part of the project. */
const REAL = ["h100_owlv2", "v100_ddp_memory"]
  .map((name) => join(PROJECT, "../shared/traces", name))
  .filter((path) => existsSync(path));

/**
 * For each trace and the bytes of events that its file has room for, prints the data of the file and the server's
 * answers: to questions about names, some events, and many ranges.
 */
const SCRIPT = `
import json, sys
import numpy as np
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.report.building.build import build_report
from tb_gpudiag.report.diagnosis import only_trace
from tb_gpudiag.report.slices import embedded as module
from tb_gpudiag.report.slices.operators.prepare_calls import prepare_calls
from tb_gpudiag.report.slices.slice_table import Search
from tb_gpudiag.report.slices.slice_table import slice_json
from tb_gpudiag.report.slices.timeline import prepare_timeline, slice_timeline
from tb_gpudiag.report.slices.timeline_events import event_at, event_details
from tb_gpudiag.report.slices.timeline_range import range_statistics
from tb_gpudiag.report.slices.timeline_range import KINDS, find_events
from tb_gpudiag.report.slices.timeline_lanes import Shown
from tb_gpudiag.trace.read import read_trace

def asked(path, room):
    file = only_trace(path)
    module.EVENT_BYTES = room
    facts = Facts(read_trace(file.path))
    prepared = {**prepare_timeline(facts), **prepare_calls(facts)}
    content = module.embedded(build_report(facts, file), prepared, file.size_bytes, file.modified_ns)
    shown = Shown(prepared)
    random = np.random.default_rng(0)
    low, high = shown.meta["start_ns"] / 1e3, shown.meta["end_ns"] / 1e3
    numbers = shown.levels.number[shown.are_events]
    some = random.choice(numbers, min(len(numbers), 60), replace=False).tolist()
    spans = np.sort(random.integers(int(low), int(high) + 1, (12, 2)), axis=1).tolist()
    spans += [[start, start + (high - low) / 50] for start, _ in spans]
    spans += [[low, high], [low - 50, high + 50], [high, high]]
    answers = []
    def ask(route, query, answer):
        answers.append([route, query, json.loads(slice_json(answer))])
    for start, end in spans:
        ask("range", {"start_us": start, "end_us": end}, range_statistics(prepared, start, end))
    for kind in KINDS:
        for text, regex in (("", 0), ("A", 0), ("aten::.*m$", 1), ("(?i)^CUDA", 1), ("no such", 0)):
            for first in (0, 3):
                query = {"text": text, "regex": regex, "kind": kind, "from": first, "limit": 100}
                ask("find", query, find_events(prepared, Search(text, bool(regex), kind), 100, first))
    for number in some:
        details = event_details(prepared, number)
        ask("event", {"event": number}, details)
        event = details.event
        if not event.duration_us:
            continue  # of those that begin together, either may be the answer
        at = event.start_us + event.duration_us / 2
        for previous in (0, 1):
            query = {"lane": event.lane, "depth": event.depth, "start_us": at, "previous": previous}
            ask("event", query, event_at(prepared, event.lane, event.depth, at, bool(previous)))
    for start, _ in spans[:5]:  # few enough boxes for every event
        end = start + (high - low) / 500
        ask("timeline", {"start_us": start, "end_us": end}, slice_timeline(prepared, start, end, 10**9))
    return {"content": content, "answers": answers}

json.dump([asked(path, room) for path, room in json.loads(sys.argv[1])], sys.stdout)
`;

interface Asked {
  readonly content: Content;
  readonly answers: readonly (readonly [route: string, query: Record<string, string>, answer: unknown])[];
}

const ROOM = 2_000_000;
const LITTLE_ROOM = 12_000;
const folder = makeFolder();
const runs = [...SCENARIOS.map((name) => join(folder, name)), ...REAL];
let asked: readonly Asked[];

/** One process for all: starting it takes longer than asking. */
function ask(...of: readonly (readonly [run: string, room: number])[]): Asked[] {
  const files = of.map(([run, room]) => {
    const trace = readdirSync(run).find((name) => name.includes(".pt.trace.json")) ?? "";
    return [join(run, trace), room];
  });
  const found = execFileSync(PYTHON, ["-c", SCRIPT, JSON.stringify(files)], {
    cwd: PROJECT,
    maxBuffer: 1 << 30,
  });
  return JSON.parse(found.toString()) as Asked[];
}

beforeAll(() => {
  simulate(folder, ...SCENARIOS);
  const whole = runs.map((run) => [run, ROOM] as const);
  asked = ask([join(folder, "exposed_copies"), LITTLE_ROOM], ...whole);
});

afterAll(() => {
  rmSync(folder, { recursive: true, force: true });
});

/** What the file of a run and the server answer. The first is the one with little room. */
function answersOf(at: number): Asked {
  const found = asked[at];
  if (!found) throw new Error(`there is no file ${at}`);
  return found;
}

describe.each(runs.map((run, at) => ({ run, at })))("of $run", ({ at }) => {
  test("the file answers as the server does", async () => {
    const { content, answers } = answersOf(at + 1);
    const source = embeddedSource(content);
    expect(answers.length).toBeGreaterThan(100);
    const wrong: string[] = [];
    for (const [route, query, expected] of answers) {
      const found = await source(route, new URLSearchParams(query));
      // Not with toEqual: it takes minutes to describe how long answers differ.
      if (!isDeepStrictEqual(comparable(found), comparable(expected)))
        wrong.push(`${route}?${new URLSearchParams(query).toString()}`);
    }
    expect(wrong).toEqual([]);
  });
});

/** Timelines number their names in any order. Fields without a value may be absent. */
function comparable(answer: unknown): unknown {
  const { names, lanes } = answer as Partial<Timeline>;
  const plain = JSON.parse(JSON.stringify(answer)) as object;
  if (!Array.isArray(names) || !lanes) return plain;
  const named = lanes.map((lane) => ({ ...lane, box_name: lane.box_name.map((name) => names[name]) }));
  return { start_us: (answer as Timeline).start_us, lanes: JSON.parse(JSON.stringify(named)) as object };
}

test("without room for all events, what is in the file is exact and the rest is absent", async () => {
  const { content, answers } = answersOf(0);
  const source = embeddedSource(content);
  const part = content.events?.host;
  if (!part) throw new Error("all host events have room");
  let [inside, outside] = [0, 0];
  for (const [route, query, expected] of answers) {
    if (route !== "range") continue;
    const [start, end] = [Number(query.start_us), Number(query.end_us)];
    const found = (await source(route, new URLSearchParams(query))) as RangeStatistics;
    if (part.start_us <= start && end <= part.end_us) {
      inside++;
      expect(comparable(found)).toEqual(comparable(expected));
    } else {
      outside++;
      expect([found.threads, found.operators]).toEqual([[], []]);
    }
  }
  expect(Math.min(inside, outside)).toBeGreaterThan(0);
  const all = (await source("find", new URLSearchParams({ text: "", kind: "operator" }))) as Matches;
  const whole = answers.find(
    ([route, { kind, text }]) => route === "find" && kind === "operator" && !text,
  )?.[2];
  expect(all.total).toBeLessThan((whole as Matches).total);
  expect(all.total).toBeGreaterThan(0);
});

test("a pattern that is not a regular expression is refused", async () => {
  const source = embeddedSource(answersOf(1).content);
  const found = (await source("find", new URLSearchParams({ text: "(a", regex: "1" }))) as EventDetails;
  expect(found.error?.what).toContain("Not a valid regular expression");
});
