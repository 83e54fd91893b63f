import type { ModelMessage, ToolModelMessage, UserModelMessage } from 'ai';
import type { Turn as Remembered } from './steps.ts';

const INTERRUPTED = 'interrupted: the call has no result';
const NOT_ANSWERED = '[The answer was not finished.]';

/** A whole turn: what the user said, and what followed. */
type Turn = readonly [UserModelMessage, ...ModelMessage[]];

/**
 * The messages for a model: what fits into `room` characters of what was said before, in whole turns, and then
 * `message`. The newest turns are taken, and the first; where others were left out, a mark says so. Each call of a tool
 * has its result, since providers refuse a conversation for good in which one has none.
 * @param remembered what runs have remembered; what of it is damaged is left out
 */
export function messagesFor(
  remembered: readonly Remembered[],
  message: UserModelMessage,
  room: number,
): ModelMessage[] {
  const turns = remembered.flatMap(turnOf).map(closed);
  const sizes = turns.map((turn) => JSON.stringify(turn).length);
  const free = room - markOf(turns.length).length;
  const first = sizes[0] ?? 0;
  const keepsFirst = turns.length > 1 && first + (sizes.at(-1) ?? 0) <= free;
  const begin = keepsFirst ? 1 : 0;
  let left = keepsFirst ? free - first : free;
  let from = turns.length;
  while (from > begin && (sizes[from - 1] ?? 0) <= left) {
    from -= 1;
    left -= sizes[from] ?? 0;
  }
  const newest = [...turns.slice(from).flat(), message];
  const [next = message, ...rest] = newest;
  const marked = from > begin && next.role === 'user' ? withMark(next, markOf(from - begin)) : next;
  return [...turns.slice(0, begin).flat(), marked, ...rest];
}

const markOf = (turns: number) =>
  `[Here the conversation is not whole: ${turns} earlier ${turns === 1 ? 'message and its answer are' : 'messages and their answers are'} left out.]`;

function withMark({ content }: UserModelMessage, mark: string): UserModelMessage {
  if (typeof content === 'string') return { role: 'user', content: `${mark}\n\n${content}` };
  return { role: 'user', content: [{ type: 'text', text: mark }, ...content] };
}

/** What a run has remembered, if it is a turn: the newest that the user said before the answer, and the answer. */
function turnOf(remembered: Remembered): Turn[] {
  const messages = remembered.filter(isMessage);
  const answer = messages.findIndex(({ role }) => role !== 'user');
  const question = messages[answer - 1];
  if (question?.role !== 'user') return [];
  return [[question, ...messages.slice(answer).filter(({ role }) => role !== 'user')]];
}

/** The turn with a result for each of its calls, directly after the call, and with an answer at its end. */
function closed([question, ...answer]: Turn): Turn {
  const turn: [UserModelMessage, ...ModelMessage[]] = [question];
  const open = new Map<string, string>();
  const close = () => {
    if (open.size > 0) turn.push(interrupted(open));
    open.clear();
  };
  for (const message of answer) {
    if (message.role === 'tool') {
      const content = message.content.filter(
        (part) => part.type === 'tool-result' && open.delete(part.toolCallId),
      );
      if (content.length > 0) turn.push({ role: 'tool', content });
      continue;
    }
    close();
    turn.push(message);
    if (message.role !== 'assistant' || typeof message.content === 'string') continue;
    for (const part of message.content)
      if (part.type === 'tool-call') open.set(part.toolCallId, part.toolName);
  }
  close();
  if (turn.at(-1)?.role !== 'assistant') turn.push({ role: 'assistant', content: NOT_ANSWERED });
  return turn;
}

function interrupted(calls: ReadonlyMap<string, string>): ToolModelMessage {
  const content = [...calls].map(([toolCallId, toolName]) => ({
    type: 'tool-result' as const,
    toolCallId,
    toolName,
    output: { type: 'error-text' as const, value: INTERRUPTED },
  }));
  return { role: 'tool', content };
}

/** Whether a value is a message of the kinds that `model-step.ts` remembers. */
function isMessage(value: unknown): value is ModelMessage {
  const { role, content } = (value ?? {}) as Readonly<Record<string, unknown>>;
  if (role === 'user') return typeof content === 'string';
  if (role === 'assistant' && typeof content === 'string') return true;
  const isPart = role === 'assistant' ? isSaid : role === 'tool' ? isResult : undefined;
  return isPart !== undefined && Array.isArray(content) && content.length > 0 && content.every(isPart);
}

function isSaid(value: unknown): boolean {
  const { type, text, toolCallId, toolName, input } = (value ?? {}) as Readonly<Record<string, unknown>>;
  if (type === 'text') return typeof text === 'string';
  return type === 'tool-call' && isText(toolCallId) && isText(toolName) && input !== undefined;
}

function isResult(value: unknown): boolean {
  const { type, toolCallId, toolName, output } = (value ?? {}) as Readonly<Record<string, unknown>>;
  return type === 'tool-result' && isText(toolCallId) && isText(toolName) && typeof output === 'object';
}

const isText = (value: unknown) => typeof value === 'string' && value !== '';
