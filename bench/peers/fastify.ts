/** @fastify/http-proxy, with as many connections as needed. */
import proxy from '@fastify/http-proxy';
import fastify from 'fastify';
import { API_KEY } from '../support/message.ts';
import { listening, UPSTREAM } from '../support/script-peer.ts';

const app = fastify();
await app.register(proxy, {
  upstream: UPSTREAM,
  undici: { connections: 20_000, bodyTimeout: 0 },
  replyOptions: { rewriteRequestHeaders: (_request, headers) => ({ ...headers, 'x-api-key': API_KEY }) },
});
await app.listen({ port: 0, host: '127.0.0.1' });
listening(app.server.address());
