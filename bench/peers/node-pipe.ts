/** A simple proxy: `node:http` on both sides and a pipe. */
import { Agent, createServer, request } from 'node:http';
import { API_KEY } from '../support/message.ts';
import { listening, UPSTREAM_PORT } from '../support/script-peer.ts';

const agent = new Agent({ keepAlive: true });

const server = createServer((req, res) => {
  const { connection: _hop, ...headers } = req.headers;
  const upstream = request({
    host: '127.0.0.1',
    port: UPSTREAM_PORT,
    method: req.method,
    path: req.url,
    headers: { ...headers, 'X-API-KEY': API_KEY },
    agent,
  });
  upstream.on('response', (response) => {
    const { connection: _hop, 'transfer-encoding': _framing, ...headers } = response.headers;
    res.writeHead(response.statusCode as number, headers);
    res.flushHeaders();
    response.pipe(res);
  });
  upstream.on('error', () => res.destroy());
  res.on('close', () => upstream.destroy());
  req.pipe(upstream);
});
server.listen(0, '127.0.0.1', () => listening(server.address()));
