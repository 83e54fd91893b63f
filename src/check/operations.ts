import { randomUUID } from 'node:crypto';
import type { OperationGroup } from '../bots/bot.ts';
import { launchedSandboxes } from '../guard/sandboxes.ts';
import { type Answer, jsonOf } from './answers.ts';
import type { Conversation } from './conversation.ts';
import type { Call } from './http-client.ts';
import { type CallOperation, type OperationCall, outcomeOf, wrong } from './operation-calls.ts';
import { note, ok, problem, type Verdict } from './report.ts';

/** How a check proves one group of operations. */
export interface OperationProof {
  /** The first user's own call. It costs nothing, and tells whether the group is on: if not, the answer is 501. */
  own(conversation: Conversation): OperationCall;
  /** What the answer proves, if the group is on. */
  judge?(answer: Answer, conversation: Conversation, call: CallOperation): Promise<Verdict>;
  /** What a second user asks for, which the first one has got. They must not get it. */
  readonly foreign?: { readonly what: string; call(conversation: Conversation): OperationCall };
}

const ASK_SERVICE =
  'Ask those who run the bot service whether it keeps conversations apart by customChannelId, and answers 404 for one that it does not have.';
const FILE_NAME = 'bot-relay-check.txt';
/** The members of JSON that are named like a secret, and have a text that is not masked. */
const SECRETS = /"([^"]*(?:api[_-]?key|secret|passw(?:or)?d|credential|authorization|token))"\s*:\s*"[^"*]/gi;

/** The metadata of a conversation. */
export const metadataOf = ({ id }: Conversation): OperationCall => ({
  line: 'GET channel/metadata',
  conversation: id,
});
const download = ({ id, filePath = FILE_NAME }: Conversation): OperationCall => ({
  ...{ line: 'GET channel-home/download', conversation: id, query: { relative_path: filePath } },
});
const listSandbox = ({ id, sandbox = 'check' }: Conversation): OperationCall => ({
  ...{ line: 'GET sandbox/:sandbox/fs/list', conversation: id, sandbox, query: { path: '/' } },
});

/** How each group of operations is proved. */
export const OPERATION_PROOFS: Readonly<Record<OperationGroup, OperationProof>> = {
  // The message itself was sent before, and a second user has tried to stop its run. No JSON is refused before it runs.
  message: {
    own: () => ({ line: 'POST message/sse', body: { type: 'text/plain', bytes: Buffer.from('no JSON') } }),
  },
  chat: { own: metadataOf, judge: judgeMetadata, foreign: { what: 'its metadata', call: metadataOf } },
  files: {
    own: (conversation) => ({ line: 'POST blob', body: fileForm(conversation) }),
    judge: judgeUpload,
    foreign: { what: 'its file', call: download },
  },
  // Every user who is signed in may read the configuration of the bot.
  metadata: { own: () => ({ line: 'GET metadata' }), judge: judgeConfiguration },
  sandbox: { own: listSandbox, judge: judgeSandbox, foreign: { what: 'its sandbox', call: listSandbox } },
};

async function judgeMetadata(answer: Answer, conversation: Conversation): Promise<Verdict> {
  const { isBegun } = conversation;
  const outcome = outcomeOf(answer);
  if (outcome === 'done' && isBegun) {
    [conversation.sandbox] = launchedSandboxes(jsonOf(answer.text));
    return ok('the conversation of this check is there');
  }
  if (outcome === 'done')
    return problem('the bot service has a conversation that nobody has begun', ASK_SERVICE);
  if (outcome !== 'unknown') return wrong(answer);
  if (!isBegun)
    return note(
      'not proved with a conversation that exists, since no message was answered',
      'Check without --no-messages.',
    );
  return problem(
    'the bot service answers 404 for a conversation in which it has just answered a message',
    `Clients take it for a new one, and may open a paid turn at each load. ${ASK_SERVICE}`,
  );
}

async function judgeUpload(
  answer: Answer,
  conversation: Conversation,
  call: CallOperation,
): Promise<Verdict> {
  if (outcomeOf(answer) !== 'done') return wrong(answer);
  conversation.isBegun = true;
  const json = jsonOf(answer.text);
  const said = stringNamed(json, 'relativePath') ?? stringNamed(json, 'relative_path');
  conversation.filePath = said ?? stringNamed(json, 'fileName');
  const file = await call(download(conversation));
  const outcome = outcomeOf(file);
  if (outcome === 'unknown' && said === undefined)
    return note('takes a file; not proved further: the bot service does not say where it keeps it');
  if (outcome !== 'done') {
    const { says, ...verdict } = wrong(file);
    return { ...verdict, says: `the download of the uploaded file is ${says}` };
  }
  if (file.text === fileText(conversation)) return ok('an uploaded file comes back as it was');
  const advice = 'Let the load balancer pass files on as they are; or ask those who run the bot service.';
  return problem('the file that comes back is not what was uploaded', advice);
}

async function judgeConfiguration(answer: Answer): Promise<Verdict> {
  if (outcomeOf(answer) !== 'done') return wrong(answer);
  const names = [...new Set([...answer.text.matchAll(SECRETS)].map(([, name]) => name))];
  if (names.length === 0) return ok('nothing in it is named like a secret');
  return note(
    `seems to hold secrets, which every user who is signed in can read: ${names.join(', ')}`,
    "Take them out of the bot's configuration, or metadata out of OPERATIONS.",
  );
}

async function judgeSandbox(answer: Answer, { sandbox }: Conversation): Promise<Verdict> {
  if (sandbox === undefined)
    return note(
      'not proved: no sandbox is known that the conversation of this check has launched',
      'It needs a message with a --text for which the bot uses its sandbox, and the group chat.',
    );
  return outcomeOf(answer) === 'done'
    ? ok('lists the files of a sandbox of this conversation')
    : wrong(answer);
}

/** What is in the file of the check. */
const fileText = ({ id }: Conversation) => `A file of the check ${id}.\n`;

/** A form with the id of a conversation and a text file, as a browser sends it. */
function fileForm(conversation: Conversation): NonNullable<Call['body']> {
  const boundary = `bot-relay-check-${randomUUID()}`;
  const part = (head: string, body: string) =>
    `--${boundary}\r\nContent-Disposition: form-data; ${head}\r\n\r\n${body}\r\n`;
  const head = `name="file"; filename="${FILE_NAME}"\r\nContent-Type: text/plain`;
  const parts = part('name="customChannelId"', conversation.id) + part(head, fileText(conversation));
  return {
    type: `multipart/form-data; boundary=${boundary}`,
    bytes: Buffer.from(`${parts}--${boundary}--\r\n`),
  };
}

/** The first string that the member `name` has, wherever it stands in `json`. */
function stringNamed(json: unknown, name: string): string | undefined {
  if (typeof json !== 'object' || json === null) return undefined;
  for (const [key, value] of Object.entries(json)) {
    const found = key === name && typeof value === 'string' ? value : stringNamed(value, name);
    if (found !== undefined) return found;
  }
  return undefined;
}
