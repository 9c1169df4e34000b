// The items of a trajectory as a conversation.
import { useState } from "preact/hooks";
import type { Item, Json } from "./api";
import { reward } from "./format";
import { imageData, JsonView, media, parsed, Text, visible } from "./text";

export interface Block { item: Item; output?: Item; at: number }

/** Calls with their outputs beside them. An output without its call stands alone. */
export function blocksOf(items: Item[]): Block[] {
  const blocks: Block[] = [];
  const waiting = new Map<string, Block>();
  items.forEach((item, at) => {
    if (item.type === "function_call_output") {
      const call = waiting.get(String(item.call_id));
      if (call && !call.output) { call.output = item; return; }
    }
    const block = { item, at };
    if (item.type === "function_call") waiting.set(String(item.call_id), block);
    blocks.push(block);
  });
  return blocks;
}

export function ItemView({ block, words, turnReward, id = `item-${block.at}` }: { block: Block; words: string[]; turnReward?: number; id?: string | null }) {
  const { item, output } = block;
  const shown = item.type === "function_call" ? <Call item={item} output={output} words={words} />
    : item.type === "function_call_output" ? <Output item={item} words={words} alone />
    : item.type === "reasoning" ? <Reasoning item={item} words={words} />
    : item.type === undefined || item.type === "message" ? <Message item={item} words={words} />
    : <article class="item other"><h3>{visible(String(item.type).slice(0, 60))}</h3><JsonView value={item} words={words} /></article>;
  return <div class="block" id={id ?? undefined}>{shown}
    {turnReward !== undefined && <p class="turn-reward">reward of this turn: <b>{reward(turnReward)}</b></p>}</div>;
}

function Message({ item, words }: { item: Item; words: string[] }) {
  const role = ["user", "assistant", "system", "developer", "tool"].includes(item.role) ? item.role : "assistant";
  return <article class={`item ${role}`}><h3>{role}</h3><Content content={item.content} words={words} /></article>;
}

function Content({ content, words }: { content: Json; words: string[] }) {
  if (!Array.isArray(content)) return <Text value={content ?? ""} words={words} />;
  return <>{content.map((part: Json, index: number) => <Part key={index} part={part} words={words} />)}</>;
}

function Part({ part, words }: { part: Json; words: string[] }) {
  if (typeof part === "string") return <Text value={part} words={words} />;
  if (!part || typeof part !== "object") return null;
  if ("text" in part) return <Text value={part.text} words={words} />;
  if ("refusal" in part) return <div class="refusal"><b>Refusal</b><Text value={part.refusal} words={words} /></div>;
  const given = part.image_url?.url ?? part.image_url;
  if (given !== undefined) {
    const image = imageData(given);
    if (image) return <img class="picture" src={image} alt="From the rollout" loading="lazy" />;
    return <p class="quiet">An image that is not shown: {visible(String(given).slice(0, 200))}</p>;
  }
  const sound = media(part.input_audio ?? part.audio ?? part.audio_url?.url ?? part.audio_url ?? part);
  return <>{sound ?? <JsonView value={part} words={words} />}{sound && typeof part.transcript === "string" && <Text value={part.transcript} words={words} />}</>;
}

function Reasoning({ item, words }: { item: Item; words: string[] }) {
  const parts = [...(Array.isArray(item.summary) ? item.summary : []), ...(Array.isArray(item.content) ? item.content : [])];
  const text = parts.map((part: Json) => (typeof part?.text === "string" ? part.text : part?.text?.cut ?? "")).join("\n");
  const found = words.some((word) => text.toLowerCase().includes(word.toLowerCase()));
  const [open, setOpen] = useState(found);
  return (
    <details class="item reasoning" open={open} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary><h3>reasoning</h3><span class="quiet clip">{open ? "" : visible(text.slice(0, 140))}</span></summary>
      {open && <Text value={text || (item.encrypted_content ? "The provider keeps this reasoning to itself." : "")} words={words} />}
    </details>
  );
}

function Call({ item, output, words }: { item: Item; output?: Item; words: string[] }) {
  const args = parsed(item.arguments);
  return (
    <article class="item call">
      <div class="call-side"><h3><span>call</span> <code>{visible(String(item.name ?? "").slice(0, 200))}</code></h3>
        {args !== undefined ? <JsonView value={args} words={words} /> : <Text value={item.arguments ?? ""} words={words} mono />}</div>
      {output ? <Output item={output} words={words} /> : <div class="output missing"><h3>no output</h3></div>}
    </article>
  );
}

const ERROR = /^\s*(error|traceback|exception)\b/i;

function Output({ item, words, alone }: { item: Item; words: string[]; alone?: boolean }) {
  const value = parsed(item.output);
  const bad = typeof item.output === "string" && (ERROR.test(item.output) ||
    (value && !Array.isArray(value) && ("error" in value || "detail" in value)));
  const parts = Array.isArray(item.output) ? item.output : Array.isArray(value) && value.some?.((part: Json) => part?.image_url || part?.input_audio || part?.audio) ? value : null;
  return (
    <div class={`output${alone ? " item" : ""}${bad ? " error" : ""}`}>
      <h3>{bad ? "output, an error" : "output"}</h3>
      {typeof item.output === "string" && item.output.startsWith("data:") && media(item.output) || (parts ? <Content content={parts} words={words} /> : value !== undefined ? <JsonView value={value} words={words} /> : <Text value={item.output ?? ""} words={words} mono />)}
    </div>
  );
}
