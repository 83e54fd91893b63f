import { connect, type Socket } from 'node:net';

/**
 * A program: `count` clients connect to the relay at `port` at the same moment and sign in, each on its own connection.
 * Then it prints how many answers had which status.
 */
const [port, count] = process.argv.slice(2).map(Number) as [number, number];

function signIn(socket: Socket, number: number): Promise<string> {
  const body = JSON.stringify({ username: `user${number}`, password: 'not the password' });
  const head = [
    'POST /auth/login HTTP/1.1',
    'Host: app.example.com',
    `X-Forwarded-For: 10.${number >> 16}.${(number >> 8) & 255}.${number & 255}`,
    'Content-Type: application/json',
    `Content-Length: ${body.length}`,
    'Connection: close',
  ];
  return new Promise((resolve) => {
    let answer = '';
    socket.on('data', (data) => {
      answer += data;
    });
    socket.on('error', () => {});
    socket.on('close', () => resolve(answer.split(' ')[1] ?? 'none'));
    socket.write(`${head.join('\r\n')}\r\n\r\n${body}`);
  });
}

const statuses = await Promise.all(
  Array.from({ length: count }, (_, number) => signIn(connect({ port, host: '127.0.0.1' }), number)),
);
const counts: Record<string, number> = {};
for (const status of statuses) counts[status] = (counts[status] ?? 0) + 1;
process.stdout.write(JSON.stringify(counts));
