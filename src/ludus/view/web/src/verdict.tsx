// The verdict at the end of a conversation: the answer beside what was expected, and what a judge read and wrote.
import type { Item, Json, OneRollout } from "./api";
import { blocksOf, ItemView } from "./items";
import { JsonView, Text, visible } from "./text";
import { Outcome } from "./ui";

const EXPECTED = /^(expected|reference|target|gold|ground_truth|correct|key$|solution|answer_key)/i;
const ANSWERED = /^(extracted|predicted|parsed|final|model|submitted|given)_?(answer|value|order|result|output|text)?|^(answer|prediction|output)$/i;

const isTranscript = (value: Json) => Boolean(value && typeof value === "object" && value.responses_create_params && value.response && typeof value.response === "object");

/** The exchanges with a judge that the verdict holds, by the name of its value. */
export function transcriptsOf(values: Record<string, Json>): [string, Json[]][] {
  return Object.entries(values).map(([name, value]): [string, Json[]] => [name, (Array.isArray(value) ? value : [value]).filter(isTranscript)]).filter(([, list]) => list.length > 0);
}

export function VerdictEnd({ data }: { data: OneRollout }) {
  const values: Record<string, Json> = data.verdict.values ?? {}, transcripts = transcriptsOf(values);
  const named = { ...data.task, ...values };
  const expected = Object.entries(named).filter(([name, value]) => EXPECTED.test(name) && shown(value));
  const answered = Object.entries(values).filter(([name, value]) => ANSWERED.test(name) && !EXPECTED.test(name) && shown(value));
  if (data.failure || (!expected.length && !transcripts.length)) return null;
  return (
    <section class="item verdict-end" aria-label="Verdict"><h3>verdict</h3>
      <p><Outcome outcome={data.facts.outcome} reward={data.facts.reward} /></p>
      {expected.length > 0 && <div class="beside">
        <div><h4>answer{answered.length > 0 && <span class="quiet">, as the verifier read it</span>}</h4>{answered.length ? answered.map(([name, value]) => <Value key={name} name={name} value={value} />) : <Text value={lastText(data.items) || "no text"} />}</div>
        <div><h4>expected</h4>{expected.map(([name, value]) => <Value key={name} name={name} value={value} />)}</div></div>}
      {transcripts.map(([name, list]) => list.map((each, index) => <Transcript key={`${name} ${index}`} name={name} exchange={each} number={index + 1} of={list.length} />))}
    </section>
  );
}

const shown = (value: Json) => value !== undefined && !(Array.isArray(value) && value.some(isTranscript)) && !isTranscript(value);

function Value({ name, value }: { name: string; value: Json }) {
  return <div class="named-value"><span class="quiet small">{visible(name)}</span> {typeof value === "string" ? <Text value={value} /> : value === null ? <span class="quiet">nothing was found</span> : <JsonView value={value} />}</div>;
}

function lastText(items: Item[]): Json {
  const last = [...items].reverse().find((item) => (item.type ?? "message") === "message" && (item.role ?? "assistant") === "assistant");
  if (!last) return "";
  return Array.isArray(last.content) ? last.content.map((part: Json) => (typeof part?.text === "string" ? part.text : "")).join("\n") : last.content;
}

function Transcript({ name, exchange, number, of }: { name: string; exchange: Json; number: number; of: number }) {
  const asked = exchange.responses_create_params, input = typeof asked.input === "string" ? [{ role: "user", content: asked.input }] : Array.isArray(asked.input) ? asked.input : [];
  const output = Array.isArray(exchange.response.output) ? exchange.response.output : [];
  const label = typeof exchange.verdict_label === "string" ? exchange.verdict_label : "";
  const instructions = typeof asked.instructions === "string" ? [{ role: "system", content: asked.instructions }] : [];
  return (
    <details class="transcript" open={number === 1}><summary>{visible(name)}{of > 1 && ` ${number} of ${of}`}{label && <>: <b>{visible(label)}</b></>}</summary>
      <div class="conversation">{[...blocksOf([...instructions, ...input]), ...blocksOf(output)].map((block, at) => <ItemView key={at} block={block} words={[]} id={null} />)}</div></details>
  );
}
