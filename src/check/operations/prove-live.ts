import { seconds } from '../judge-arrival.ts';
import { count } from '../print-findings.ts';
import type { Answer } from '../through-client.ts';
import { apartness } from './apartness.ts';
import { foreignFeedback } from './foreign-feedback.ts';
import type { Apartness, ForeignQuestion } from './group-probe.ts';
import { type LiveHistory, watchLive } from './live-history.ts';
import { bufferedAdvice, HEADERS_ADVICE, heartbeatWaitMs, type OpenedLive, openLive } from './open-live.ts';
import type { OperationSession } from './operation-session.ts';
import { reporterOf } from './report-operation.ts';

const LIVE = 'GET message/sse';
/** How long the stream of a second user is watched, in ms: what was said comes at once. */
const FOREIGN_WATCH_MS = 1_000;

const BUFFERED = bufferedAdvice('message/sse');

/** Proves that the live stream of the conversation begins with what was said, and beats. */
export async function proveLive(session: OperationSession): Promise<ForeignQuestion[]> {
  const { heartbeatMs } = session.config.upstream;
  const { ok, note, problem, wrong } = reporterOf(session, LIVE);
  const watchMs = heartbeatWaitMs(heartbeatMs);
  const opened = await watchHistory(session, watchMs ?? FOREIGN_WATCH_MS);
  if (typeof opened === 'string') {
    problem(`has not begun (${opened}): something in between may wait for its end`, BUFFERED);
    return [];
  }
  if ('status' in opened) {
    wrong(opened);
    return [];
  }
  const { events, heartbeats, end, ms, faults } = opened;
  const said =
    events.length === 0 ? 'with nothing of the conversation' : `with ${count(events.length, 'event')}`;
  if (faults.length > 0) problem(faults.join('; '), HEADERS_ADVICE);
  if (typeof end === 'object')
    problem(`begins ${said}, and broke off after ${seconds(ms)} (${session.quote(end.broken)})`, BUFFERED);
  else if (heartbeats > 0) ok(`begins ${said}, and beats`);
  else if (end === 'ended') ok(`begins ${said}; it ended after ${seconds(ms)}, so no heartbeat was to come`);
  else if (watchMs !== undefined) {
    const says = `begins ${said}, but no heartbeat came in ${seconds(ms)}, and HEARTBEAT_MS is ${heartbeatMs}`;
    problem(says, `${BUFFERED} Or the relay runs with another HEARTBEAT_MS.`);
  } else note(`begins ${said}; heartbeats were not waited for, with HEARTBEAT_MS=${heartbeatMs}`);
  if (events.length === 0) return [];
  return [{ what: 'its history', ask: askForHistory(session) }, ...foreignFeedback(session, events)];
}

/** What a second user sees of the conversation: nothing may have been said in theirs. */
function askForHistory({ conversation }: OperationSession): ForeignQuestion['ask'] {
  return async (other): Promise<Apartness> => {
    const opened = await watchHistory({ ...other, conversation }, FOREIGN_WATCH_MS);
    if (typeof opened === 'string') return { state: 'unclear', says: opened };
    if ('status' in opened) return apartness(opened);
    const text = opened.events.join();
    const shows = text.includes(conversation.messageId) || /"asgard\.message\./.test(text);
    const says = `a stream ${shows ? 'that shows what was said' : 'without a message'}`;
    return { state: shows ? 'open' : 'apart', says };
  };
}

/** Watches the live stream for `watchMs`; returns the answer if it is none, or the code of the error. */
async function watchHistory(
  session: OperationSession,
  watchMs: number,
): Promise<(LiveHistory & Pick<OpenedLive, 'faults'>) | Answer | string> {
  const opened = await openLive(session, LIVE, { conversation: session.conversation.id });
  if (typeof opened === 'string' || 'status' in opened) return opened;
  return { ...(await watchLive(opened.response, watchMs)), faults: opened.faults };
}
