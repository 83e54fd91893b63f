import { once } from 'node:events';
import { type AddressInfo, createServer, type Socket } from 'node:net';

/** A server that speaks as much of Redis's protocol as a test needs. */
export interface FakeRedis {
  readonly host: string;
  readonly port: number;
  readonly sockets: ReadonlySet<Socket>;
  close(): void;
}

/** A text as a reply. */
export const bulk = (text: string) => `$${Buffer.byteLength(text)}\r\n${text}\r\n`;
const HELLO = `%1\r\n${bulk('proto')}:3\r\n`;
/** The words of one command; none of them may be empty. */
const COMMAND = /^\*\d+\r\n(?:\$\d+\r\n.+\r\n)+?(?=\*|$)/;

/** Answers HELLO and PING, and each other command with what `answer` returns; not at all if that is undefined. */
export async function fakeRedis(
  answer: (words: readonly string[], socket: Socket) => string | undefined,
): Promise<FakeRedis> {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    let text = '';
    sockets.add(socket);
    socket.on('error', () => {}).on('close', () => sockets.delete(socket));
    socket.on('data', (data) => {
      text += data;
      for (let found = COMMAND.exec(text); found; found = COMMAND.exec(text)) {
        text = text.slice(found[0].length);
        const words = [...found[0].matchAll(/\$\d+\r\n(.+)\r\n/g)].map(([, word = '']) => word.toUpperCase());
        const given = answer(words, socket);
        const known = words[0] === 'HELLO' ? HELLO : words[0] === 'PING' ? '+PONG\r\n' : undefined;
        socket.write(given ?? known ?? '');
      }
    });
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  return {
    ...{ port, sockets, host: `127.0.0.1:${port}` },
    close() {
      server.close();
      for (const socket of sockets) socket.destroy();
    },
  };
}
