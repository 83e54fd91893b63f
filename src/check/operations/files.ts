import { randomUUID } from 'node:crypto';
import type { Config } from '../../config/config.ts';
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
    const { config, conversation } = session;
    if (config.channels.mode === 'owned' && !conversation.isBegun) {
      const says = 'not proved: with CHANNELS=owned, a file needs a conversation that a message has begun';
      reporterOf(session, UPLOAD).note(says, 'Check without --no-messages.');
      return [];
    }
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
  const { config, conversation } = session;
  const answer = await call(UPLOAD, { body: fileForm({ name: FILE_NAME, text }, conversation.id) });
  if (verdictOn(answer) !== 'done') {
    const isRefused = problemOf(answer)?.code === 'upstream_refused';
    wrong(answer, ...(isRefused ? [refusedForm(config)] : []));
    return undefined;
  }
  conversation.isBegun = true;
  const json = jsonOf(answer);
  if (stringsNamed(json, 'blobId').length > 0)
    ok(
      `the bot service takes a file as the relay sends it: the id of the conversation ${placeOfId(config)} the file`,
    );
  else problem('the answer names no blobId, so that no message can have the file', refusedForm(config));
  return json;
}

/** Where the relay writes the id of the conversation in the form. */
function placeOfId({ upstream }: Config): 'before' | 'behind' {
  return upstream.uploads === 'spool' ? 'before' : 'behind';
}

/** What to do if the bot service does not take the form. */
function refusedForm(config: Config): string {
  const place = placeOfId(config);
  const mend =
    place === 'behind' ? 'Set UPLOADS=spool, which writes it before the file, or' : 'Until it does,';
  return `The relay writes the id of the conversation ${place} the file. Ask those who run the bot service whether it takes this order. ${mend} take files out of OPERATIONS.`;
}

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
    apartness(await other.call(DOWNLOAD, { conversation: id, query }), other.config.channels.mode);
  return [{ what: 'its file', ask }];
}
