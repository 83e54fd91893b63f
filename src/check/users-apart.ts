import { type Answer, describeAnswer, problemOf } from './answers.ts';
import {
  type CallOperation,
  type CheckedConversation,
  type OperationCall,
  outcomeOf,
} from './operation-calls.ts';

/** What a second user asks for, which the first one has. They must not get it. */
export interface ForeignQuestion {
  /** What it is, in one or two words. */
  readonly what: string;
  readonly call: OperationCall;
}

/** What came of the second user's try to get what the first one has. */
export interface Attempt {
  /** What it was, in one or two words. */
  readonly what: string;
  /** `open`: the user reaches what is not theirs. `unclear`: the answer proves nothing. */
  readonly state: 'apart' | 'open' | 'unclear';
  /** The answer, in words. */
  readonly says: string;
}

const ADVICE =
  'Stop using this deployment for real conversations, and look at CHANNELS of the running relay; if it is that of this configuration, ask those who run the bot service whether it keeps conversations apart by customChannelId.';

/** The second user's try to stop the run of the first one's message, while it goes on. */
export function attemptStop({ other, conversation }: Pick<CheckedConversation, 'other' | 'conversation'>) {
  const what = 'its run to stop';
  let tried: Promise<readonly [answer: Answer | string, at: number]> | undefined;
  return {
    /** The relay passes the id of a run on as it is: the bot service must see that it belongs to the conversation. */
    onRun(requestId: string): void {
      if (!other || tried) return;
      const query = { request_id: requestId };
      const call = { line: 'POST message/suspend', conversation: conversation.id, query };
      tried = ask(other, call).then((answer) => [answer, performance.now()]);
    },
    /** Call it when the stream of the run has ended. Resolves with what came of the try, if there was one. */
    async ended(): Promise<readonly Attempt[]> {
      const endedAt = performance.now();
      if (!tried) return [];
      const [answer, at] = await tried;
      const outcome = typeof answer === 'string' ? 'wrong' : outcomeOf(answer);
      if (outcome === 'unknown' && at > endedAt)
        return [{ what, state: 'unclear', says: '404 after the run was over' }];
      // The call is off if the group `chat` is.
      return outcome === 'off' ? [] : [attempt(what, answer)];
    },
  };
}

/** Proves that a second user who knows the ids of the first one's conversation does not get what is in it. */
export async function checkUsersApart(
  checked: CheckedConversation,
  attempts: readonly Attempt[],
  questions: readonly ForeignQuestion[],
): Promise<void> {
  const { report, other, conversation } = checked;
  const { ok, note, problem } = report.about('users apart');
  const unproved = whyUnproved(checked, attempts.length + questions.length);
  if (unproved) note(...unproved);
  // A second user who could not sign in has been reported.
  if (unproved || !other) return;
  const all = [...attempts];
  for (const { what, call } of questions) all.push(attempt(what, await ask(other, call)));
  for (const { what, state, says } of all) {
    const answer = report.quote(says);
    if (state === 'open')
      problem(`a second user who knows the id of a conversation gets ${what}: ${answer}`, ADVICE);
    if (state === 'unclear') note(`${what} not proved: answered with ${answer}`);
  }
  const apart = all.filter(({ state }) => state === 'apart').map(({ what }) => what);
  if (apart.length > 0)
    ok(`a second user who knows the id of a conversation does not get ${apart.join(', ')}`);
  // With this id, it is a conversation of the second user, which a question may have begun.
  await ask(other, { line: 'DELETE channel', conversation: conversation.id });
}

/** The answer to a call, or the code of the error. */
function ask(call: CallOperation, request: OperationCall): Promise<Answer | string> {
  return call(request).catch((error: Error) => error.message);
}

/** With `CHANNELS=scoped`, the second user asks for a conversation of their own, which does not exist. */
function attempt(what: string, answer: Answer | string): Attempt {
  if (typeof answer === 'string') return { what, state: 'unclear', says: answer };
  const says = describeAnswer(answer);
  const outcome = outcomeOf(answer);
  if (outcome === 'done') return { what, state: 'open', says };
  const isRefused = problemOf(answer)?.code === 'upstream_refused';
  const isApart = outcome === 'not_yours' || outcome === 'unknown' || isRefused;
  return { what, state: isApart ? 'apart' : 'unclear', says };
}

/** Why it is not proved that users are apart, and what to do; `undefined` if it can be. */
function whyUnproved(
  { config, otherVisitor }: CheckedConversation,
  tries: number,
): readonly [says: string, advice: string] | undefined {
  if (config.channels.mode === 'shared')
    return [
      'with CHANNELS=shared nobody owns a conversation: every user who knows its id can read and write it',
      'Set CHANNELS=scoped, unless that is what you want.',
    ];
  const notProved = 'not proved that a user does not see the conversations of another';
  if (otherVisitor === undefined) return [`${notProved}: there is no second user`, 'Give --other-user NAME.'];
  if (tries > 0) return undefined;
  return [
    `${notProved}: no conversation was begun whose operations work`,
    'Check without --no-messages, with the group chat or files on.',
  ];
}
