import { randomUUID } from 'node:crypto';
import { newConversation } from '../conversation.ts';
import type { ForeignQuestion, GroupProbe } from './group-probe.ts';
import { verdictOn } from './judge-operation.ts';
import { launchedSandbox } from './launched-sandbox.ts';
import type { OperationSession } from './operation-session.ts';
import { proveSandboxReads } from './prove-sandbox-reads.ts';
import { openWatch, proveWatch } from './prove-watch.ts';
import { reporterOf } from './report-operation.ts';
import { foreignReads } from './sandbox-apart.ts';
import { newSandboxFile, type SandboxFile } from './sandbox-file.ts';
import { removeSandboxFile, writeSandboxFile } from './write-sandbox-file.ts';

const LIST = 'GET sandbox/:sandbox/fs/list';

/** Files of a sandbox, and the watch of their changes. */
export const sandbox: GroupProbe = {
  ask: ({ call }) => call(LIST, { conversation: newConversation().id }),
  async prove(session, other) {
    await proveNotLaunched(session);
    const launched = await launchedSandbox(session);
    if (!launched) return [];
    return proveFile(session, newSandboxFile(launched, session.conversation.id), other);
  },
};

/** A sandbox that the conversation has not launched: the relay must refuse it. */
async function proveNotLaunched({ call, ...session }: OperationSession): Promise<void> {
  const { ok, problem, wrong } = reporterOf(session, LIST);
  const request = { conversation: session.conversation.id, query: { path: '/' } };
  const answer = await call(LIST, { ...request, sandbox: `bot-relay-check-${randomUUID()}` });
  const verdict = verdictOn(answer);
  if (verdict === 'not_yours') ok('a sandbox that the conversation has not launched is refused with 403');
  else if (verdict === 'done' || verdict === 'unknown') {
    const says = `a sandbox that the conversation has not launched is not refused: ${answer.status}`;
    const advice =
      'Take sandbox out of OPERATIONS until what answers here is a relay of this version, and the bot service names only sandboxes of the conversation.';
    problem(says, advice);
  } else wrong(answer);
}

/** Writes the file, proves what can be done with it, and removes it, whatever happens in between. */
async function proveFile(
  session: OperationSession,
  file: SandboxFile,
  other: OperationSession | undefined,
): Promise<readonly ForeignQuestion[]> {
  const watch = await openWatch(session, file);
  let isWritten: boolean | undefined;
  try {
    isWritten = await writeSandboxFile(session, file);
    if (!isWritten) return [];
    if (watch) await proveWatch(session, file, watch);
    await proveSandboxReads(session, file);
    return await askedAtOnce(foreignReads(file), other);
  } finally {
    watch?.response.destroy();
    await removeSandboxFile(session, file, isWritten);
  }
}

/** Asks the questions while the file is there. What came of them is reported later. */
async function askedAtOnce(
  questions: readonly ForeignQuestion[],
  other: OperationSession | undefined,
): Promise<readonly ForeignQuestion[]> {
  if (!other) return questions;
  const asked: ForeignQuestion[] = [];
  for (const { what, ask } of questions) {
    const result = await ask(other);
    asked.push({ what, ask: async () => result });
  }
  return asked;
}
