import { checkFile } from './check-file.ts';
import { describe, jsonOf, valuesNamed, verdictOn } from './judge-operation.ts';
import type { OperationSession } from './operation-session.ts';
import { reporterOf } from './report-operation.ts';
import { requestFor, type SandboxFile } from './sandbox-file.ts';

const LIST = 'GET sandbox/:sandbox/fs/list';
const STAT = 'GET sandbox/:sandbox/fs/stat';
const READ = 'GET sandbox/:sandbox/fs/file';

const ASK_SERVICE = 'Ask those who run the bot service.';
const UNCHANGED =
  'Let the load balancer pass files, their headers, Range and the query on as they are; or ask those who run the bot service.';
/** The part of the file that is read, in bytes. */
const PART = { from: 2, length: 8 };

/** Proves with a file that is written what can be read of it. */
export async function proveSandboxReads(session: OperationSession, file: SandboxFile): Promise<void> {
  await proveStat(session, file);
  await proveRead(session, file);
  await proveList(session, file);
}

async function proveStat({ call, ...session }: OperationSession, file: SandboxFile): Promise<void> {
  const { ok, problem, wrong } = reporterOf(session, STAT);
  const answer = await call(STAT, requestFor(file));
  if (verdictOn(answer) !== 'done') return wrong(answer);
  const json = jsonOf(answer);
  const [size] = valuesNamed(json, 'sizeBytes');
  if (valuesNamed(json, 'exists').includes(false)) problem('says that the file is not there', ASK_SERVICE);
  else if (typeof size === 'number' && size !== file.text.length)
    problem(`says ${size} bytes, and the file has ${file.text.length}`, ASK_SERVICE);
  else ok('the file is there');
}

async function proveRead({ call, ...session }: OperationSession, file: SandboxFile): Promise<void> {
  const { ok, note, problem, wrong } = reporterOf(session, READ);
  const answer = await call(READ, requestFor(file));
  if (verdictOn(answer) !== 'done') return wrong(answer);
  const byRange = await readRange({ call }, file);
  const faults = [...checkFile(answer, file.text), ...(await readPart({ call }, file)), ...byRange.faults];
  if (byRange.isWhole) note('Range is not followed: the whole file comes');
  if (faults.length > 0) problem(session.quote(faults.join('; ')), UNCHANGED);
  else ok('the file comes back as it was, whole and in parts, and no browser shows it as a page');
}

const partOf = ({ text }: SandboxFile) => text.slice(PART.from, PART.from + PART.length);

/** What is wrong with a part that the query asks for. */
async function readPart({ call }: Pick<OperationSession, 'call'>, file: SandboxFile): Promise<string[]> {
  const request = requestFor(file);
  const part = { offset_bytes: String(PART.from), limit_bytes: String(PART.length) };
  const answer = await call(READ, { ...request, query: { ...request.query, ...part } });
  if (verdictOn(answer) !== 'done')
    return [`offset_bytes and limit_bytes are answered with ${describe(answer)}`];
  return answer.text === partOf(file) ? [] : ['offset_bytes and limit_bytes give another part of the file'];
}

/** What is wrong with a part that `Range` asks for. A service may send the whole file instead (RFC 9110 §14.2). */
async function readRange({ call }: Pick<OperationSession, 'call'>, file: SandboxFile) {
  const range = `${PART.from}-${PART.from + PART.length - 1}`;
  const answer = await call(READ, { ...requestFor(file), range: `bytes=${range}` });
  const isWhole = answer.status === 200 && answer.text === file.text;
  if (isWhole) return { isWhole, faults: [] };
  const named = answer.headers['content-range'];
  const isPart =
    answer.status === 206 && answer.text === partOf(file) && named?.startsWith(`bytes ${range}/`);
  return { isWhole, faults: isPart ? [] : [`Range is answered with ${describe(answer)} and another part`] };
}

async function proveList({ call, ...session }: OperationSession, file: SandboxFile): Promise<void> {
  const { ok, note, problem, wrong } = reporterOf(session, LIST);
  const answer = await call(LIST, requestFor(file, 'folder'));
  if (verdictOn(answer) !== 'done') return wrong(answer);
  if (answer.text.includes(file.name)) ok('has the file');
  else if (valuesNamed(jsonOf(answer), 'truncated').includes(true))
    note('not proved: the folder has more files than the bot service lists');
  else problem('does not have the file', ASK_SERVICE);
}
