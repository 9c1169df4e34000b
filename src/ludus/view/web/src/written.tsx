// What the model wrote, token by token, in its place in the conversation.
import { Fragment } from "preact";
import type { Item } from "./api";
import { percent } from "./format";
import { type Block, ItemView } from "./items";
import { useAnswer } from "./live";
import { visible } from "./text";
import { turnsOf } from "./timeline";
import { Problem } from "./ui";

type Token = [text: string | null, id: number | null, logprob: number | null, alternatives: [string, number | null][] | null];
interface Written { calls: { policy: string | null; tokens: Token[] | null }[]; tokenizer_note?: string | null; cut: boolean }

/** The class of a logprob: from sure (a probability above 90 %) to surprising (1 % or less). */
export const surprise = (logprob: number) => `lp${logprob > Math.log(0.9) ? 0 : logprob > Math.log(0.5) ? 1 : logprob > Math.log(0.1) ? 2 : logprob > Math.log(0.01) ? 3 : 4}`;

const chance = (logprob: number | null) => (logprob === null ? "unknown" : percent(Math.exp(Math.min(logprob, 0))));
const quoted = (text: string | null, id: number | null) => (text === null ? `id ${id}` : JSON.stringify(text));

/** The blocks of a conversation, token by token. They are shown as they are until their tokens have come. */
export function WrittenBlocks({ run, id, thread, blocks, items, calls, words, marks }: {
  run: string; id: number; thread: string; blocks: Block[]; items: Item[]; calls: Item[]; words: string[]; marks: Map<number, string>;
}) {
  const { data, problem } = useAnswer<Written>("written", { run, id, thread }, run, false);
  const turns = turnsOf(calls, items);
  return <>{problem && <Problem text={problem} />}{data && <Legend written={data} />}{blocks.map((block) => {
    const number = turns.findIndex((turn) => block.at >= turn.first && block.at <= turn.last);
    const call = number < 0 ? undefined : data?.calls[number];
    const mark = marks.has(block.at) && <p class="restored">{marks.get(block.at)}</p>;
    if (!call?.tokens) return <Fragment key={block.at}>{mark}<ItemView block={block} words={words} /></Fragment>;
    return <div key={block.at}>{mark}{block.at === turns[number].first && <Turn number={number + 1} policy={call.policy} tokens={call.tokens} />}
      {block.output && <ItemView block={{ item: block.output, at: block.at }} words={words} id={null} />}</div>;
  })}</>;
}

function Turn({ number, policy, tokens }: { number: number; policy: string | null; tokens: Token[] }) {
  const asText = tokens.some(([text]) => text !== null);
  return <article class="item assistant written"><h3>model call {number}{policy !== null && <> · policy {visible(policy)}</>} · {tokens.length} tokens</h3>
    <div class={asText ? "ids text-ids" : "ids"}>{tokens.map(([text, id, logprob, alternatives], at) => <span key={at} class={`token ${logprob === null ? "" : surprise(logprob)}`}
      title={[`${quoted(text, id)}: ${chance(logprob)}`, ...(alternatives ?? []).filter(([other]) => other !== text).map(([other, value]) => `or ${quoted(other, null)}: ${chance(value)}`),
        ...(policy === null ? [] : [`policy ${policy}`]), ...(id === null ? [] : [`id ${id}`])].join("\n")}>
      {text === null ? id : visible(text.replace(/\n/g, "↵\n"))}</span>)}</div></article>;
}

/** Why ids stand where text could stand. */
export const NoText = ({ note }: { note?: string | null }) => note ? <p class="quiet small" role="status">{visible(note)}</p>
  : <p class="quiet small">Ids are shown where no text is known. Text needs the tokenizer: <code>ludus view RUN --tokenizer DIR</code></p>;

/** What the colours of probabilities mean. */
export const Chances = () => <>{["> 90 %", "> 50 %", "> 10 %", "> 1 %", "1 % or less"].map((words, step) => <span key={words} class={`token lp${step}`}>{words}</span>)}</>;

function Legend({ written }: { written: Written }) {
  const ids = written.calls.some((call) => call.tokens?.some(([text]) => text === null));
  return <div><p class="legend-line"><Chances /> <span class="quiet">hover a token for its alternatives and the policy version</span></p>
    {(ids || written.tokenizer_note) && <NoText note={written.tokenizer_note} />}
    {written.cut && <p class="quiet small">The first 30,000 tokens are shown.</p>}</div>;
}
