import { adviceFor } from '../failure-advice.ts';
import { fileForm } from './file-form.ts';
import { adviceOn, describe, verdictOn } from './judge-operation.ts';
import type { OperationSession } from './operation-session.ts';
import { reporterOf } from './report-operation.ts';
import { requestFor, type SandboxFile } from './sandbox-file.ts';

const WRITE = 'PUT sandbox/:sandbox/fs/file';
const READ = 'GET sandbox/:sandbox/fs/file';
const REMOVE = 'DELETE sandbox/:sandbox/fs/item';

/** Writes the file and reports it. Returns `undefined` if it may be written, although the answer is a failure. */
export async function writeSandboxFile(
  { call, ...session }: OperationSession,
  file: SandboxFile,
): Promise<boolean | undefined> {
  const { ok, wrong } = reporterOf(session, WRITE);
  const request = requestFor(file);
  const query = { ...request.query, create_only: 'true' };
  const answer = await call(WRITE, { ...request, query, body: fileForm(file) });
  if (verdictOn(answer) === 'done') {
    ok('the bot service takes a file');
    return true;
  }
  wrong(answer);
  const isRefused = answer.status >= 400 && answer.status < 500;
  return isRefused ? false : undefined;
}

/**
 * Removes the file, proves that it is gone, and reports it. `isWritten` is what `writeSandboxFile` has returned, or
 * `undefined` if it has thrown. Never throws: what has failed before is to be reported, too.
 */
export async function removeSandboxFile(
  { call, ...session }: OperationSession,
  file: SandboxFile,
  isWritten: boolean | undefined,
): Promise<void> {
  if (isWritten === false) return;
  const { ok, note, problem } = reporterOf(session, REMOVE);
  const which = `the file ${session.quote(file.path)} in the sandbox ${file.sandbox}`;
  try {
    const answer = await call(REMOVE, requestFor(file));
    const verdict = verdictOn(answer);
    if (verdict === 'unknown') note(`404 of the bot service: it does not have ${which}`);
    else if (verdict !== 'done') {
      const says = `${which} was not removed: answered with ${session.quote(describe(answer))}`;
      problem(says, adviceOn(answer));
    } else if ((await call(READ, requestFor(file))).text === file.text) {
      const says = `${which} is still there after the bot service said that it was removed`;
      problem(says, 'Ask those who run the bot service; users believe that what they delete is gone.');
    } else ok('the file of this check is gone');
  } catch (error) {
    const code = (error as Error).message;
    problem(`${which} may still be there: no answer (${code})`, adviceFor(code));
  }
}
