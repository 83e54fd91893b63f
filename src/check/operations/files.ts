import { randomUUID } from 'node:crypto';
import { newConversation } from '../conversation.ts';
import { problemOf } from '../judge-answer.ts';
import { apartness } from './apartness.ts';
import { checkFile } from './check-file.ts';
import { fileForm } from './file-form.ts';
import type { ForeignQuestion, GroupProbe } from './group-probe.ts';
import { jsonOf, stringsNamed, verdictOn } from './judge-operation.ts';
import { nameForeignFile } from './name-foreign-file.ts';
import type { OperationSession } from './operation-session.ts';
import { reporterOf } from './report-operation.ts';

const UPLOAD = 'POST blob';
const DOWNLOAD = 'GET channel-home/download';
const FILE_NAME = 'bot-relay-check.txt';

/** Uploads, and downloads of what was uploaded. */
export const files: GroupProbe = {
  ask: ({ call }) =>
    call(DOWNLOAD, { conversation: newConversation().id, query: { relative_path: FILE_NAME } }),
  async prove(session) {
    const text = `A file of the check ${randomUUID()}.\n`;
    const uploaded = await proveUpload(session, text);
    if (!uploaded) return [];
    return [
      ...(await proveDownload(session, { text, paths: pathsOf(uploaded) })),
      ...nameForeignFile(session, stringsNamed(uploaded, 'blobId')),
    ];
  },
};

/** Uploads a file; returns the JSON of the answer. */
async function proveUpload({ call, ...session }: OperationSession, text: string): Promise<unknown> {
  const { ok, problem, wrong } = reporterOf(session, UPLOAD);
  const { conversation } = session;
  const answer = await call(UPLOAD, { body: fileForm({ name: FILE_NAME, text }, conversation.id) });
  if (verdictOn(answer) !== 'done') {
    const isRefused = problemOf(answer)?.code === 'upstream_refused';
    wrong(answer, ...(isRefused ? [REFUSED_FORM] : []));
    return undefined;
  }
  conversation.isBegun = true;
  const json = jsonOf(answer);
  if (stringsNamed(json, 'blobId').length > 0)
    ok('the bot service takes a file as the relay sends it: the id of the conversation behind the file');
  else problem('the answer names no blobId, so that no message can have the file', REFUSED_FORM);
  return json;
}

/** What to do if the bot service does not take the form. */
const REFUSED_FORM =
  'The relay writes the id of the conversation behind the file. Ask those who run the bot service whether it takes this order. Until it does, take files out of OPERATIONS.';

/** Where the service may have put the file: what it says, or else its name. */
function pathsOf(json: unknown): { readonly path: string; readonly isSaid: boolean } {
  const said = ['relativePath', 'relative_path'].flatMap((name) => stringsNamed(json, name))[0];
  const path = said ?? stringsNamed(json, 'fileName')[0] ?? FILE_NAME;
  return { path, isSaid: said !== undefined };
}

async function proveDownload(
  { call, ...session }: OperationSession,
  { text, paths }: { readonly text: string; readonly paths: ReturnType<typeof pathsOf> },
): Promise<ForeignQuestion[]> {
  const { ok, note, problem, wrong } = reporterOf(session, DOWNLOAD);
  const { id } = session.conversation;
  const query = { relative_path: paths.path };
  const answer = await call(DOWNLOAD, { conversation: id, query });
  const verdict = verdictOn(answer);
  if (verdict === 'unknown' && !paths.isSaid) {
    note('not proved: the bot service does not say where it keeps an uploaded file');
    return [];
  }
  if (verdict !== 'done') {
    wrong(answer);
    return [];
  }
  const faults = checkFile(answer, text);
  if (faults.length === 0) ok('the uploaded file comes back as it was, and no browser shows it as a page');
  else problem(faults.join('; '), 'Let the load balancer pass files and their headers on as they are.');
  const ask: ForeignQuestion['ask'] = async (other) =>
    apartness(await other.call(DOWNLOAD, { conversation: id, query }));
  return [{ what: 'its file', ask }];
}
