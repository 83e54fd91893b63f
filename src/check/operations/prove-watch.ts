import { seconds } from '../judge-arrival.ts';
import { watchLive } from './live-history.ts';
import { bufferedAdvice, HEADERS_ADVICE, heartbeatWaitMs, type OpenedLive, openLive } from './open-live.ts';
import type { OperationSession } from './operation-session.ts';
import { reporterOf } from './report-operation.ts';
import { requestFor, type SandboxFile } from './sandbox-file.ts';

const WATCH = 'GET sandbox/:sandbox/fs/watch';
const BUFFERED = bufferedAdvice('fs/watch');
/** How long a change may take to arrive at least, in ms. */
const LEAST_WAIT_MS = 3_000;

/** Opens the watch of the folder that the file will be in. Reports what is wrong if it does not begin. */
export async function openWatch(
  session: OperationSession,
  file: SandboxFile,
): Promise<OpenedLive | undefined> {
  const { problem, wrong } = reporterOf(session, WATCH);
  const opened = await openLive(session, WATCH, requestFor(file, 'folder'));
  if (typeof opened === 'string')
    problem(`has not begun (${opened}): something in between may wait for its end`, BUFFERED);
  else if ('status' in opened) wrong(opened);
  else {
    if (opened.faults.length > 0) problem(opened.faults.join('; '), HEADERS_ADVICE);
    return opened;
  }
  return undefined;
}

/** Proves that the watch names the file, which has just been written. A heartbeat shows that nothing is held back. */
export async function proveWatch(
  session: OperationSession,
  file: SandboxFile,
  { response }: OpenedLive,
): Promise<void> {
  const waitMs = heartbeatWaitMs(session.config.upstream.heartbeatMs);
  const namesFile = (data: string) => data.includes(file.name);
  const seen = await watchLive(response, Math.max(LEAST_WAIT_MS, waitMs ?? 0), namesFile);
  const { ok, note, problem } = reporterOf(session, WATCH);
  const after = seconds(seen.ms);
  if (seen.events.some(namesFile)) ok(`begins, and names the file ${after} after it was written`);
  else if (typeof seen.end === 'object')
    problem(`begins, and broke off after ${after} (${session.quote(seen.end.broken)})`, BUFFERED);
  else if (seen.end === 'ended') problem(`begins, and ended after ${after} without naming the file`);
  else if (seen.events.length > 0 || seen.heartbeats > 0) {
    const says = `begins, and is not held back, but did not name the file within ${after}`;
    note(says, 'Ask those who run the bot service how soon it tells of changes.');
  } else if (waitMs !== undefined)
    problem(`begins, but neither the change nor a heartbeat came within ${after}`, BUFFERED);
  else note(`begins, but did not name the file within ${after}; heartbeats were not waited for`, BUFFERED);
}
