// Text that a model or a tool wrote. It only ever becomes text nodes: nothing here makes markup of it.
import type { ComponentChildren } from "preact";
import { useMemo, useState } from "preact/hooks";
import type { Json } from "./api";
import { whole } from "./format";

// Control characters, and those that reorder or hide text: shown by their number instead.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]/;
const SHOWN_AT_FIRST = 6000;

export function visible(text: string): ComponentChildren {
  if (!HIDDEN.test(text)) return text;
  const parts: ComponentChildren[] = [];
  let from = 0;
  for (let at = 0; at < text.length && parts.length < 4000; at++) {
    if (HIDDEN.test(text[at])) {
      if (at > from) parts.push(text.slice(from, at));
      const code = text.charCodeAt(at).toString(16).toUpperCase().padStart(4, "0");
      parts.push(<span class="hidden-mark" title={`The character U+${code}, which is not shown`}>U+{code}</span>);
      from = at + 1;
    }
  }
  parts.push(text.slice(from));
  return parts;
}

function marked(text: string, words: string[]): ComponentChildren {
  if (!words.length || text.length > 200_000) return visible(text);
  const pattern = new RegExp(`(${words.map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("|")})`, "gi");
  const parts = text.split(pattern);
  if (parts.length < 2 || parts.length > 4000) return visible(text);
  return parts.map((part, index) => (index % 2 ? <mark>{visible(part)}</mark> : visible(part)));
}

/** The words of a query that stand in texts, to be marked there. */
export function wordsOf(query: string): string[] {
  const found: string[] = [];
  for (const part of query.matchAll(/(-)?(?:([a-z]+):)?(?:"([^"]*)"?|([^\s"]+))/g)) {
    const word = (part[3] ?? part[4] ?? "").replace(/\*+$/, "");
    if (!part[1] && !part[2] && word.length > 1) found.push(word);
  }
  return found.slice(0, 10);
}

/** A text, or a text that the server cut. A long one is folded. */
export function Text({ value, words = [], mono = false }: { value: Json; words?: string[]; mono?: boolean }) {
  const cut = value && typeof value === "object" && typeof value.cut === "string";
  const text: string = cut ? value.cut : typeof value === "string" ? value : JSON.stringify(value, null, 2) ?? "";
  const [open, setOpen] = useState(false);
  const long = text.length > SHOWN_AT_FIRST;
  const shown = long && !open ? text.slice(0, SHOWN_AT_FIRST) : text;
  const content = useMemo(() => marked(shown, words), [shown, words.join(" ")]);
  return (
    <div class={mono ? "text mono" : "text"} dir="auto">
      {content}
      {long && (
        <button type="button" class="more" onClick={() => setOpen(!open)}>
          {open ? "Show less" : `Show all ${whole(text.length)} characters`}
        </button>
      )}
      {cut && <p class="quiet">Cut after {whole(text.length)} of {whole(value.length)} characters. The raw record has all.</p>}
    </div>
  );
}

export function parsed(text: Json): Json {
  if (typeof text !== "string") return text && typeof text === "object" && !("cut" in text) ? text : undefined;
  const start = text.trimStart()[0];
  if ((start !== "{" && start !== "[") || text.length > 500_000) return undefined;
  try { return JSON.parse(text); } catch { return undefined; }
}

/** JSON with colours, folded below the second level where it is large. */
export function JsonView({ value, words = [] }: { value: Json; words?: string[] }) {
  return <div class="json mono"><Value value={value} depth={0} words={words} /></div>;
}

function Value({ value, depth, words }: { value: Json; depth: number; words: string[] }) {
  if (value === null || typeof value === "boolean") return <span class="j-word">{String(value)}</span>;
  if (typeof value === "number") return <span class="j-number">{String(value)}</span>;
  if (typeof value === "string") return (value.startsWith("data:") && media(value)) || <LongString text={value} words={words} />;
  if (value && typeof value.cut === "string" && typeof value.length === "number") return <LongString text={value.cut} words={words} />;
  if (typeof value.data === "string" && typeof value.format === "string") { const sound = media(value); if (sound) return <>{sound}</>; }
  const list = Array.isArray(value);
  const entries: [string, Json][] = list ? value.map((each: Json, index: number) => [String(index), each]) : Object.entries(value);
  if (!entries.length) return <span>{list ? "[]" : "{}"}</span>;
  return <Entries entries={entries} list={list} depth={depth} words={words} />;
}

function Entries({ entries, list, depth, words }: { entries: [string, Json][]; list: boolean; depth: number; words: string[] }) {
  const [open, setOpen] = useState(depth < 2 || (entries.length <= 6 && depth < 6));
  const [most, setMost] = useState(100);
  const size = list ? `[${entries.length}]` : `{${entries.length}}`;
  if (!open) return <button type="button" class="fold" onClick={() => setOpen(true)}>{size}</button>;
  return (
    <ul class={list && entries.length > 1 && typeof entries[0][1] === "object" ? "apart" : undefined}>
      {entries.slice(0, most).map(([name, each]) => (
        <li key={name}>
          {!list && <><span class="j-key">{visible(name.slice(0, 300))}</span>: </>}
          <Value value={each} depth={depth + 1} words={words} />
        </li>
      ))}
      {entries.length > most && (
        <li><button type="button" class="more" onClick={() => setMost(most + 500)}>{whole(entries.length - most)} more</button></li>
      )}
    </ul>
  );
}

function LongString({ text, words }: { text: string; words: string[] }) {
  const [open, setOpen] = useState(false);
  const long = text.length > 2000;
  return (
    <span class="j-text">
      {marked(long && !open ? text.slice(0, 2000) : text, words)}
      {long && !open && <button type="button" class="more" onClick={() => setOpen(true)}>… {whole(text.length)} characters</button>}
    </span>
  );
}

const SOUND = /^data:audio\/(wav|x-wav|mpeg|mp3|ogg|flac);base64,([A-Za-z0-9+/]+={0,2})$/;
const SOUND_BEGINS: [string, (head: string) => boolean][] = [
  ["wav", (head) => head.startsWith("RIFF") && head.slice(8, 12) === "WAVE"],
  ["mpeg", (head) => head.startsWith("ID3") || (head.charCodeAt(0) === 0xff && (head.charCodeAt(1) & 0xe0) === 0xe0)],
  ["ogg", (head) => head.startsWith("OggS")],
  ["flac", (head) => head.startsWith("fLaC")],
];

/** The address of a sound that the record holds as data: a data URL, or an object with `data` and `format`. Its kind is told by its first bytes; null for anything else. */
export function soundData(given: Json): string | null {
  const data = typeof given === "string" ? SOUND.exec(given)?.[2] : given && typeof given === "object" && typeof given.format === "string" ? given.data : null;
  if (typeof data !== "string" || !/^[A-Za-z0-9+/]+={0,2}$/.test(data)) return null;
  try {
    const head = atob(data.slice(0, 24)), kind = SOUND_BEGINS.find(([, begins]) => begins(head));
    return kind ? `data:audio/${kind[0]};base64,${data}` : null;
  } catch { return null; }
}

/** An image or a sound that the record holds as data; null for anything else. */
export function media(given: Json): ComponentChildren {
  const image = imageData(given);
  if (image) return <img class="picture" src={image} alt="From the rollout" loading="lazy" />;
  const sound = soundData(given);
  return sound ? <audio class="sound" controls preload="metadata" src={sound} aria-label="Sound from the rollout" /> : null;
}

const IMAGE = /^data:image\/(png|jpeg|webp|gif);base64,([A-Za-z0-9+/]+={0,2})$/;
const BEGINS: Record<string, (head: string) => boolean> = {
  png: (head) => head.startsWith("\x89PNG\r\n"),
  jpeg: (head) => head.startsWith("\xff\xd8\xff"),
  gif: (head) => head.startsWith("GIF8"),
  webp: (head) => head.startsWith("RIFF") && head.slice(8, 12) === "WEBP",
};

/** The address of an image that the record holds as data, made again from checked parts; null for anything else. */
export function imageData(given: Json): string | null {
  const found = typeof given === "string" ? IMAGE.exec(given) : null;
  if (!found) return null;
  try {
    if (!BEGINS[found[1]](atob(found[2].slice(0, 24)))) return null;
  } catch { return null; }
  return `data:image/${found[1]};base64,${found[2]}`;
}
