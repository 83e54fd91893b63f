import { randomUUID } from 'node:crypto';
import { Refusal, sendData } from '../wire/answers.ts';
import { readForm } from '../wire/read-body.ts';
import { sendFile } from '../wire/send-file.ts';
import { channelOf, type Operation, type ServiceCall } from '../wire/service-call.ts';
import type { FileTree } from './file-tree.ts';
import {
  copyFiles,
  filePath,
  fileState,
  listFolder,
  makeFolder,
  moveFiles,
  readFile,
  removeAll,
  removeItem,
  watchFiles,
  writeFile,
} from './sandbox-files.ts';
import type { Sandbox, Sandboxes } from './sandboxes.ts';

/** How many streams may watch one sandbox. */
const MAX_WATCHING = 16;

/** Finds the sandbox that a call names. */
type SandboxOf = (call: ServiceCall) => Sandbox;

const pathOf = ({ query }: ServiceCall, name = 'path') => filePath(query.get(name));
const isSet = ({ query }: ServiceCall, name: string) => query.get(name) === 'true';

const fromTo = (call: ServiceCall) => ({
  from: pathOf(call, 'src'),
  to: pathOf(call, 'dst'),
  overwrites: isSet(call, 'overwrite'),
});

/** A number in the query; undefined if there is none. */
function numberIn({ query }: ServiceCall, name: string): number | undefined {
  const text = query.get(name);
  if (text === null) return undefined;
  if (!/^\d{1,15}$/.test(text)) throw new Refusal('INVALID_PATH');
  return Number(text);
}

/** `GET fs/file`: a file, or a piece of it by `offset_bytes` and `limit_bytes`, or by `Range`. */
async function sendSandboxFile(call: ServiceCall, sandboxOf: SandboxOf): Promise<void> {
  const path = pathOf(call);
  const whole = readFile(sandboxOf(call).tree, path);
  const from = numberIn(call, 'offset_bytes') ?? 0;
  const bytes = whole.subarray(from, from + (numberIn(call, 'limit_bytes') ?? whole.length));
  const headers = {
    'X-Total-Bytes': String(whole.length),
    'X-Truncated': String(bytes.length < whole.length),
  };
  sendFile(call.req, call.res, { name: path.slice(path.lastIndexOf('/') + 1), type: '', bytes, headers });
}

/** `PUT fs/file`: writes a file of a form. */
async function takeSandboxFile(call: ServiceCall, sandboxOf: SandboxOf): Promise<void> {
  const path = pathOf(call);
  const { file } = await readForm(call.req);
  const { tree } = sandboxOf(call);
  writeFile(tree, path, {
    bytes: file.bytes,
    isNew: isSet(call, 'create_only'),
    mode: numberIn(call, 'mode'),
  });
  sendData(call.res, { bytesWritten: file.bytes.length });
}

/** `GET fs/watch`: the changes of a path, until the reader leaves or the sandbox is gone. Its events have no ids. */
async function watchSandbox(call: ServiceCall, sandboxOf: SandboxOf): Promise<void> {
  const { res } = call;
  const { tree, watching } = sandboxOf(call);
  if (watching.size >= MAX_WATCHING) throw new Refusal('RATE_LIMITED');
  const stop = watchFiles(tree, { path: pathOf(call), isDeep: isSet(call, 'recursive') }, (change) =>
    res.write(`event: change\ndata: ${JSON.stringify(change)}\n\n`),
  );
  watching.add(res);
  res.once('close', () => {
    stop();
    watching.delete(res);
  });
  res.writeHead(200, { 'Content-Type': 'text/event-stream' });
  res.flushHeaders();
}

/** An address that opens the browser of the sandbox, once. */
const openUrl = ({ id }: Sandbox) => ({
  openURL: `https://sandbox.example/${id}/${randomUUID()}`,
});

/** What a page needs to show the browser itself: an address for a WebSocket, and a token. */
const browserSession = ({ id }: Sandbox) => ({
  wsUrl: `wss://sandbox.example/${id}/ws`,
  token: randomUUID(),
});

/** The operations of a sandbox, by method and path. */
export function sandboxOperations(sandboxes: Sandboxes): Readonly<Record<string, Operation>> {
  const sandboxOf = (call: ServiceCall) => {
    if (!call.brain.hasSandbox) throw new Refusal('SANDBOX_NOT_FOUND');
    return sandboxes.findOrLaunch(channelOf(call).key, call.sandbox);
  };
  /** An operation that changes or reads the tree of a sandbox, and answers with data. */
  const onTree =
    (act: (tree: FileTree, call: ServiceCall) => unknown): Operation =>
    async (call) =>
      sendData(call.res, act(sandboxOf(call).tree, call) ?? null);
  return {
    'POST sandbox/:sandbox/browser/open-url': async (call) => sendData(call.res, openUrl(sandboxOf(call))),
    'POST sandbox/:sandbox/browser/session': async (call) =>
      sendData(call.res, browserSession(sandboxOf(call))),
    'GET sandbox/:sandbox/fs/list': onTree((tree, call) => ({
      entries: listFolder(tree, pathOf(call)),
      truncated: false,
    })),
    'GET sandbox/:sandbox/fs/stat': onTree((tree, call) => {
      const node = tree.nodes.get(pathOf(call));
      return { exists: node !== undefined, ...fileState(node) };
    }),
    'POST sandbox/:sandbox/fs/mkdir': onTree((tree, call) => makeFolder(tree, pathOf(call))),
    'POST sandbox/:sandbox/fs/copy': onTree((tree, call) => ({ bytesCopied: copyFiles(tree, fromTo(call)) })),
    'POST sandbox/:sandbox/fs/move': onTree((tree, call) => moveFiles(tree, fromTo(call))),
    'DELETE sandbox/:sandbox/fs/item': onTree((tree, call) => removeItem(tree, pathOf(call))),
    'DELETE sandbox/:sandbox/fs/all': onTree((tree, call) => removeAll(tree, pathOf(call))),
    'GET sandbox/:sandbox/fs/file': (call) => sendSandboxFile(call, sandboxOf),
    'PUT sandbox/:sandbox/fs/file': (call) => takeSandboxFile(call, sandboxOf),
    'GET sandbox/:sandbox/fs/watch': (call) => watchSandbox(call, sandboxOf),
  };
}
