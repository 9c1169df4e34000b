// What the model wrote, token by token, in its place in the conversation.
import type { Item } from "./api";
import { percent } from "./format";
import { type Block, ItemView } from "./items";
import { useAnswer } from "./live";
import { visible } from "./text";
import { turnsOf } from "./timeline";
import { Problem } from "./ui";

type Token = [text: string | null, id: number | null, logprob: number | null, alternatives: [string, number | null][] | null];
interface Written { calls: { policy: string | null; tokens: Token[] | null }[]; tokenizer_note?: string | null; cut: boolean }

/** The class of a logprob: from sure to surprising. */
export const surprise = (logprob: number) => `lp${logprob > -0.1 ? 0 : logprob > -0.7 ? 1 : logprob > -2 ? 2 : logprob > -5 ? 3 : 4}`;

const chance = (logprob: number | null) => (logprob === null ? "unknown" : percent(Math.exp(Math.min(logprob, 0))));
const quoted = (text: string | null, id: number | null) => (text === null ? `id ${id}` : JSON.stringify(text));

/** The blocks of a conversation, token by token. They are shown as they are until their tokens have come. */
export function WrittenBlocks({ run, id, blocks, items, calls, words }: { run: string; id: number; blocks: Block[]; items: Item[]; calls: Item[]; words: string[] }) {
  const { data, problem } = useAnswer<Written>("written", { run, id }, run, false);
  const turns = turnsOf(calls, items);
  return <>{problem && <Problem text={problem} />}{data && <Legend written={data} />}{blocks.map((block) => {
    const number = turns.findIndex((turn) => block.at >= turn.first && block.at <= turn.last);
    const call = number < 0 ? undefined : data?.calls[number];
    if (!call?.tokens) return <ItemView key={block.at} block={block} words={words} />;
    return <div key={block.at}>{block.at === turns[number].first && <Turn number={number + 1} policy={call.policy} tokens={call.tokens} />}
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

function Legend({ written }: { written: Written }) {
  const ids = written.calls.some((call) => call.tokens?.some(([text]) => text === null));
  return <div><p class="legend-line"><span class="token lp0">sure</span><span class="token lp1">&gt; 50 %</span><span class="token lp2">&gt; 14 %</span><span class="token lp3">&gt; 0.7 %</span><span class="token lp4">surprising</span> <span class="quiet">hover a token for its alternatives and the policy version</span></p>
    {(ids || written.tokenizer_note) && <NoText note={written.tokenizer_note} />}
    {written.cut && <p class="quiet small">The first 30,000 tokens are shown.</p>}</div>;
}
