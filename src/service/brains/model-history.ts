import type { ModelMessage, ToolCallPart, ToolModelMessage, UserModelMessage } from 'ai';
import type { Turn as Remembered } from './steps.ts';

const INTERRUPTED = 'interrupted: the call has no result';
const NOT_ANSWERED = '[The answer was not finished.]';

/** A whole turn: what the user said, and what followed. */
type Turn = readonly [UserModelMessage, ...ModelMessage[]];

/**
 * The messages for a model: what fits into `room` characters of what was said before, in whole turns, and then
 * `message`. The newest turns are taken, and the first; where others were left out, a mark says so. Each call of a tool
 * has its result, since providers refuse a conversation for good in which one has none.
 * @param remembered what runs have remembered: what the user said, and what followed. A run without an answer is left out
 */
export function messagesFor(
  remembered: readonly Remembered[],
  message: UserModelMessage,
  room: number,
): ModelMessage[] {
  const turns = (remembered as readonly Turn[]).filter(({ length }) => length > 1).map(closed);
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

/** A turn with a result for each of its calls, directly after the call, and with an answer at its end. */
function closed([question, ...answer]: Turn): Turn {
  const turn: [UserModelMessage, ...ModelMessage[]] = [question];
  for (const [at, message] of answer.entries()) {
    turn.push(message);
    const open = callsOf(message).filter(({ toolCallId }) => !hasResult(answer[at + 1], toolCallId));
    if (open.length > 0) turn.push(interrupted(open));
  }
  if (turn.at(-1)?.role !== 'assistant') turn.push({ role: 'assistant', content: NOT_ANSWERED });
  return turn;
}

function callsOf({ role, content }: ModelMessage): ToolCallPart[] {
  if (role !== 'assistant' || typeof content === 'string') return [];
  return content.filter((part) => part.type === 'tool-call');
}

const hasResult = (next: ModelMessage | undefined, id: string) =>
  next?.role === 'tool' && next.content.some((part) => part.type === 'tool-result' && part.toolCallId === id);

function interrupted(calls: readonly ToolCallPart[]): ToolModelMessage {
  const content = calls.map(({ toolCallId, toolName }) => ({
    type: 'tool-result' as const,
    toolCallId,
    toolName,
    output: { type: 'error-text' as const, value: INTERRUPTED },
  }));
  return { role: 'tool', content };
}
